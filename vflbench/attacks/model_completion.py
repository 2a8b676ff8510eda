"""Passive model completion: a head on the trained bottom model, fitted by MixMatch to a few rows whose labels are known."""

import math
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vflbench.attacks.base import Attack, Scores
from vflbench.messages.facts import ClassShares, Known, LocalModel
from vflbench.messages.threat import Threat, View
from vflbench.numerics.optim import AdamSteps, BareLinear
from vflbench.options import Concentration, Positive, Rate, Rows, Steps, Weight, options

_KEPT = 0.999  # of the averaged weights, a step
_DECAY = 0.02  # of the weights, a step, times lr


@options
class ModelCompletion(Attack):
    """Complete the party's own bottom model by an inference head, trained on k labelled rows and many without a label.

        z = W relu(norm(h)) + b,   norm: batch normalisation,   h: (n, d) the bottom model's output at the cut
        q = sharpen(softmax z(h_u)),   sharpen(p)_c = p_c^(1 / temperature) / sum_c' p_c'^(1 / temperature)
        h'_i = l h_i + (1 - l) h_j,   t'_i = l t_i + (1 - l) t_j,   l = max(l', 1 - l'),   l' ~ Beta(alpha, alpha)
        L = - mean_x sum_c t'_c log softmax(z')_c + weight (s / steps) mean_u,c (softmax(z')_c - t'_c)^2

    A step s takes a minibatch x of the known rows, with targets t one-hot, and as many others u with targets q, two at
    least; j is a permutation of all of them. W starts at ones, which no class prefers. Scores are logits of the head
    whose weights are an average over the steps: log odds (n,) for two classes, (n, K) for more.

    known: rows whose labels it knows. steps, lr: of Adam. minibatch: rows with and without a label of a step. weight: of
    the loss on rows without a label, at the last step. Of the class shares it reads only how many there are.

    What differs from the authors' code: h has the width of the cut (theirs on Criteo 4). The bottom model is frozen, as
    theirs is on Criteo; they also train it on pictures. Rows are mixed at the cut, and not at the input, because
    categories can't be mixed there. The head normalises known and other rows in one batch; theirs interleaves two. The
    last head counts; theirs is the one whose accuracy on the true labels of all rows is best. Known rows are drawn at
    random, and not equally many of each class. As theirs on tables, it has no augmentation. Their Adam decays the
    running mean and variance of the normalisation too.

    Source: Fu et al., "Label inference attacks against vertical federated learning", USENIX Security 2022, section 4, with
    the settings of their repository FuChong-cyber/label-inference-attacks on Criteo; Berthelot et al., "MixMatch: A holistic
    approach to semi-supervised learning", NeurIPS 2019.
    """

    max_classes: ClassVar[float] = math.inf

    known: Rows = 100
    steps: Steps = 4500
    minibatch: Rows = 100
    lr: Rate = 0.002
    temperature: Positive = 0.8
    alpha: Concentration = 0.75
    weight: Weight = 50.0

    @property
    def threat(self) -> Threat:
        return Threat(knows={LocalModel, ClassShares}, known_rows=self.known)

    def epoch(self, view: View) -> Scores | None:
        known, classes = view[Known], len(view[ClassShares].shares)
        if not len(known.ids) or not len(view.ids):
            return None
        layers = view[LocalModel].embed(torch.cat([known.ids, view.ids]))
        layer = list(layers)[-1]  # the cut
        h, targets = layers[layer].cpu().float(), F.one_hot(known.labels.cpu(), classes).float()
        seed = int(torch.randint(2**62, (1,), generator=view.rng, device=view.rng.device))
        with torch.enable_grad():
            head = self._trained(h[: len(targets)], targets, h[len(targets) :], np.random.default_rng(seed))
        with torch.no_grad():
            logits = head(h[len(targets) :])
        return Scores(view.ids, {layer: logits[:, 1] - logits[:, 0] if classes == 2 else logits})

    def _trained(self, known: Tensor, targets: Tensor, rows: Tensor, rng: np.random.Generator) -> nn.Module:
        """The averaged head, in its mode of use. known: (k, d). targets: (k, K). rows: (n, d)."""
        head, averaged = (_head(known.shape[1], targets.shape[1]) for _ in range(2))
        both = zip(averaged.state_dict().values(), head.state_dict().values(), strict=True)
        pairs = [(mean, value) for mean, value in both if value.is_floating_point()]
        optimizer, size = AdamSteps(head.parameters(), lr=self.lr), min(self.minibatch, len(known))
        for step in range(self.steps):
            labelled = torch.from_numpy(rng.permutation(len(known))[:size])
            others = torch.from_numpy(rng.integers(len(rows), size=max(2, size)))  # one has no variance
            with torch.no_grad():
                guessed = torch.softmax(F.log_softmax(head(rows[others]), dim=1) / self.temperature, dim=1)
            mixed, mixed_targets = _mixed(
                torch.cat([known[labelled], rows[others]]), torch.cat([targets[labelled], guessed]), self.alpha, rng
            )
            logs = F.log_softmax(head(mixed), dim=1)
            supervised = -(mixed_targets[:size] * logs[:size]).sum(dim=1).mean()
            consistent = (logs[size:].exp() - mixed_targets[size:]).square().mean()
            optimizer.zero_grad()
            (supervised + self.weight * step / self.steps * consistent).backward()
            optimizer.step()
            with torch.no_grad():
                for mean, value in pairs:
                    mean.lerp_(value, 1 - _KEPT)
                for weights in head.parameters():
                    weights.mul_(1 - _DECAY * self.lr)
        return averaged.eval()


def _head(width: int, classes: int) -> nn.Sequential:
    last = BareLinear(width, classes)
    nn.init.ones_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.BatchNorm1d(width), nn.ReLU(), last)


def _mixed(h: Tensor, targets: Tensor, alpha: float, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Each row and its target mixed with another one's, and closer to the row itself."""
    share = rng.beta(alpha, alpha)
    share, order = max(share, 1 - share), torch.from_numpy(rng.permutation(len(h)))
    return share * h + (1 - share) * h[order], share * targets + (1 - share) * targets[order]
