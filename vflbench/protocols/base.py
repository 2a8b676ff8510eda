"""Protocol: what every entry of configs/protocol builds: who owns what, and the order of messages in one round."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal
from typing import Protocol as Shape

import torch
from torch import Tensor

from vflbench.data.rows import AlignedRows, Batches, EncodedRows, TrainTest, choose_batch_size
from vflbench.data.table import Columns
from vflbench.defenses.chain import Figures
from vflbench.messages.facts import Fact
from vflbench.messages.threat import Facts, Role, Round
from vflbench.messages.wire import Wire
from vflbench.metrics.privacy import Sent
from vflbench.options import options
from vflbench.protocols.parties import ProtocolSetup, RemoteParty

NOTHING: frozenset[type[Fact]] = frozenset()
"""The facts of a round that nobody watches."""


class Rounds(Shape):
    """The rounds of one epoch, each as the ids of its rows."""

    @property
    def batch_size(self) -> int: ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Tensor]: ...


class Session:
    """Parties that were built and are ready for rounds. rows: by id. wire: the door between them. columns: of each party.
    labels_shared: as of its protocol.
    """

    labels_shared: ClassVar[bool] = False
    rows: AlignedRows
    wire: Wire
    columns: Mapping[str, Columns]

    def batches(self, table: EncodedRows, batch_size: int, rng: torch.Generator, epoch: int) -> Rounds:
        """The rounds of an epoch; the same generator state gives the same."""
        return Batches(table, batch_size, rng)

    def round(self, ids: Tensor, *, epoch: int = 0, step: int = 0, watch: frozenset[type[Fact]] = NOTHING) -> Round:
        """Train on these rows, and return what happened. watch: facts to collect, of every party; training is the same
        whatever is watched.
        """
        raise NotImplementedError

    def facts(self, ids: Tensor, watch: frozenset[type[Fact]]) -> Mapping[str, Facts]:
        """Facts of `watch` that each party knows about these rows between rounds: party -> facts."""
        return {}

    def predict(self, ids: Tensor) -> Tensor:
        """Logits of these rows: (n, 1) for two classes, (n, K) for K > 2."""
        raise NotImplementedError

    def roles(self) -> Mapping[Role, tuple[str, ...]]:
        """The parties in each role."""
        raise NotImplementedError

    def cut_layers(self) -> dict[str, tuple[str, ...]]:
        """Party -> its layers that cross, the cut layer first."""
        return {}

    def layers(self) -> dict[str, tuple[str, ...]]:
        """Party -> all layers of its network."""
        return {}

    def remote(self) -> Mapping[str, RemoteParty]:
        """The parties that live elsewhere."""
        return {}

    def claims(self) -> dict[tuple[str, str], Sent]:
        """(party, layer) -> what the defenses claim of each embedding that crosses."""
        return {}

    def figures(self) -> list[Figures]:
        """What the defenses counted and measured since the last call; only where there is something."""
        return []

    @property
    def stopped(self) -> str:
        """Why training ends with this batch, as a party takes no further part; empty if it goes on."""
        return ""

    @property
    def messages_per_row(self) -> int:
        """Most gradients about one row that any party gets in an epoch: one for each layer that crosses."""
        return 1

    def state(self) -> dict[str, Any]:
        """All that parties have learned and kept, in tensors, numbers, strings, lists and dicts. Tensors are not copied.

        Generators and the wire's traffic are saved beside it.
        """
        raise NotImplementedError

    def restore(self, state: dict[str, Any]) -> None:
        """Bring a session that has just been started to the state of another. Tensors are copied."""
        raise NotImplementedError


@options
class Protocol:
    """A way to train together. A subclass overrides `offers` and `start`.

    Attributes:
        roles: those that attackers and defenses can have.
        labels_shared: whether every party holds the labels, so that no message can leak any.
    """

    roles: ClassVar[frozenset[Role]] = frozenset({Role.NON_LABEL, Role.LABEL})
    labels_shared: ClassVar[bool] = False

    def offers(self, role: Role) -> frozenset[type[Fact]]:
        """The facts that this protocol supplies to an attacker in that role; the run supplies others, in any role."""
        raise NotImplementedError

    def round_size(self, wanted: int | Literal["auto"], data: TrainTest) -> int:
        """Rows of a round, for the option batch_size."""
        return choose_batch_size(wanted, len(data.train))

    def choose_epochs(self, wanted: int | Literal["auto"], data: TrainTest) -> int:
        """How many, for the option epochs."""
        return 2 if wanted == "auto" else wanted

    def start(self, setup: ProtocolSetup) -> Session:
        """Build the parties."""
        raise NotImplementedError
