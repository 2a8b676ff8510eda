"""What the defenses of a run did to the size of numbers, kept so that a run that diverges can say which one was to blame."""

import torch
from torch import Tensor

from vflbench.messages.codec import Encoded


class Trace:
    """Nothing is read before it is asked for: all that a message costs is a few numbers on its device.

    sizes: name of a defense -> how many times as large it made the largest number of a message, which counts for no less
    than that of the first message; or the largest loss or penalty that it gave, beside what it was computed from. flags:
    whether it made numbers that are not finite of finite ones.
    """

    def __init__(self) -> None:
        self.sizes: dict[str, Tensor] = {}
        self._first: dict[tuple[str, tuple[int, ...]], Tensor] = {}
        self.flags: dict[str, Tensor] = {}

    @torch.no_grad()
    def change(self, name: str, before: Tensor | Encoded, after: Tensor | Encoded) -> None:
        """A message before and after a defense."""
        if isinstance(before, Encoded) or isinstance(after, Encoded) or not before.numel() or not after.numel():
            return
        given, left = before.abs().amax(), after.abs().amax()
        usual = torch.fmax(given, self._first.setdefault((name, tuple(before.shape[1:])), given)).clamp_min(1e-30)
        self._note(name, left / usual, given.isfinite() & ~left.isfinite())

    @torch.no_grad()
    def given(self, name: str, value: Tensor | float, inputs: tuple[Tensor, ...]) -> None:
        """A loss or a penalty of a defense, of these inputs."""
        if isinstance(value, Tensor) and inputs and all(x.numel() for x in inputs):
            given, left = torch.stack([x.abs().amax() for x in inputs]).amax(), value.detach().abs()
            self._note(name, left / (1 + given), given.isfinite() & ~left.isfinite())

    def _note(self, name: str, size: Tensor, broke: Tensor) -> None:
        size = size.double()
        self.sizes[name] = torch.fmax(self.sizes[name], size) if name in self.sizes else size
        self.flags[name] = self.flags[name] | broke if name in self.flags else broke

    @property
    def broke(self) -> set[str]:
        return {name for name, flag in self.flags.items() if bool(flag)}

    def size(self, name: str) -> float:
        """0 where nothing is known."""
        size = self.sizes.get(name)
        return 0.0 if size is None or bool(size.isnan()) else float(size)
