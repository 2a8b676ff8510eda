"""Defenses of a party as a whole: they arrange its batches, and decide whether it learns from them."""

from collections.abc import Mapping

from torch import Tensor

from vflbench.defenses.base import Context, Defense, NonLabelDefense, changes
from vflbench.numerics.precision import in_full_precision


class Guards:
    """Those of the named defenses that have such a hook, one after the other. defenses: those of the party's cut layer."""

    def __init__(self, defenses: Mapping[str, Defense]):
        hooks = (NonLabelDefense.arrange, NonLabelDefense.learns)
        self.named: dict[str, NonLabelDefense] = {
            name: one
            for name, one in defenses.items()
            if isinstance(one, NonLabelDefense) and any(changes(one, hook) for hook in hooks)
        }

    @in_full_precision()
    def arrange(self, context: Context) -> Tensor | None:
        """(n,) places, one order after the other; None for no change."""
        places: Tensor | None = None
        for defense in self.named.values():
            order = defense.arrange(context)
            if order is not None:
                places = order if places is None else places[order]
        return places

    @in_full_precision()
    def learns(self, gradient: Tensor, context: Context) -> bool:
        """Whether all of them let it learn; each is asked."""
        answers = [defense.learns(gradient, context) for defense in self.named.values()]
        return all(answers)

    def notes(self) -> list[str]:
        return [note for defense in self.named.values() for note in defense.notes()]

    @property
    def stopped(self) -> str:
        return next((why for defense in self.named.values() if (why := defense.stopped)), "")
