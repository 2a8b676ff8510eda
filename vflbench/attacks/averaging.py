"""Averaging attack: noise that is drawn afresh in each epoch averages out."""

from typing import Literal

from torch.nn import functional as F

from vflbench.attacks.base import Answers, Attack, FollowedRows
from vflbench.attacks.cosine import Cosine
from vflbench.attacks.hints import Hints
from vflbench.attacks.norm import Norm
from vflbench.messages.facts import Gradients
from vflbench.messages.threat import Threat, View
from vflbench.options import Number, Rows, options

_HINTED = {"cosine": Cosine, "hints": Hints}


@options
class Averaging(FollowedRows, Attack):
    """Join the messages about a row over the epochs by its id, and score their mean with another attack.

        s_i = base(1/E sum_e g_i^(e)),   E the number of messages about row i so far

    This is the adaptive attack on every defense that adds fresh noise: after E epochs the noise has 1/E of its power. It
    follows the same rows through all epochs. At the end of each epoch it is scored on the messages so far.

    rows: number of rows that it follows, spread evenly over the training rows. They are scored in groups as large as a
    batch, at least five. Memory: rows x d float32 numbers for each layer of width d, 2.6 MB for a layer of width 128 at
    5,000 rows.
    base: the attack that scores the means. k: known positives of each group, for cosine and hints. The run draws them
    afresh each time, and they are not scored.

    Source: averages of Gaussian noise; Li et al., "Label Leakage and Protection in Two-party Split Learning", ICLR 2022, is
    about single messages.
    """

    rows: Rows = 4096
    base: Literal["norm", "cosine", "hints"] = "cosine"
    k: Number = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        self.follows = self.rows

    @property
    def threat(self) -> Threat:
        return self._scorer.threat

    @property
    def _scorer(self) -> Attack:
        return Norm() if self.base == "norm" else _HINTED[self.base](k=self.k)

    def observe(self, view: View) -> None:
        layers = view[Gradients].layers.items()  # and how many messages
        self.add(view.ids.cpu(), {layer: F.pad(g.cpu().float(), (0, 1), value=1.0) for layer, g in layers})

    def epoch(self, view: View) -> Answers:
        places = self.places(view.ids.cpu())
        means = {layer: sums[places, :-1] / sums[places, -1:].clamp_min(1) for layer, sums in self._tables.items()}
        return self._scorer.batch(view.passed_on(self.threat, Gradients(means)))  # on the CPU, wherever training runs
