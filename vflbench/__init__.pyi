"""The public API: `__init__.py` reads here which module has a name."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, overload

from vflbench.attacks.base import Attack as Attack
from vflbench.attacks.base import ClassCounts as ClassCounts
from vflbench.attacks.base import ColumnScores as ColumnScores
from vflbench.attacks.base import RebuiltBatch as RebuiltBatch
from vflbench.attacks.base import RebuiltRows as RebuiltRows
from vflbench.attacks.base import Scores as Scores
from vflbench.cli.audit import AuditReport as AuditReport
from vflbench.cli.train import train as train
from vflbench.data.base import Dataset as Dataset
from vflbench.defenses.base import Context as Context
from vflbench.defenses.base import Defense as Defense
from vflbench.defenses.base import LabelDefense as LabelDefense
from vflbench.defenses.base import NonLabelDefense as NonLabelDefense
from vflbench.defenses.base import ParticipantDefense as ParticipantDefense
from vflbench.defenses.base import WithheldError as WithheldError
from vflbench.errors import UserError as UserError
from vflbench.messages.facts import Auxiliary as Auxiliary
from vflbench.messages.facts import BatchHints as BatchHints
from vflbench.messages.facts import ClassHints as ClassHints
from vflbench.messages.facts import ClassShares as ClassShares
from vflbench.messages.facts import Compression as Compression
from vflbench.messages.facts import Embeddings as Embeddings
from vflbench.messages.facts import Fact as Fact
from vflbench.messages.facts import Gradients as Gradients
from vflbench.messages.facts import Known as Known
from vflbench.messages.facts import KnownColumn as KnownColumn
from vflbench.messages.facts import Labels as Labels
from vflbench.messages.facts import LocalModel as LocalModel
from vflbench.messages.facts import LocalTop as LocalTop
from vflbench.messages.facts import NoiseMean as NoiseMean
from vflbench.messages.facts import PartyFeatures as PartyFeatures
from vflbench.messages.facts import PeerArchitectures as PeerArchitectures
from vflbench.messages.facts import PeerModels as PeerModels
from vflbench.messages.facts import Predictions as Predictions
from vflbench.messages.facts import Queries as Queries
from vflbench.messages.facts import SummedGradients as SummedGradients
from vflbench.messages.facts import Updates as Updates
from vflbench.messages.recorder import Recording as Recording
from vflbench.messages.recorder import flush_labels as flush_labels
from vflbench.messages.recorder import write_batch as write_batch
from vflbench.messages.recordings import RecordedMessages as RecordedMessages
from vflbench.messages.threat import Role as Role
from vflbench.messages.threat import Round as Round
from vflbench.messages.threat import Threat as Threat
from vflbench.messages.threat import Unavailable as Unavailable
from vflbench.messages.threat import Undeclared as Undeclared
from vflbench.messages.threat import View as View
from vflbench.messages.wire import Kind as Kind
from vflbench.messages.wire import Message as Message
from vflbench.models.base import Model as Model
from vflbench.models.optimizers import Optimizer as Optimizer
from vflbench.protocols.adversaries import Adversary as Adversary
from vflbench.protocols.base import Protocol as Protocol
from vflbench.results.loggers import Logger as Logger
from vflbench.results.table import load as load
from vflbench.run.offline import AuditResult as AuditResult

__version__: str

@overload
def audit(recording: RecordedMessages | Path | str, attacks: Mapping[str, Attack], **options: Any) -> AuditResult: ...
@overload
def audit(
    *,
    labels: Any,
    embeddings: Any = None,
    gradients: Any = None,
    ids: Any = None,
    attack: str | Sequence[str] | None = None,
    seed: int | None = None,
    batches: int | str | None = None,
    probe: bool | None = None,
) -> AuditReport: ...
