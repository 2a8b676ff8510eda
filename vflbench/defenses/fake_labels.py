"""More classes than there are, gradients of one length, and noise on the labels: after the idea of SecDT."""

from typing import Annotated, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from vflbench.defenses.base import Context, LabelDefense
from vflbench.defenses.label_noise import soft_loss
from vflbench.errors import UserError
from vflbench.options import Range, ShareOrZero, Width, options


@options
class FakeLabels(LabelDefense):
    """Training on more classes than there are, with noise on their labels and gradients of one length. Falls to
    `fake_classes`, which needs no label, from gradients at the cut.

        t = (1 - mu) onehot(f) + mu softmax(z),   f ~ uniform on F_y,   z ~ N(0, I),   L = CE(softmax(logits), t)
        g'_i = g_i s / |g_i|,                     s: min, mean or max of the batch's |g_j|
        P(y = c) = sum_(f in F_c) softmax(logits)_f

    K = width outputs; a random partition, drawn at the first batch, gives each class its fake classes F_c, as many as the
    others or one more. f and z are drawn anew each time. A zero row of a gradient stays zero.

    mu: share of the noise; 0 is no noise. standard: the length that gradients get. The defense promises nothing. Other
    defenses get the fake classes.

    Source: ours, after the idea of SecDT (Jiang, Wang, Lin, Huang and Cheng, "Training on Fake Labels: Mitigating Label
    Leakage in Split Learning via Secure Dimension Transformation", 2024, arXiv:2410.09125), by its abstract and published
    reviews: a mapping of labels to more classes and back, gradients scaled to one L2 norm a batch, softmax of Gaussian noise
    times mu on labels. The paper's own weights of the mapping, its standard norm and its scale of the noise are not known to
    us, so that what is read here says nothing about the published defense.
    """

    width: Annotated[Width, Range(3, 10**4)] = 8
    mu: ShareOrZero = 0.3
    standard: Literal["min", "mean", "max"] = "mean"

    def __post_init__(self) -> None:
        self._classes = 2
        self._order: list[int] = []  # of fake classes: place i belongs to class i mod K
        self._noise = torch.empty(0, 0)

    def outputs(self, classes: int) -> int:
        self._classes = max(2, classes)
        if self.width <= self._classes:
            problem = f"it must be more than the number of classes, {self._classes}"
            raise UserError(problem, key="defense.fake_labels.width", value=self.width)
        return self.width

    def labels(self, y: Tensor, logits: Tensor, context: Context) -> Tensor:
        """(n,) fake classes. y: (n,) classes; logits: (n, width)."""
        rng = context.rng
        if int(y.max()) >= self._classes:
            problem = f"it got labels beyond the {self._classes} classes from a defense before it; put it before that one"
            raise UserError(problem, key="defense", value="fake_labels")
        if not self._order:
            self._order = torch.randperm(self.width, generator=rng, device=rng.device).tolist()
        self._noise = torch.randn(len(y), self.width, generator=rng, device=rng.device).to(y.device).softmax(dim=1)
        order = torch.tensor(self._order, device=y.device)
        sizes = (self.width - 1 - y) // self._classes + 1
        u = torch.rand(len(y), generator=rng, device=rng.device, dtype=torch.float64).to(y.device)
        return order[y + self._classes * (u * sizes).long()]

    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """y: (n,) fake classes, of the batch that `labels` was given last."""
        target = (1 - self.mu) * F.one_hot(y, self.width) + self.mu * self._noise
        return soft_loss(logits, target)

    def prediction(self, logits: Tensor) -> Tensor:
        """Logits of the classes: log of the sum of e^logit over the fake classes of each."""
        order = self._order or list(range(self.width))
        per_class = [logits[:, order[c :: self._classes]].logsumexp(dim=1) for c in range(self._classes)]
        joined = torch.stack(per_class, dim=1)
        return joined[:, 1:] - joined[:, :1] if self._classes == 2 else joined

    def gradient(self, g: Tensor, y: Tensor, context: Context) -> Tensor:
        """g: (n, d)."""
        length = g.norm(dim=1, keepdim=True)
        return torch.where(length > 0, g * (getattr(length, self.standard)() / length), g)
