"""The error of reconstructed features: (truth, answer) -> numbers."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from vflbench.metrics.reconstruction import psnr, share

_COLUMNS = 100
_TOLERANCE = 0.319
"""A number is right if it is off by no more standard deviations: the mean of a normal column is for 1/4 of the rows."""
_WINDOW = 7
"""Side of the SSIM window for pictures that are large enough."""


def mean_squared_error(truth: Tensor, answer: Tensor) -> float:
    """mean (x - x')^2 over rows and columns, in [0, 1]; nan if there are none."""
    return (truth.double() - answer.double()).square().mean().item() if truth.numel() else math.nan


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


def r_squared(truth: Tensor, answer: Tensor) -> Tensor:
    """1 - sum (x - x')^2 / sum (x - mean x)^2 per column: 1 is exact, 0 as good as the mean; nan for a constant column.

    truth, answer: (n, k). Returns (k,) float64.
    """
    truth, answer = truth.double(), answer.double()
    spread = (truth - truth.mean(dim=0)).square().sum(dim=0)
    return torch.where(spread > 0, 1 - (truth - answer).square().sum(dim=0) / spread, torch.nan)


def id_accuracy(truth: Tensor, answer: Tensor) -> Tensor:
    """Share of rows with the right id, per categorical column. truth, answer: (n, c). Returns (c,) float64."""
    return (truth == answer).double().mean(dim=0)


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
        return numeric.double() / self._scale.to(numeric.device)

    @property
    def _scale(self) -> Tensor:
        return torch.where(self.spread > 0, self.spread, 1.0).double()


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
    """R^2 by column (k,), and values of rows (n,) whose mean is that of the columns: of sum e / sum s about means E and S

    1 - mean_columns [e_i - (E / S) (s_i - S)] / S
    """
    error = (truth.double() - answer.double()).square()
    spread = (truth.double() - truth.double().mean(dim=0)).square()
    mean_error, mean_spread = error.mean(dim=0), spread.mean(dim=0)
    by_row = 1 - (error - mean_error / mean_spread * (spread - mean_spread)) / mean_spread
    return r_squared(truth, answer), torch.where(mean_spread > 0, by_row, torch.nan).nanmean(dim=1)


def _root_mean_square(off: Tensor) -> tuple[Tensor, Tensor]:
    """sqrt(M) by column (k,), M = mean off^2, and values of rows (n,) whose mean is that of the columns:

    mean_columns [sqrt(M) + (off_i^2 - M) / 2 sqrt(M)]
    """
    squared = off.square()
    mean = squared.mean(dim=0)
    root = mean.sqrt()
    by_row = torch.where(mean > 0, root + (squared - mean) / (2 * root), 0.0)
    return root, by_row.mean(dim=1)
