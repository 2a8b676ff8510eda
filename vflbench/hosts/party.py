"""One non-label party in a process of its own: it answers the calls of the label party, and keeps what it goes on from."""

import copy
import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from vflbench import __version__
from vflbench.data.rows import AlignedRows
from vflbench.data.table import LABEL_PARTY, Columns, Features, VerticalTable
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


class OwnTable(Protocol):
    """The rows of one party, and nothing of another's."""

    @property
    def columns(self) -> Columns: ...

    def __len__(self) -> int: ...

    def lookup(self, ids: Tensor) -> Features: ...


def asked_rows(ids: Any, table: OwnTable, party: str) -> Tensor:
    """(n,) ids of rows that the party has. Raises UserError for anything else."""
    if not isinstance(ids, Tensor) or ids.dtype is not torch.int64 or ids.ndim != 1:
        raise UserError("the label party asks for rows that are none", key="engine")
    if len(ids) > _TIMES * len(table):
        raise UserError("the label party asks for the same rows many times at once", key="engine")
    if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < len(table):
        problem = f"the label party asks for rows that party {party} doesn't have: it has {len(table):,}"
        raise UserError(problem, key="engine")
    return ids


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
        self._drop(self._kept()[KEPT:])
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

    def forget(self) -> None:
        """The run is complete: nobody will go on from here."""
        self._drop(self._kept())

    def _of(self, mark: str) -> Checkpoint:
        if len(mark) != 16 or not mark.isalnum():
            raise UserError("the label party names a checkpoint by what is no name", key="checkpoint", value=mark)
        return Checkpoint(self._folder / mark, "keep")

    def _kept(self) -> list[Path]:
        """The newest first."""
        return sorted(self._folder.glob("*/checkpoint.pt"), key=lambda path: path.stat().st_mtime_ns, reverse=True)

    @staticmethod
    def _drop(kept: Sequence[Path]) -> None:
        for path in kept:
            path.unlink(missing_ok=True)
            path.parent.rmdir()


RECORDED: frozenset[type[Fact]] = frozenset(FACTS.values())
_PER_EPOCH = 10**7


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
        number = self._epoch * _PER_EPOCH + self._step
        write_batch_file(self._folder, self._party, number, ids.cpu(), tensors, epoch=self._epoch, step=self._step)

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
        outputs = seating.defense().outputs(1 if seating.table.classes == 2 else seating.table.classes)
        self._widths, self._pipelined = party.widths(outputs), pipelined
        self._generators, self._prepare = seating.generators, prepare
        self._checkpoints = PartyCheckpoints(folder, party.name)
        self._ids: Tensor | None = None
        self._gradient: Message | None = None
        self._history = b""
        self._recorder, self._watched = recorder, False
        self._methods: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "hello": self._hello,
            "embed": self._embed,
            "learn": self._learn,
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
            "guarded": bool(self.party.guards.guards),
            "rows": len(self._table),
        }

    def _embed(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Where the run is pipelined, before it has learned from the batch before."""
        ids, epoch = self._row_ids(content["ids"]), _epoch(content)
        self._tie("embed", {"ids": ids, "epoch": epoch})
        if self._pipelined:
            return {"message": content_of(self.party.embed_ahead(ids, epoch))}
        self._begin(ids, epoch, watched=content["watched"] is True)
        return {"message": content_of(self.party.embed(ids, epoch, watched=self._watched))}

    def _learn(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """From the batch that was embedded last, or, where the run is pipelined, from the oldest not learned from."""
        gradient = content["gradient"]
        self._tie("learn", gradient)
        if self._pipelined:
            watched = content["watched"] is True
            self._begin(*self.party.catch_up(watched=watched), watched=watched)
        notes = () if gradient is None else self._learned(gradient)
        return {"notes": list(notes), "stopped": self.party.stopped}

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

    def _begin(self, ids: Tensor, epoch: int, *, watched: bool) -> None:
        """The batch from which it learns next."""
        self._ids, self._gradient, self._watched = ids, None, watched
        if self._recorder is not None:
            self._recorder.begin(epoch)

    def _learned(self, content: Any) -> tuple[str, ...]:
        """Raises UserError for gradients of other layers, rows or widths than it sent."""
        if self._ids is None or self._gradient is not None:
            raise UserError("a gradient came without an embedding that it belongs to", key="engine")
        try:
            gradient = message_of(content, LABEL_PARTY, self.party.name, Kind.GRADIENT, self._ids, self._widths)
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
        return {"message": content_of(self.party.predict(ids))}

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
        self._ids = self._gradient = None
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


@dataclass
class PartyProcess:
    """The other end of a `Channel`: `handle(method, content)`.

    party: its name. experiment: built from the same options as the label party's; data and loggers are
    not used. table: returns the party's own rows. folder: where its checkpoints go. secret: mixed into all that is drawn
    here, empty where others may draw the same.
    """

    party: str
    experiment: Experiment
    table: Callable[[], OwnTable]
    folder: Path
    secret: bytes = b""

    def __post_init__(self) -> None:
        self.service: PartyService | None = None
        self._greeted: set[bool] = set()

    def handle(self, method: str, content: Content) -> Content:
        """`hello` comes first, and seats the party. Raises UserError."""
        if method == "hello":
            cheating = content.get("cheating") is True
            if self.secret and cheating in self._greeted:
                problem = (
                    f"party {self.party} has been greeted in this run; what leaks through its noise adds up with each start"
                )
                raise UserError(problem, key="engine")
            self.service = self._seated(content)
            self._greeted.add(cheating)
        if self.service is None and method == "forget":  # of a run that had been finished before
            PartyCheckpoints(self.folder, self.party).forget()
            return {}
        if self.service is None:
            raise UserError("the label party asks before it said hello", key="engine")
        return self.service.handle(method, content)

    def _seated(self, content: Mapping[str, Any]) -> PartyService:
        """Raises UserError where the other side is of another version."""
        version = content.get("version")
        if version != __version__:
            problem = f"it has vflbench {__version__} and the label party {version}; install the same at both"
            raise UserError(f"party {self.party}: {problem}", key="engine")
        classes, batch_size = (_count(content, name) for name in ("classes", "batch_size"))
        experiment = self.experiment if content.get("cheating") is True else self.experiment.honest
        settings = experiment.settings
        device, table = choose_device(settings.device), self.table()
        tune()
        set_threads(batch_size, experiment.model.width)
        generators = Generators(settings.seed, secret=self.secret)
        seating = party_seating(experiment, self.party, table, classes, generators, device)
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
        return PartyService(party, table, seating, self.folder, self._prepare, recorder, pipelined=pipelined)

    @staticmethod
    def _prepare() -> None:
        torch.set_flush_denormal(True)  # a setting of each thread


def _count(content: Mapping[str, Any], name: str) -> int:
    value = content.get(name)
    if type(value) is not int or not 1 <= value < 2**40:
        raise UserError(f"the label party doesn't say its {name}", key="engine")
    return value


def party_seating(
    experiment: Experiment, party: str, table: OwnTable, classes: int, generators: Generators, device: torch.device
) -> Seating:
    """A seating with the columns of one party, and no row."""
    none = torch.empty(0, dtype=torch.int64)
    features = Features(table.columns, torch.empty(0, len(table.columns.numeric)), torch.empty(0, 0, dtype=torch.int32))
    sizes = VerticalTable(none, {party: features}, none, classes)
    return Seating(
        table=sizes,
        rows=AlignedRows.of(sizes),
        model=experiment.model,
        optimizer=experiment.optimizer,
        wire=experiment.engine.wire(),
        defense=lambda: Chain(copy.deepcopy(experiment.defenses)),
        generators=generators,
        device=device,
        precision=experiment.settings.precision,
        adversaries=copy.deepcopy(experiment.adversaries),
    )
