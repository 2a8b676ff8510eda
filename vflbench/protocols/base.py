"""Protocol: what every entry of configs/protocol builds: the order of messages in one round."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal
from typing import Protocol as Shape

import torch
from torch import Tensor

from vflbench.data.batches import choose_batch_size, shuffled_batches
from vflbench.data.rows import EncodedRows, TrainTest
from vflbench.data.table import VerticalTable
from vflbench.defenses.base import Defense, Figures
from vflbench.generators import Generators
from vflbench.messages.transcript import Knowledge, Seat, Transcript
from vflbench.messages.wire import Wire
from vflbench.metrics.embedding_privacy import Sent
from vflbench.models.base import Model
from vflbench.models.optimizers.base import Optimizer
from vflbench.options import options


@dataclass(frozen=True)
class Setting:
    """What a protocol needs to seat its parties. defense: makes a fresh instance at each call.
    precision: of the products of the networks' layers. round_size: rows of a round.
    """

    table: VerticalTable | EncodedRows
    model: Model
    optimizer: Optimizer
    wire: Wire
    defense: Callable[[], Defense]
    generators: Generators
    device: torch.device
    precision: Literal["float32", "bf16"] = "float32"
    round_size: int = 0


@dataclass(frozen=True)
class Outcome:
    """One round: the mean loss of its batch, what the defenses added to it, and what is worth a line in the log.

    labels: (n,) that were trained on.
    """

    loss: float
    penalty: float
    labels: Tensor
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Private:
    """What an attack that rebuilds a batch is after: all rows of a round that others own.

    owner: their names. x: (m, d); y: (m,) in {-1, +1}; steps: (m,) the local step of the round that each row was in.
    """

    owner: str
    x: Tensor
    y: Tensor
    steps: Tensor


class Rounds(Shape):
    """The rounds of one epoch, each with the rows that are trained on."""

    batch_size: int

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[VerticalTable]: ...


class Session:
    """Parties that were seated and are ready for rounds."""

    def batches(self, table: EncodedRows, batch_size: int, rng: torch.Generator) -> Rounds:
        """The rounds of an epoch; the same generator state gives the same."""
        return shuffled_batches(table, batch_size, rng)

    def round(self, batch: VerticalTable, transcript: Transcript | None) -> Outcome:
        """Train on one batch; with a transcript, also write down who saw what. The numbers are the same either way."""
        raise NotImplementedError

    def predict(self, batch: VerticalTable) -> Tensor:
        """Logits (n, 1) for two classes, (n, K) for K > 2."""
        raise NotImplementedError

    def seats(self, seat: Seat) -> tuple[str, ...]:
        """The parties that sit at such a seat."""
        raise NotImplementedError

    def known_ids(self, batch: VerticalTable) -> Tensor:
        """(n,) ids of the rows that an attacker knows by name."""
        return batch.ids

    def private(self, batch: VerticalTable) -> Private:
        """The rows that an attack which rebuilds a batch is after."""
        raise NotImplementedError

    def claims(self) -> dict[tuple[str, str], Sent]:
        """(party, layer) -> what the defenses claim of each embedding that crosses."""
        return {}

    def figures(self) -> list[Figures]:
        """What the defenses counted and measured since they were last asked; only where there is something."""
        return []

    @property
    def messages_per_row(self) -> int:
        """Most gradients about one row that any party gets in an epoch: one a layer that crosses."""
        return 1

    def state(self) -> dict[str, Any]:
        """What the rounds so far have made of the parties, uncopied, in tensors, numbers, strings, lists and dicts.

        Generators and the wire's traffic are saved beside it.
        """
        raise NotImplementedError

    def restore(self, state: dict[str, Any]) -> None:
        """Put a session that has just been started where another stood; tensors are copied, not kept."""
        raise NotImplementedError


@options
class Protocol:
    """A way to train together. A subclass overrides `offers` and `start`. hooks: where a defense can stand."""

    hooks: ClassVar[tuple[str, ...]] = ("embedding", "labels", "loss", "penalty", "gradient")

    def offers(self, seat: Seat) -> frozenset[Knowledge]:
        """What an attacker at that seat can know."""
        raise NotImplementedError

    def round_size(self, wanted: int | Literal["auto"], data: TrainTest) -> int:
        """Rows of a round, for the option batch_size."""
        return choose_batch_size(wanted, len(data.train))

    def choose_epochs(self, wanted: int | Literal["auto"], data: TrainTest) -> int:
        """How many, for the option epochs."""
        return 2 if wanted == "auto" else wanted

    def start(self, setting: Setting) -> Session:
        """Build the parties."""
        raise NotImplementedError
