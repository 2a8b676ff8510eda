"""One non-label party in a process of its own: it answers the calls of the label party, and keeps what it goes on from."""

import copy
import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vflbench import __version__
from vflbench.data.party_files import PartyTable
from vflbench.data.rows import AlignedRows
from vflbench.data.table import LABEL_PARTY, Features, VerticalTable
from vflbench.defenses.chain import Chain
from vflbench.errors import UserError
from vflbench.generators import Generators
from vflbench.messages.fact import Fact, Facts
from vflbench.messages.facts import Embeddings, OwnColumns
from vflbench.messages.message import Kind, Message
from vflbench.messages.recording_format import (
    FACTS,
    MANIFEST,
    MESSAGES,
    Manifest,
    PartyLayers,
    packed,
    write_batch_file,
    write_manifest,
)
from vflbench.messages.serialize import Content, content_of, encode, message_of
from vflbench.protocols.base import Seating
from vflbench.protocols.parties import NonLabelParty
from vflbench.protocols.split import Split, facts_of_non_label_party
from vflbench.run.checkpoint import Checkpoint
from vflbench.run.recording import ROUNDS
from vflbench.run.settings import choose_device, set_threads, tune
from vflbench.run.setup import Experiment

_TIMES = 4
"""So often each row may be in one request: rows of several uses are asked for together."""

KEPT = 2
"""Checkpoints that a party keeps: the label party may have failed to write the one that belongs to the newest."""


class PartyCheckpoints:
    """folder: where they go, each in a folder of its own. party: whose."""

    def __init__(self, folder: Path, party: str):
        self._folder, self._party = folder, party

    def save(self, state: Mapping[str, Any]) -> str:
        """Keep the state, and forget the oldest. Returns its name. Raises UserError for what no checkpoint can hold."""
        mark = secrets.token_hex(8)
        checkpoint = self._of(mark)
        checkpoint.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not checkpoint.save(state):
            raise UserError(f"no checkpoint of party {self._party} can hold {checkpoint.refused}", key="checkpoint")
        self.forget(KEPT)
        return mark

    def load(self, mark: str) -> dict[str, Any]:
        """The state of that name. Raises UserError where there is none: the parties are then not at the same step."""
        state = self._of(mark).load()
        if state is None:
            problem = (
                f"party {self._party} has no checkpoint of the step at which the label party is, so the run can't go "
                "on; bring its folder of checkpoints back, or begin anew with overwrite=true"
            )
            raise UserError(problem, key="checkpoint")
        return state

    def forget(self, but: int = 0) -> None:
        """All but so many of the newest; all, when the run is complete and nobody will go on from here."""
        kept = sorted(self._folder.glob("*/checkpoint.pt"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        for path in kept[but:]:
            path.unlink(missing_ok=True)
            path.parent.rmdir()

    def _of(self, mark: str) -> Checkpoint:
        if len(mark) != 16 or not mark.isalnum():
            raise UserError("the label party names a checkpoint by what is no name", key="checkpoint", value=mark)
        return Checkpoint(self._folder / mark, "keep")


RECORDED: frozenset[type[Fact]] = frozenset(FACTS.values())


class PartyRecorder:
    """Writes the rounds that the label party has watched, as `record` asks, into `recording` in a folder of the party.

    No label is in it, so `vflbench audit FOLDER --scores-only DIR` reads it; the label party then grades the scores.
    Rounds in which the party got no gradient are left out. sends: layers that cross. classes, batch_size: of the run.
    """

    def __init__(self, folder: Path, party: str, sends: tuple[str, ...], classes: int, batch_size: int, *, complete: bool):
        self._folder, self._party, self._sends = folder / ROUNDS, party, sends
        self._classes, self._batch_size, self._complete = classes, batch_size, complete
        self._epoch, self._step, self._has_begun = 0, -1, False

    def begin(self, epoch: int) -> None:
        """A batch of this epoch comes next."""
        self._step = self._step + 1 if epoch == self._epoch else 0
        self._epoch = epoch

    def see(self, ids: Tensor, facts: Facts) -> None:
        """Write what the party knows of the batch that began last. ids: (n,)."""
        if not self._has_begun:
            self._begin(facts)
        tensors = {name: values for fact in facts.values() for name, values in packed(fact).items()}
        write_batch_file(self._folder, self._party, ids.cpu(), tensors, epoch=self._epoch, step=self._step)

    def _begin(self, facts: Facts) -> None:
        """Also drops messages of a run that is computed again."""
        found = facts.get(Embeddings)
        layers = found.layers if isinstance(found, Embeddings) else {}
        own = PartyLayers({layer: h.shape[1] for layer, h in layers.items()}, [one for one in self._sends if one in layers])
        for path in (self._folder / MESSAGES).glob("*-*.safetensors"):
            path.unlink()
        manifest = Manifest(
            classes=self._classes,
            parties={self._party: own},
            producer=f"party {self._party} of vflbench train, version {__version__}",
            batch_size=self._batch_size,
            complete=self._complete,
        )
        write_manifest(self._folder, manifest)
        self._has_begun = True

    def state(self) -> dict[str, Any]:
        return {"epoch": self._epoch, "step": self._step}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._epoch, self._step = int(state["epoch"]), int(state["step"])
        self._has_begun = (self._folder / MANIFEST).is_file()


@dataclass
class Seated:
    """A party that has been greeted. recorder: keeps rounds that the label party watches on disk.

    ids: the batch from which it learns next. gradient: of this batch, once it came. history: a digest of all that it was
    asked, where it has a secret.
    """

    party: NonLabelParty
    table: PartyTable
    generators: Generators
    device: torch.device
    autocast: torch.autocast
    widths: Mapping[str, int]
    pipelined: bool
    recorder: PartyRecorder | None
    ids: Tensor | None = None
    gradient: Message | None = None
    watched: bool = False
    history: bytes = b""


@dataclass
class PartyProcess:
    """The other end of a `Channel`: `handle(method, content)`. Nothing else leaves the process.

    party: its name. experiment: built from the same options as the label party's; data and loggers are
    not used. table: returns the party's own rows. folder: where its checkpoints go. secret: mixed into all that is drawn
    here, empty where others may draw the same.
    """

    party: str
    experiment: Experiment
    table: Callable[[], PartyTable]
    folder: Path
    secret: bytes = b""

    def __post_init__(self) -> None:
        self.seated: Seated | None = None
        self._checkpoints = PartyCheckpoints(self.folder, self.party)
        self._greeted: set[bool] = set()
        self._methods: dict[str, Callable[[Seated, Mapping[str, Any]], dict[str, Any]]] = {
            "embed": self._embed,
            "learn": self._learn,
            "predict": self._predict,
            "figures": self._figures,
            "save": self._save,
            "resume": self._resume,
        }

    def handle(self, method: str, content: Content) -> Content:
        """`hello` comes first, and seats the party. Raises UserError for what was not agreed."""
        try:
            if method == "hello":
                return self._hello(content)
            if method == "forget":  # also of a run that had been finished before
                self._checkpoints.forget()
                return {}
            if self.seated is None:
                raise UserError("the label party asks before it said hello", key="engine")
            if method not in self._methods:
                raise UserError(f"the label party asks for {method!r}, which this version doesn't know", key="engine")
            torch.set_flush_denormal(True)  # a setting of each thread, and an engine has several
            with self.seated.autocast:
                return self._methods[method](self.seated, content)
        except UserError:
            raise
        except (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError) as error:
            problem = f"the label party's {method} is not as agreed ({type(error).__name__}: {error})"
            raise UserError(problem, key="engine") from error

    def _hello(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """What `Announced` takes. Raises UserError where the other side is of another version."""
        cheating, version = content.get("cheating") is True, content.get("version")
        if self.secret and cheating in self._greeted:
            again = "has been greeted in this run; what leaks through its noise adds up with each start"
            raise UserError(f"party {self.party} {again}", key="engine")
        if version != __version__:
            problem = f"it has vflbench {__version__} and the label party {version}; install the same at both"
            raise UserError(f"party {self.party}: {problem}", key="engine")
        classes, batch_size = (_count(content, name) for name in ("classes", "batch_size"))
        seated = self.seated = self._seat(self.experiment if cheating else self.experiment.honest, classes, batch_size)
        self._greeted.add(cheating)
        columns, bottom = seated.table.columns, seated.party.bottom
        return {
            "numeric": list(columns.numeric),
            "categorical": list(columns.categorical),
            "cardinalities": list(columns.cardinalities),
            "layers": list(bottom.layers),
            "sends": list(bottom.sends),
            "widths": list(seated.widths.values()),
            "guarded": bool(seated.party.guards.guards),
            "rows": len(seated.table),
        }

    def _seat(self, experiment: Experiment, classes: int, batch_size: int) -> Seated:
        """A seating has the columns of this party, and no row."""
        settings, table = experiment.settings, self.table()
        tune()
        set_threads(batch_size, experiment.model.width)
        none = torch.empty(0, dtype=torch.int64)
        features = Features(table.columns, torch.empty(0, len(table.columns.numeric)), torch.empty(0, 0, dtype=torch.int32))
        sizes = VerticalTable(none, {self.party: features}, none, classes)
        seating = Seating(
            table=sizes,
            rows=AlignedRows.of(sizes),
            model=experiment.model,
            optimizer=experiment.optimizer,
            wire=experiment.engine.wire(),
            defense=lambda: Chain(copy.deepcopy(experiment.defenses)),
            generators=Generators(settings.seed, secret=self.secret),
            device=choose_device(settings.device),
            precision=settings.precision,
            adversaries=copy.deepcopy(experiment.adversaries),
        )
        cheating = {adversary.party: adversary for adversary in seating.adversaries.values()}
        outputs = seating.defense().outputs(1 if classes == 2 else classes)
        party = Split().non_label_party(self.party, table.lookup, outputs, seating, cheating.get(self.party))
        pipelined = bool(getattr(experiment.protocol, "staleness", 0))
        if pipelined and (party.guards.guards or party.adversary is not None):
            problem = f"party {self.party} has to see each answer before it goes on"
            raise UserError(problem, key="protocol.staleness", value=1)
        recorder = None
        if settings.record != "none":
            complete = settings.record == "messages"
            recorder = PartyRecorder(self.folder, self.party, party.sends, classes, batch_size, complete=complete)
        own = seating.generators, seating.device, seating.autocast()
        return Seated(party, table, *own, party.widths(outputs), pipelined, recorder)

    def _embed(self, seated: Seated, content: Mapping[str, Any]) -> dict[str, Any]:
        """Where the run is pipelined, before it has learned from the batch before."""
        ids, epoch = self._row_ids(seated, content["ids"]), content["epoch"]
        if type(epoch) is not int or not 0 <= epoch < 10**6:
            raise UserError("the label party says an epoch that is none", key="engine")
        self._tie(seated, "embed", {"ids": ids, "epoch": epoch})
        if seated.pipelined:
            return {"message": content_of(seated.party.embed_ahead(ids, epoch))}
        self._begin(seated, ids, epoch, watched=content["watched"] is True)
        return {"message": content_of(seated.party.embed(ids, epoch, watched=seated.watched))}

    def _learn(self, seated: Seated, content: Mapping[str, Any]) -> dict[str, Any]:
        """From the batch that was embedded last, or, where the run is pipelined, from the oldest not learned from."""
        gradient = content["gradient"]
        self._tie(seated, "learn", gradient)
        if seated.pipelined:
            watched = content["watched"] is True
            self._begin(seated, *seated.party.catch_up(watched=watched), watched=watched)
        notes = () if gradient is None else self._learned(seated, gradient)
        return {"notes": list(notes), "stopped": seated.party.stopped}

    def _tie(self, seated: Seated, what: str, content: Any, *, lasting: bool = True) -> None:
        """Where the party has a secret, what it draws next depends on all that it was asked: a label party that starts it
        anew, or has it go back to a checkpoint, can't have the same noise put on something else. lasting: whether the same
        holds of what is drawn after the next request.
        """
        if not seated.generators.has_secret:
            return
        history = hashlib.sha512(seated.history + encode({"what": what, "content": content})).digest()
        seated.generators.tie(history)
        if lasting:
            seated.history = history

    def _begin(self, seated: Seated, ids: Tensor, epoch: int, *, watched: bool) -> None:
        seated.ids, seated.gradient, seated.watched = ids, None, watched
        if seated.recorder is not None:
            seated.recorder.begin(epoch)

    def _learned(self, seated: Seated, content: Any) -> Sequence[str]:
        """Lines for the log. Raises UserError for gradients of other layers, rows or widths than it sent."""
        if seated.ids is None or seated.gradient is not None:
            raise UserError("a gradient came without an embedding that it belongs to", key="engine")
        try:
            gradient = message_of(content, LABEL_PARTY, self.party, Kind.GRADIENT, seated.ids, seated.widths)
        except (ValueError, RuntimeError) as error:
            raise UserError(f"the label party sends no gradient: {error}", key="engine") from error
        seated.gradient = gradient
        notes = seated.party.learn(gradient)
        if seated.recorder is not None and seated.watched:
            columns = seated.party.rows(seated.ids)
            known = facts_of_non_label_party(seated.party, gradient, OwnColumns(columns.numeric, columns.categorical))
            seated.recorder.see(seated.ids, {kind: fact for kind, fact in known.items() if kind in RECORDED})
        return notes

    def _row_ids(self, seated: Seated, ids: Any) -> Tensor:
        """(n,) ids of rows that the party has. Raises UserError for anything else."""
        rows = len(seated.table)
        if not isinstance(ids, Tensor) or ids.dtype is not torch.int64 or ids.ndim != 1:
            raise UserError("the label party asks for rows that are none", key="engine")
        if len(ids) > _TIMES * rows:
            raise UserError("the label party asks for the same rows many times at once", key="engine")
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < rows:
            problem = f"the label party asks for rows that party {self.party} doesn't have: it has {rows:,}"
            raise UserError(problem, key="engine")
        return ids.to(seated.device)

    def _predict(self, seated: Seated, content: Mapping[str, Any]) -> dict[str, Any]:
        ids = self._row_ids(seated, content["ids"])
        self._tie(seated, "predict", ids, lasting=False)
        return {"message": content_of(seated.party.predict(ids))}

    def _figures(self, seated: Seated, content: Mapping[str, Any]) -> dict[str, Any]:
        return {"figures": {one.layer: dict(one.values) for one in seated.party.figures() if one.values}}

    def _save(self, seated: Seated, content: Mapping[str, Any]) -> dict[str, Any]:
        """Keep all that it takes to go on from here, under a name that the label party writes down."""
        state = {"history": seated.history.hex(), "party": seated.party.state(), "generators": seated.generators.state()}
        if seated.recorder is not None:
            state["recorder"] = seated.recorder.state()
        return {"mark": self._checkpoints.save(state)}

    def _resume(self, seated: Seated, content: Mapping[str, Any]) -> dict[str, Any]:
        state = self._checkpoints.load(str(content["mark"]))
        seated.history = bytes.fromhex(state["history"])
        seated.party.restore(state["party"])
        seated.generators.restore(state["generators"])
        if seated.recorder is not None:
            seated.recorder.restore(state["recorder"])
        seated.ids = seated.gradient = None
        return {}


def _count(content: Mapping[str, Any], name: str) -> int:
    value = content.get(name)
    if type(value) is not int or not 1 <= value < 2**40:
        raise UserError(f"the label party doesn't say its {name}", key="engine")
    return value
