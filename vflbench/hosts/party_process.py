"""What the process of one non-label party is made of: its experiment, its table, and what answers the label party."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vflbench import __version__
from vflbench.data.rows import AlignedRows
from vflbench.data.table import Features, VerticalTable
from vflbench.defenses.chain import Chain
from vflbench.errors import UserError
from vflbench.generators import Generators
from vflbench.hosts.own_table import OwnTable
from vflbench.hosts.party_checkpoints import PartyCheckpoints
from vflbench.hosts.party_recorder import PartyRecorder
from vflbench.hosts.party_service import PartyService
from vflbench.messages.envelope import Content
from vflbench.protocols.base import Seating
from vflbench.protocols.split import Split
from vflbench.run.settings import choose_device, set_threads, tune
from vflbench.run.setup import Experiment


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
        if pipelined and (party.guards.named or party.adversary is not None):
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
