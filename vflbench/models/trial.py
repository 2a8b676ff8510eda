"""A module of a user's own is tried out before it is trained: does it fit, and which of its layers can be read?"""

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from vflbench.errors import UserError
from vflbench.models.base import WIDE, evaluating
from vflbench.models.own_modules import LOGITS, OwnBottom, OwnTop, explained, inner_name
from vflbench.models.taps import distinct
from vflbench.models.wrapped import CUT

Sample = Callable[[int], tuple[Tensor, ...]]
"""Number of rows -> what the module gets."""

Answer = tuple[dict[str, Tensor], dict[str, Tensor]]
"""What it returns by name, and what was read on the way."""


def settle(part: OwnBottom | OwnTop, sample: Sample, listed: Sequence[str] | None) -> None:
    """Settle which layers of a new module are read, and how wide a bottom's are.

    It is evaluated twice, which also gives lazy layers their weights; in between, a copy of it is trained on a few rows.
    Only what has numbers for each row in both modes is read. listed: the names that the user wants. Raises UserError where
    the module doesn't fit.
    """
    _evaluate(part, sample(2))
    part.taps.copied |= part.taps.changed
    for name, parameter in part.module.named_parameters():
        if is_lazy(parameter):
            raise part.refusal(f"its parameter {name} has no size, because its forward never calls the layer")
    trained, read_training = _train(part, sample(5))
    inputs = sample(2)
    evaluated, read = _evaluate(part, inputs)
    both = {name: values for name, values in read.items() if name in read_training}
    if listed is not None:
        if missing := [name for name in part.taps.names if name not in both]:
            problem = "it must put out floating-point numbers for each row, in training and in evaluation, and doesn't"
            raise UserError(problem, key="model.layers", value=missing[0])
        part.taps.names = tuple(both)
    else:
        by_name = list(evaluated) not in ([CUT], [LOGITS])  # a bottom that names its layers itself
        part.taps.names = () if by_name else distinct(both, [*inputs, *evaluated.values()])
    if isinstance(part, OwnBottom):
        widths, in_training = (_widths(part, answer) for answer in ((evaluated, read), (trained, read_training)))
        if widths != in_training:
            raise part.refusal(f"its layers have the widths {widths} in evaluation and {in_training} in training")
        part.widths = widths


def _widths(part: OwnBottom, answer: Answer) -> dict[str, int]:
    returned, read = answer
    layers = {**{inner_name(name): read[name] for name in part.taps.names}, **returned}
    return {layer: values.shape[1] for layer, values in layers.items()}


def _evaluate(part: OwnBottom | OwnTop, inputs: Sequence[Tensor]) -> Answer:
    with evaluating(part):
        return part.answer(*inputs)


def _train(part: OwnBottom | OwnTop, inputs: Sequence[Tensor]) -> Answer:
    """Forward and backward in a copy. What it changes in place is copied from now on."""
    is_bottom = isinstance(part, OwnBottom)
    key, kind = f"model.{'bottom' if is_bottom else 'top'}", type(part.module)
    with explained(key, kind, "copying it with copy.deepcopy"):
        copied = copy.deepcopy(part).train()
    if not is_bottom:
        inputs = [x.requires_grad_() for x in inputs]
    with torch.enable_grad():
        answer = copied.answer(*(x.clone() for x in inputs))  # a leaf couldn't be changed in place
        part.taps.copied |= copied.taps.changed
        layer, output = [(layer, values) for layer, values in answer[0].items() if layer != WIDE][-1]
        if not torch.isfinite(output).all():
            raise part.refusal(f"what it returns as {layer} isn't finite for five rows of random numbers")
        differentiable = [values.sum() for values in answer[0].values() if values.requires_grad]
        if not differentiable and any(parameter.requires_grad for parameter in part.module.parameters()):
            problem = f"no gradient goes through its {layer} to its parameters"
            raise part.refusal(f"{problem} (is it detached, or computed under no_grad?)")
        if differentiable:
            with explained(key, kind, "its backward pass"):
                torch.stack(differentiable).sum().backward()
    if not is_bottom and all(x.grad is None for x in inputs):
        raise part.refusal("no gradient of the logits reaches the embeddings, so that no bottom could learn")
    return answer
