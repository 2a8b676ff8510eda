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
from vflbench.data.table import LABEL_PARTY, Columns, Features, VerticalTable
from vflbench.defenses.chain import Chain
from vflbench.errors import UserError
from vflbench.generators import Generators
from vflbench.messages import recording_format as files
from vflbench.messages.serialize import Content, content_of, encode, message_of
from vflbench.messages.wire import Kind, Message
from vflbench.protocols.parties import ProtocolSetup
from vflbench.protocols.split import Split, facts_of_non_label_party, features_of, in_place
from vflbench.run.checkpoint import Checkpoint
from vflbench.run.recording import ROUNDS
from vflbench.run.settings import choose_device, set_threads, tune
from vflbench.run.setup import Experiment

_TIMES = 4
"""So often each row may be in one request: rows of several uses are asked for together."""

METHODS = ("embed", "learn", "predict", "figures", "save", "resume")
"""What the label party may ask for once it said hello."""

KEPT = 2
"""Checkpoints that a party keeps: the label party may have failed to write the one that belongs to the newest."""


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
        self._greeted: set[bool] = set()

    def handle(self, method: str, content: Content) -> Content:
        """`hello` comes first, and builds the party. Raises UserError for what was not agreed."""
        try:
            if method == "hello":
                return self._hello(content)
            if method == "forget":  # also of a run that had been finished before
                self._forget()
                return {}
            if not self._greeted:
                raise UserError("the label party asks before it said hello", key="engine")
            if method not in METHODS:
                raise UserError(f"the label party asks for {method!r}, which this version doesn't know", key="engine")
            torch.set_flush_denormal(True)  # a setting of each thread, and an engine has several
            with self._autocast:
                answer: dict[str, Any] = getattr(self, f"_{method}")(content)
                return answer
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
        columns = self._build(self.experiment if cheating else self.experiment.honest, classes, batch_size)
        self._greeted.add(cheating)
        return {
            "numeric": list(columns.numeric),
            "categorical": list(columns.categorical),
            "cardinalities": list(columns.cardinalities),
            "layers": list(self.local_party.layers),
            "sends": list(self.local_party.sends),
            "widths": list(self._widths.values()),
            "guarded": bool(self.local_party.guards.guards),
            "rows": self._rows,
        }

    def _build(self, experiment: Experiment, classes: int, batch_size: int) -> Columns:
        """Returns the columns of this party, which are all that it has of the table, and no row."""
        settings, table = experiment.settings, self.table()
        tune()
        set_threads(batch_size, experiment.model.width)
        none = torch.empty(0, dtype=torch.int64)
        features = Features(table.columns, torch.empty(0, len(table.columns.numeric)), torch.empty(0, 0, dtype=torch.int32))
        sizes = VerticalTable(none, {self.party: features}, none, classes)
        setup = ProtocolSetup(
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
        cheating = {adversary.party: adversary for adversary in setup.adversaries.values()}
        outputs = setup.defense().outputs(1 if classes == 2 else classes)
        party = Split().non_label_party(self.party, table.lookup, outputs, setup, cheating.get(self.party))
        pipelined = bool(getattr(experiment.protocol, "staleness", 0))
        if pipelined and (party.guards.guards or party.adversary is not None):
            problem = f"party {self.party} has to see each answer before it goes on"
            raise UserError(problem, key="protocol.staleness", value=1)
        self.local_party, self._widths, self._rows, self._pipelined = party, party.widths(outputs), len(table), pipelined
        self._generators, self._device, self._autocast = setup.generators, setup.device, setup.autocast()
        self._classes, self._batch_size, self._record_option = classes, batch_size, settings.record
        self._recording_begun = False
        self._ids: Tensor | None = None  # of the batch from which it learns next
        self._gradient: Message | None = None  # of this batch, once it came
        self._watched, self._epoch, self._step = False, 0, -1
        self._history = b""  # a digest of all that it was asked, where it has a secret
        return table.columns

    def _embed(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Where the run is pipelined, before it has learned from the batch before."""
        ids, epoch = self._row_ids(content["ids"]), content["epoch"]
        if type(epoch) is not int or not 0 <= epoch < 10**6:
            raise UserError("the label party says an epoch that is none", key="engine")
        self._tie("embed", {"ids": ids, "epoch": epoch})
        if self._pipelined:
            return {"message": content_of(self.local_party.embed_ahead(ids, epoch))}
        self._begin(ids, epoch, watched=content["watched"] is True)
        return {"message": content_of(self.local_party.embed(ids, epoch, watched=self._watched))}

    def _learn(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """From the batch that was embedded last, or, where the run is pipelined, from the oldest not learned from."""
        gradient = content["gradient"]
        self._tie("learn", gradient)
        if self._pipelined:
            watched = content["watched"] is True
            self._begin(*self.local_party.catch_up(watched=watched), watched=watched)
        notes = () if gradient is None else self._learned(gradient)
        return {"notes": list(notes), "stopped": self.local_party.stopped}

    def _tie(self, what: str, content: Any, *, lasting: bool = True) -> None:
        """Where the party has a secret, what it draws next depends on all that it was asked: a label party that starts it
        anew, or has it go back to a checkpoint, can't have the same noise put on something else. lasting: whether the same
        holds of what is drawn after the next request.
        """
        if not self.secret:
            return
        history = hashlib.sha512(self._history + encode({"what": what, "content": content})).digest()
        self._generators.tie(history)
        if lasting:
            self._history = history

    def _begin(self, ids: Tensor, epoch: int, *, watched: bool) -> None:
        self._ids, self._gradient, self._watched = ids, None, watched
        self._step = self._step + 1 if epoch == self._epoch else 0
        self._epoch = epoch

    def _learned(self, content: Any) -> Sequence[str]:
        """Lines for the log. Raises UserError for gradients of other layers, rows or widths than it sent."""
        if self._ids is None or self._gradient is not None:
            raise UserError("a gradient came without an embedding that it belongs to", key="engine")
        try:
            self._gradient = message_of(content, LABEL_PARTY, self.party, Kind.GRADIENT, self._ids, self._widths)
        except (ValueError, RuntimeError) as error:
            raise UserError(f"the label party sends no gradient: {error}", key="engine") from error
        notes = self.local_party.learn(self._gradient)
        if self._record_option != "none" and self._watched:
            self._record(self._ids, self._gradient)
        return notes

    def _record(self, ids: Tensor, gradient: Message) -> None:
        """Write what the party knows of a batch, which the label party watches, into `recording` in its folder.

        No label is in it, so `vflbench audit FOLDER --scores-only DIR` reads it; the label party then grades the scores.
        Rounds in which the party got no gradient are left out, and so is what an earlier run has left.
        """
        folder = self.folder / ROUNDS
        if not self._recording_begun:
            for path in (folder / files.MESSAGES).glob("*-*.safetensors"):
                path.unlink()
            layers = in_place(self.local_party.activations, self.local_party.layers)
            layout = files.PartyLayers({layer: h.shape[1] for layer, h in layers.items()}, self.local_party.sends)
            producer = f"party {self.party} of vflbench train, version {__version__}"
            complete = self._record_option == "messages"
            manifest = files.RecordingManifest(
                self._classes, {self.party: layout}, producer, batch_size=self._batch_size, complete=complete
            )
            files.write_manifest(folder, manifest)
            self._recording_begun = True
        known = facts_of_non_label_party(self.local_party, gradient, features_of(self.local_party, ids))
        tensors = {name: values for fact in known.values() for name, values in files.packed(fact).items()}
        files.write_batch_file(folder, self.party, ids.cpu(), tensors, epoch=self._epoch, step=self._step)

    def _row_ids(self, ids: Any) -> Tensor:
        """(n,) ids of rows that the party has. Raises UserError for anything else."""
        if not isinstance(ids, Tensor) or ids.dtype is not torch.int64 or ids.ndim != 1:
            raise UserError("the label party asks for rows that are none", key="engine")
        if len(ids) > _TIMES * self._rows:
            raise UserError("the label party asks for the same rows many times at once", key="engine")
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < self._rows:
            problem = f"the label party asks for rows that party {self.party} doesn't have: it has {self._rows:,}"
            raise UserError(problem, key="engine")
        return ids.to(self._device)

    def _predict(self, content: Mapping[str, Any]) -> dict[str, Any]:
        ids = self._row_ids(content["ids"])
        self._tie("predict", ids, lasting=False)
        return {"message": content_of(self.local_party.predict(ids))}

    def _figures(self, content: Mapping[str, Any]) -> dict[str, Any]:
        return {"figures": {one.layer: dict(one.values) for one in self.local_party.figures() if one.values}}

    def _save(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Keep all that it takes to go on from here, under a name that the label party writes down, and forget the oldest.
        Raises UserError for what no checkpoint can hold.
        """
        state = {"history": self._history.hex(), "party": self.local_party.state(), "generators": self._generators.state()}
        mark = secrets.token_hex(8)
        checkpoint = Checkpoint(self.folder / mark, "keep")
        checkpoint.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not checkpoint.save({**state, "recorder": {"epoch": self._epoch, "step": self._step}}):
            raise UserError(f"no checkpoint of party {self.party} can hold {checkpoint.refused}", key="checkpoint")
        self._forget(KEPT)
        return {"mark": mark}

    def _resume(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Raises UserError where there is no state of that name: the parties are then not at the same step."""
        mark = str(content["mark"])
        if len(mark) != 16 or not mark.isalnum():
            raise UserError("the label party names a checkpoint by what is no name", key="checkpoint", value=mark)
        state = Checkpoint(self.folder / mark, "keep").load()
        if state is None:
            problem = (
                f"party {self.party} has no checkpoint of the step at which the label party is, so the run can't go "
                "on; bring its folder of checkpoints back, or begin anew with overwrite=true"
            )
            raise UserError(problem, key="checkpoint")
        self._history = bytes.fromhex(state["history"])
        self.local_party.restore(state["party"])
        self._generators.restore(state["generators"])
        self._epoch, self._step = (int(state["recorder"][name]) for name in ("epoch", "step"))
        self._recording_begun = (self.folder / ROUNDS / files.MANIFEST).is_file()
        self._ids = self._gradient = None
        return {}

    def _forget(self, but: int = 0) -> None:
        """All checkpoints but so many of the newest; all, when the run is complete and nobody will go on from here."""
        kept = sorted(self.folder.glob("*/checkpoint.pt"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        for path in kept[but:]:
            path.unlink(missing_ok=True)
            path.parent.rmdir()


def _count(content: Mapping[str, Any], name: str) -> int:
    value = content.get(name)
    if type(value) is not int or not 1 <= value < 2**40:
        raise UserError(f"the label party doesn't say its {name}", key="engine")
    return value
