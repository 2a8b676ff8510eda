"""The error of reconstructed features: whether a row is told from others, and a picture recognised."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vflbench.metrics.reconstruction import psnr, share
from vflbench.numerics.optim import AdamSteps, BareConv2d, BareLinear

_COLUMNS = 100
_TOLERANCE = 0.319
"""A number is right if it is off by no more standard deviations: the mean of a normal column is for 1/4 of the rows."""
_WINDOW = 7
"""Side of the SSIM window for pictures that are large enough."""


def mean_squared_error(truth: Tensor, answer: Tensor) -> float:
    """mean (x - x')^2 over rows and columns, in [0, 1]; nan if there are none."""
    return (truth.double() - answer.double()).square().mean().item()


def ssim(truth: Tensor, answer: Tensor) -> Tensor:
    """Structural similarity of each pair of pictures by scikit-image, in windows of 7 x 7 pixels; 1 for equal pictures.

    truth, answer: (n, height, width) or (n, height, width, channels) in [0, 1]. For smaller pictures the window is the
    largest odd one that fits; nan if that is 1. Returns (n,) float64.
    """
    from skimage.metrics import structural_similarity  # takes half a second to import

    side = min(truth.shape[1:3])
    window = min(_WINDOW, side - (side + 1) % 2)
    if window < 3:
        return torch.full((len(truth),), math.nan, dtype=torch.float64)
    axis = -1 if truth.ndim == 4 else None
    pairs = zip(truth.double().cpu().numpy(), answer.double().cpu().numpy(), strict=True)
    values = [structural_similarity(a, b, win_size=window, data_range=1.0, channel_axis=axis) for a, b in pairs]
    return torch.tensor(values, dtype=torch.float64)


@dataclass(frozen=True)
class Compared:
    """An answer held against the truth.

    figures: of the batch. rows: name -> (n,) values whose mean is the figure of that name. error: (n,) of each row, by which
    answers are compared.
    """

    figures: dict[str, float]
    rows: dict[str, Tensor]
    error: Tensor


@dataclass(frozen=True)
class TableColumns:
    """Names of the columns of a table, and the standard deviation of each numeric one; 0 for a constant column."""

    numeric: tuple[str, ...]
    categorical: tuple[str, ...]
    spread: Tensor

    def scaled(self, numeric: Tensor) -> Tensor:
        """(n, k) in standard deviations; a constant column as it is."""
        return numeric.double() / torch.where(self.spread > 0, self.spread, 1.0).double().to(numeric.device)


def compare_tables(truth: tuple[Tensor, Tensor], answer: tuple[Tensor, Tensor], columns: TableColumns) -> Compared:
    """truth, answer: numeric (n, k) and categorical (n, c).

    Figures over all columns, then `FIGURE:NAME` of each column if there are at most 100:

        mse                 mean (x - x')^2 of numeric columns, in [0, 1]
        r2                  mean over columns that vary of 1 - sum (x - x')^2 / sum (x - mean x)^2
        error_over_spread   mean over columns of sqrt(mean (x - x')^2) / standard deviation: about 1 for the mean row
        within_tolerance    share of numbers off by at most 0.319 standard deviations: 1/4 of a normal column by its mean
        id_accuracy         share of categories with the right id
        rows_right          share of rows with all numbers within tolerance and all ids right

    A row's error is the mean over columns of its squared error in standard deviations, or of 1 for a wrong id. Values of
    rows of r2 and error_over_spread are linear approximations about the figure, and have it as their mean.

    Source: Vero et al., "TabLeak", ICML 2023, for the tolerance.
    """
    figures: dict[str, float] = {}
    rows: dict[str, Tensor] = {}
    by_column: dict[str, Tensor] = {}
    right, losses = [], []
    if columns.numeric:
        r2, r2_rows = _r2(truth[0], answer[0])
        off = columns.scaled(truth[0]) - columns.scaled(answer[0])
        near = off.abs() <= _TOLERANCE + 1e-9
        error, error_rows = _root_mean_square(off)
        figures |= {"mse": mean_squared_error(truth[0], answer[0]), "r2": r2.nanmean().item()}
        figures |= {"error_over_spread": error.mean().item(), "within_tolerance": share(near)}
        rows |= {"mse": (truth[0].double() - answer[0].double()).square().mean(dim=1), "r2": r2_rows}
        rows |= {"error_over_spread": error_rows, "within_tolerance": near.double().mean(dim=1)}
        by_column |= {f"r2:{name}": value for name, value in zip(columns.numeric, r2, strict=True)}
        by_column |= {f"error_over_spread:{name}": value for name, value in zip(columns.numeric, error, strict=True)}
        right, losses = [near], [off.square()]
    if columns.categorical:
        same = truth[1] == answer[1]
        figures["id_accuracy"], rows["id_accuracy"] = share(same), same.double().mean(dim=1)
        by_column |= {f"id_accuracy:{name}": hits.double() for name, hits in zip(columns.categorical, same.T, strict=True)}
        right, losses = [*right, same], [*losses, (~same).double()]
    rows["rows_right"] = torch.cat(right, dim=1).all(dim=1).double()
    figures["rows_right"] = share(rows["rows_right"])
    if len(columns.numeric) + len(columns.categorical) <= _COLUMNS:
        figures |= {name: value.mean().item() for name, value in by_column.items()}
        rows |= {name: value for name, value in by_column.items() if value.ndim}
    return Compared(figures, rows, torch.cat(losses, dim=1).mean(dim=1))


def compare_pictures(truth: Tensor, answer: Tensor) -> Compared:
    """mse, psnr and ssim. truth, answer: (n, height, width) or (n, height, width, channels) in [0, 1].

    A row's error is its mean squared error.
    """
    error = (truth.double() - answer.double()).square().flatten(1).mean(dim=1)
    similar = ssim(truth, answer)
    mse = mean_squared_error(truth, answer)
    figures = {"mse": mse, "psnr": psnr(mse), "ssim": similar.mean().item() if len(similar) else math.nan}
    return Compared(figures, {"mse": error, "ssim": similar}, error)


def _r2(truth: Tensor, answer: Tensor) -> tuple[Tensor, Tensor]:
    """R^2 = 1 - sum e / sum s by column (k,), e = (x - x')^2, s = (x - mean x)^2: 1 is exact, 0 as good as the mean, nan for
    a constant column. And values of rows (n,) whose mean is that of the columns, about the means E and S:

        1 - mean_columns [e_i - (E / S) (s_i - S)] / S
    """
    error = (truth.double() - answer.double()).square()
    spread = (truth.double() - truth.double().mean(dim=0)).square()
    mean_error, mean_spread = error.mean(dim=0), spread.mean(dim=0)
    by_row = 1 - (error - mean_error / mean_spread * (spread - mean_spread)) / mean_spread
    by_column = torch.where(mean_spread > 0, 1 - error.sum(dim=0) / spread.sum(dim=0), torch.nan)
    return by_column, torch.where(mean_spread > 0, by_row, torch.nan).nanmean(dim=1)


def _root_mean_square(off: Tensor) -> tuple[Tensor, Tensor]:
    """sqrt(M) by column (k,), M = mean off^2, and values of rows (n,) whose mean is that of the columns:

    mean_columns [sqrt(M) + (off_i^2 - M) / 2 sqrt(M)]
    """
    squared = off.square()
    mean = squared.mean(dim=0)
    root = mean.sqrt()
    by_row = torch.where(mean > 0, root + (squared - mean) / (2 * root), 0.0)
    return root, by_row.mean(dim=1)


CANDIDATES = 20
"""Rows in a line-up: the true one and others of its class. By chance, a row is identified with probability 1/20."""


class LineUp:
    """For each row, its own true row among other rows of the same class, drawn at random.

        identified_i = [d(answer_i, true_i) < min_j d(answer_i, other_ij)],   other_ij of the class of i

    t candidates that share the first place count as 1/t. The true row and the others are drawn alike. So whatever is
    answered without information on the row beyond its class, however well it knows the data and this judge, is identified
    with probability 1/m among m candidates. For that, the others come from the training rows, as the true row does.

    rows: (n,) ids of the true rows. labels: (n,). pool_ids, pool_labels: (p,). eligible: (n, p) bool, who may stand beside
    whom; None for all. most: the first so many rows have a line-up.
    """

    def __init__(
        self,
        rows: tuple[Tensor, Tensor],
        pool: tuple[Tensor, Tensor],
        rng: torch.Generator,
        eligible: Tensor | None = None,
        most: int = 128,
    ):
        self.others: list[Tensor] = []
        """Of each row: places of the others in the pool."""
        for row, (name, label) in enumerate(zip(rows[0][:most], rows[1], strict=False)):
            may = (pool[1] == label) & (pool[0] != name)
            there = (may if eligible is None else may & eligible[row]).nonzero()[:, 0]
            chosen = torch.randperm(len(there), generator=rng)[: CANDIDATES - 1]
            self.others.append(there[chosen.to(there.device)])
        self.others += [torch.empty(0, dtype=torch.int64)] * (len(rows[0]) - len(self.others))

    @property
    def chance(self) -> Tensor:
        """(n,) probability of being identified without any message; nan for a row with nobody beside it."""
        sizes = torch.tensor([len(others) + 1.0 for others in self.others], dtype=torch.float64)
        return torch.where(sizes > 1, 1 / sizes, torch.nan)

    def identified(self, distances: Callable[[int], Tensor]) -> Tensor:
        """(n,) 1 where the true row is nearest, a part of 1 where it shares that place, else 0; nan with nobody beside it.

        distances: row -> (1 + m,), of its answer from the true row and then from the others, 0 at least.
        """
        shares = torch.full((len(self.others),), torch.nan, dtype=torch.float64)
        for row, places in enumerate(self.others):
            if len(places):
                far = distances(row).double()
                is_nearest = far <= far.min() * (1 + 1e-9) + 1e-18
                shares[row] = is_nearest[0].double() / is_nearest.sum()
        return shares


_STEPS, _BATCH, _RATE = 500, 64, 2e-3
_PLACES = 14


class Recogniser:
    """A small convolutional network, trained on whole true pictures and their classes.

        3 x 3 convolutions of 16 and 32 channels, each halving the picture -> ReLU layer of 64 -> logits

    pictures: (n, height, width) or (n, height, width, channels) in [0, 1]; labels: (n,) classes. Trained by 500 steps of
    Adam on batches of 64.
    """

    def __init__(self, pictures: Tensor, labels: Tensor, classes: int, rng: torch.Generator):
        x, labels = _planes(pictures).cpu(), labels.cpu()
        sides = [math.ceil(side / 4) for side in x.shape[2:]]
        self.network = nn.Sequential(
            BareConv2d(x.shape[1], 16, 3, stride=2, padding=1),
            nn.ReLU(),
            BareConv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            BareLinear(32 * sides[0] * sides[1], 64),
            nn.ReLU(),
            BareLinear(64, classes),
        )
        for weights in self.network.parameters():
            inputs = weights[0].numel() if weights.ndim > 1 else 0
            nn.init.normal_(weights, 0.0, math.sqrt(2 / inputs), generator=rng) if inputs else nn.init.zeros_(weights)
        optimizer = AdamSteps(self.network.parameters(), lr=_RATE)
        for step in range(_STEPS):
            chosen = torch.randint(len(x), (min(_BATCH, len(x)),), generator=rng)
            optimizer.param_groups[0]["lr"] = _RATE * (1 - step / _STEPS)
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(self.network(x[chosen]), labels[chosen]).backward()
            optimizer.step()

    @torch.no_grad()
    def hits(self, pictures: Tensor, labels: Tensor) -> Tensor:
        """(n,) 1 where the class of a picture is recognised, else 0; float64."""
        return (self.network(_planes(pictures).cpu()).argmax(dim=1) == labels.cpu()).double()

    @torch.no_grad()
    def features(self, pictures: Tensor) -> Tensor:
        """(n, d): what the network sees of a picture, so that squared distances are feature distances.

            d(x, x') = sum_l mean_places |f_l(x) / |f_l(x)| - f_l(x') / |f_l(x')||^2

        f_l: the channels at each place after convolution l and its ReLU; maps of more than 14 x 14 places are averaged over
        areas first. That is LPIPS with this network and without learned weights; 0 for equal pictures, 4 at most.

        Source: Zhang et al., "The unreasonable effectiveness of deep features as a perceptual metric", CVPR 2018, eq. 1.
        """
        maps, x = [], _planes(pictures).cpu()
        for layer in list(self.network)[:4]:
            x = layer(x)
            if isinstance(layer, nn.ReLU):
                small = F.adaptive_avg_pool2d(x, (min(x.shape[2], _PLACES), min(x.shape[3], _PLACES)))
                places = small.shape[2] * small.shape[3]
                maps.append(F.normalize(small, dim=1).flatten(1) / math.sqrt(places))
        return torch.cat(maps, dim=1)


def _planes(pictures: Tensor) -> Tensor:
    """(n, channels, height, width) float32."""
    return (pictures[:, None] if pictures.ndim == 3 else pictures.movedim(-1, 1)).float()
