"""One run at a non-label party that lives in a process of its own: it answers the calls of the label party."""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from vflbench.data.table import LABEL_PARTY
from vflbench.errors import UserError
from vflbench.hosts.own_table import OwnTable, asked_rows
from vflbench.hosts.party_checkpoints import PartyCheckpoints
from vflbench.hosts.party_recorder import RECORDED, PartyRecorder
from vflbench.messages.envelope import Content, encode
from vflbench.messages.fact import Fact
from vflbench.messages.facts import OwnColumns
from vflbench.messages.message import Kind, Message
from vflbench.messages.message_content import Receiving, Sending
from vflbench.messages.round import Facts
from vflbench.protocols.base import Seating
from vflbench.protocols.parties import NonLabelParty
from vflbench.protocols.split_session import facts_of_non_label_party


class PartyService:
    """What the label party can ask of this one: `handle(method, content)`. Nothing else leaves the process.

    party, table, seating: as for a session in one process. folder: where its checkpoints go.
    prepare: is called before each method, as threads of an engine have settings of their own. recorder: keeps rounds that
    the label party watches on disk.
    """

    def __init__(
        self,
        party: NonLabelParty,
        table: OwnTable,
        seating: Seating,
        folder: Path,
        prepare: Callable[[], object] = lambda: None,
        recorder: PartyRecorder | None = None,
        *,
        pipelined: bool = False,
    ):
        self.party, self._table, self._device, self._autocast = party, table, seating.device, seating.autocast()
        bottom, outputs = party.bottom, seating.defense().outputs(1 if seating.classes == 2 else seating.classes)
        self._widths = {layer: bottom.cut_width if layer == bottom.cut else outputs for layer in bottom.sends}
        self._generators, self._prepare = seating.generators, prepare
        self._checkpoints = PartyCheckpoints(folder, party.name)
        self._sending, self._receiving = Sending(), Receiving()
        self._ids: Tensor | None = None
        self._gradient: Message | None = None
        self._history = b""
        self._recorder, self._watched = recorder, False
        self._methods: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "hello": self._hello,
            **({"pipelined step": self._pipelined_step} if pipelined else {"step": self._step}),
            "predict": self._predict,
            "figures": self._figures,
            "save": self._save,
            "resume": self._resume,
            "forget": self._forget,
        }

    def handle(self, method: str, content: Content) -> Content:
        """Raises UserError for a method that there isn't, or content that is none."""
        if method not in self._methods:
            raise UserError(f"the label party asks for {method!r}, which this version doesn't know", key="engine")
        self._prepare()
        try:
            with self._autocast:
                return self._methods[method](content)
        except UserError:
            raise
        except (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError) as error:
            problem = f"the label party's {method} is not as agreed ({type(error).__name__}: {error})"
            raise UserError(problem, key="engine") from error

    def _hello(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """What `Announced` takes."""
        columns, bottom = self._table.columns, self.party.bottom
        return {
            "numeric": list(columns.numeric),
            "categorical": list(columns.categorical),
            "cardinalities": list(columns.cardinalities),
            "layers": list(bottom.layers),
            "sends": list(bottom.sends),
            "widths": list(self._widths.values()),
            "guarded": bool(self.party.guards.named),
            "rows": len(self._table),
        }

    def _step(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Learn from the answer to the last batch, if it comes along, and then embed another, if one is asked for."""
        notes: tuple[str, ...] = ()
        if content["learn"] is not None:
            self._tie("learn", content["learn"])
            notes = self._learn(content["learn"])
        if content["embed"] is None or self.party.stopped:
            return {"notes": list(notes), "stopped": self.party.stopped, "message": None}
        self._ids, self._gradient = self._row_ids(content["embed"]), None
        epoch = _epoch(content)
        self._tie("embed", {"ids": self._ids, "epoch": epoch})
        self._begin(epoch, watched=content["watched"] is True)
        message = self.party.embed(self._ids, epoch, watched=self._watched)
        return {"notes": list(notes), "stopped": "", "message": self._sending.content(message)}

    def _pipelined_step(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Learn from the oldest batch that was embedded ahead, if its answer comes along, and then embed another ahead."""
        notes: tuple[str, ...] = ()
        behind, ahead = content["behind"], content["ahead"]
        if behind is not None:
            self._tie("learn", behind["gradient"])
            oldest = self.party.oldest_ahead()
            if oldest is None:
                raise UserError("a gradient came without an embedding that it belongs to", key="engine")
            self._ids, epoch, self._gradient = *oldest, None
            self._begin(epoch, watched=behind["watched"] is True)
            self.party.catch_up(watched=self._watched)
            notes = () if behind["gradient"] is None else self._learn(behind["gradient"])
        message = None
        if ahead is not None:
            ids, epoch = self._row_ids(ahead), _epoch(content)
            self._tie("embed", {"ids": ids, "epoch": epoch})
            message = self._sending.content(self.party.embed_ahead(ids, epoch))
        return {"notes": list(notes), "stopped": self.party.stopped, "message": message}

    def _tie(self, what: str, content: Any, *, lasting: bool = True) -> None:
        """Where the party has a secret, what it draws next depends on all that it was asked: a label party that starts it
        anew, or has it go back to a checkpoint, can't have the same noise put on something else. lasting: whether the same
        holds of what is drawn after the next request.
        """
        if not self._generators.has_secret:
            return
        history = hashlib.sha512(self._history + encode({"what": what, "content": content})).digest()
        self._generators.tie(history)
        if lasting:
            self._history = history

    def _begin(self, epoch: int, *, watched: bool) -> None:
        """The batch from which it learns next."""
        self._watched = watched
        if self._recorder is not None:
            self._recorder.begin(epoch)

    def _learn(self, content: Mapping[str, Any]) -> tuple[str, ...]:
        """Raises UserError for gradients of other layers, rows or widths than it sent."""
        if self._ids is None or self._gradient is not None:
            raise UserError("a gradient came without an embedding that it belongs to", key="engine")
        agreed = {layer: (len(self._ids), self._widths[layer]) for layer in self.party.sends}
        try:
            gradient = self._receiving.message(content, LABEL_PARTY, self.party.name, Kind.GRADIENT, self._ids, agreed)
        except (ValueError, RuntimeError) as error:
            raise UserError(f"the label party sends no gradient: {error}", key="engine") from error
        self._gradient = gradient
        notes = self.party.learn(gradient)
        if self._recorder is not None and self._watched:
            self._recorder.see(self._ids, self.facts_of_round(RECORDED))
        return notes

    def _row_ids(self, ids: Any) -> Tensor:
        """Raises UserError for anything but rows that it has."""
        return asked_rows(ids, self._table, self.party.name).to(self._device)

    def _predict(self, content: Mapping[str, Any]) -> dict[str, Any]:
        ids = self._row_ids(content["ids"])
        self._tie("predict", ids, lasting=False)
        return {"message": self._sending.content(self.party.predict(ids))}

    def _figures(self, content: Mapping[str, Any]) -> dict[str, Any]:
        return {"figures": {one.layer: dict(one.values) for one in self.party.figures() if one.values}}

    def facts_of_round(self, kinds: frozenset[type[Fact]]) -> Facts:
        """What the party knows of the batch that it has just learned from, of these kinds."""
        if self._ids is None:
            return {}
        columns = self.party.rows(self._ids)
        own = OwnColumns(columns.numeric, columns.categorical)
        known = facts_of_non_label_party(self.party, self._gradient, own)
        return {kind: fact for kind, fact in known.items() if kind in kinds}

    def _save(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Keep all that it takes to go on from here, under a name that the label party writes down."""
        state = {"history": self._history.hex(), "party": self.party.state(), "generators": self._generators.state()}
        if self._recorder is not None:
            state["recorder"] = self._recorder.state()
        return {"mark": self._checkpoints.save(state)}

    def _resume(self, content: Mapping[str, Any]) -> dict[str, Any]:
        state = self._checkpoints.load(str(content["mark"]))
        self._history = bytes.fromhex(state["history"])
        self.party.restore(state["party"])
        self._generators.restore(state["generators"])
        if self._recorder is not None:
            self._recorder.restore(state["recorder"])
        self._sending, self._receiving, self._ids, self._gradient = Sending(), Receiving(), None, None
        return {}

    def _forget(self, content: Mapping[str, Any]) -> dict[str, Any]:
        self._checkpoints.forget()
        return {}


def _epoch(content: Mapping[str, Any]) -> int:
    """Raises UserError for what is no number of an epoch."""
    epoch = content["epoch"]
    if type(epoch) is not int or not 0 <= epoch < 10**6:
        raise UserError("the label party says an epoch that is none", key="engine")
    return epoch
