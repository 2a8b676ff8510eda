"""Adversary: what every entry of configs/adversary builds: a party that deviates from the protocol."""

import inspect
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from vflbench.defenses.base import Context
from vflbench.errors import UserError
from vflbench.messages.codec import Encoded
from vflbench.models.optimizers.base import Optimizer, Stepper
from vflbench.options import attributes, options, restore_attributes
from vflbench.protocols.parties import attach


@options
class Adversary:
    """A non-label party that cheats in split learning, while all other parties stay honest. Hooks are honest unless
    overridden.

    party: the one that cheats. Attributes beside the options that are tensors, numbers, strings, lists and dicts are saved,
    and restored when a run is resumed.
    """

    party: str = "a"

    def attach(self, network: nn.Module, optimizer: Optimizer) -> Stepper:
        """The optimiser of its own network. optimizer: the one that the parties agreed on."""
        return attach(optimizer, network)

    def embedding(self, layer: str, h: Tensor | Encoded, context: Context) -> Tensor | Encoded:
        """What it sends in place of h, (n, d), after its defenses; in training alone."""
        return h

    def gradient(self, layer: str, g: Tensor, h: Tensor, context: Context) -> Tensor:
        """The gradient that it learns from in place of g, the received one, (n, d). h: its activations, (n, d)."""
        return g

    def text(self) -> str:
        """What it does, for the threat line: the first sentence of the docstring."""
        return " ".join((inspect.getdoc(type(self)) or type(self).__name__).split("\n\n")[0].split())

    def state(self) -> dict[str, Any]:
        """What it keeps between batches."""
        return attributes(self)

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        restore_attributes(self, state)


def own_stepper(adversary: Adversary, network: nn.Module, optimizer: Optimizer) -> Stepper:
    """What `attach` returns. Raises UserError if it can't step."""
    stepper = adversary.attach(network, optimizer)
    if not all(hasattr(stepper, name) for name in ("zero_grad", "step", "state_dict", "load_state_dict")):
        raise _unusable(adversary, "attach", f"an optimiser, not {type(stepper).__name__}")
    return stepper


def usable_tensor(adversary: Adversary, hook: str, values: object, honest: Tensor) -> Tensor:
    """What a hook returned, without a graph. Raises UserError for anything but a tensor of the honest values' shape."""
    if not isinstance(values, Tensor) or values.shape != honest.shape:
        shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise _unusable(adversary, hook, f"a tensor of shape {tuple(honest.shape)}, not {shape}")
    return values.detach()


def usable_embedding(adversary: Adversary, values: object, honest: Tensor) -> Tensor | Encoded:
    """The same for an embedding, which may also be an `Encoded` of as many rows and coordinates."""
    if isinstance(values, Encoded):
        if (len(values.numbers), values.width) != tuple(honest.shape):
            raise _unusable(adversary, "embedding", f"an encoding of shape {tuple(honest.shape)}")
        return values
    return usable_tensor(adversary, "embedding", values, honest).float()


def _unusable(adversary: Adversary, hook: str, wanted: str) -> UserError:
    return UserError(f"its {hook} must return {wanted}", key="adversary", value=type(adversary).__name__)


def by_party(adversaries: Mapping[str, Adversary], parties: tuple[str, ...]) -> dict[str, Adversary]:
    """Party -> its adversary. parties: those that can cheat. Raises UserError for another one, or for two at one party."""
    seated: dict[str, Adversary] = {}
    for name, adversary in adversaries.items():
        if adversary.party not in parties:
            problem = f"there is no such non-label party; there are {', '.join(parties) or 'none in this protocol'}"
            raise UserError(problem, key=f"adversary.{name}.party", value=adversary.party)
        if adversary.party in seated:
            problem = "another adversary cheats at that party already"
            raise UserError(problem, key=f"adversary.{name}.party", value=adversary.party)
        seated[adversary.party] = adversary
    return seated
