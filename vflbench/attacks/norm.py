"""Norm attack: rows of the rarer class have longer gradients."""

from collections.abc import Mapping

from torch import Tensor

from vflbench.attacks.base import Attack
from vflbench.messages.transcript import Knowledge, View
from vflbench.messages.wire import Kind
from vflbench.options import options


@options
class Norm(Attack):
    """Score each row by the length of its gradient, at every layer of the non-label party.

        r_i = |g_i|_2

    With a logistic loss |g_i| is |p_i - y_i| times a factor of the network, and while a model is unsure of its rare
    positives |p_i - 1| > |p_i - 0|: positives get the longer gradients.

    Source: Li et al., "Label Leakage and Protection in Two-party Split Learning", ICLR 2022, section 3.1.
    """

    knows = frozenset({Knowledge.GRADIENTS})
    scores = Kind.GRADIENT

    def infer(self, view: View) -> Mapping[str, Tensor]:
        return {layer: g.double().norm(dim=1) for layer, g in view.gradients.items()}
