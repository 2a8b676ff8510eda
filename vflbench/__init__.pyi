"""The public API; see `__init__.py`."""

from vflbench.attacks.base import Attack as Attack, ClassCounts as ClassCounts, RebuiltBatch as RebuiltBatch, RebuiltRows as RebuiltRows, Scores as Scores
from vflbench.cli.api import train as train
from vflbench.data.base import Dataset as Dataset
from vflbench.defenses.base import Context as Context, Defense as Defense, LabelDefense as LabelDefense, NonLabelDefense as NonLabelDefense, ParticipantDefense as ParticipantDefense, WithheldError as WithheldError
from vflbench.errors import UserError as UserError
from vflbench.messages.facts import Auxiliary as Auxiliary, BatchHints as BatchHints, ClassHints as ClassHints, ClassShares as ClassShares, Compression as Compression, Embeddings as Embeddings, Fact as Fact, Gradients as Gradients, Known as Known, NoiseMean as NoiseMean, OwnColumns as OwnColumns, OwnModel as OwnModel, PeerModels as PeerModels, Predictions as Predictions, Queries as Queries, SummedGradients as SummedGradients, Updates as Updates
from vflbench.messages.message import Kind as Kind, Message as Message
from vflbench.messages.recording import Recording as Recording
from vflbench.messages.round import Round as Round
from vflbench.messages.threat import Seat as Seat, Threat as Threat
from vflbench.messages.view import Unavailable as Unavailable, Undeclared as Undeclared, View as View
from vflbench.models.base import Model as Model
from vflbench.models.optimizers.base import Optimizer as Optimizer
from vflbench.protocols.adversary import Adversary as Adversary
from vflbench.protocols.base import Protocol as Protocol
from vflbench.results import load as load
from vflbench.results.loggers.base import Logger as Logger
from vflbench.run.offline import AuditResult as AuditResult, audit as audit

__version__: str
