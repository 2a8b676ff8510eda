"""How near rebuilt features are to the true ones: (truth, answer) -> numbers."""

import math

import numpy as np
import torch
from torch import Tensor

from vflbench.metrics.reconstruction import share

_LEAST_MSE = 1e-10
_COLUMNS = 100
_WINDOW = 7
"""Side of the window in which SSIM compares pictures, if they are as large."""


def mean_squared_error(truth: Tensor, answer: Tensor) -> float:
    """mean (x - x')^2 over rows and columns, in [0, 1]; nan of nothing."""
    return (truth.double() - answer.double()).square().mean().item() if truth.numel() else math.nan


def psnr(mse: float) -> float:
    """10 log10(1 / mse) in dB, of numbers in [0, 1]; 100 where the error is 1e-10 or less, so that means stay finite."""
    return math.nan if math.isnan(mse) else -10 * math.log10(max(mse, _LEAST_MSE))


def ssim(truth: Tensor, answer: Tensor) -> float:
    """Mean structural similarity of pictures, 1 if they are alike, by scikit-image, in windows of 7 x 7 pixels.

    truth, answer: (n, height, width) or (n, height, width, channels) in [0, 1]. Of smaller pictures the window is the
    largest odd one that fits; nan where that is 1.
    """
    from skimage.metrics import structural_similarity  # takes half a second to import

    side = min(truth.shape[1:3])
    window = min(_WINDOW, side - (side + 1) % 2)
    if window < 3 or not len(truth):
        return math.nan
    axis = -1 if truth.ndim == 4 else None
    pairs = zip(truth.double().cpu().numpy(), answer.double().cpu().numpy(), strict=True)
    found = [structural_similarity(a, b, win_size=window, data_range=1.0, channel_axis=axis) for a, b in pairs]
    return float(np.mean(found))


def r_squared(truth: Tensor, answer: Tensor) -> Tensor:
    """Of each column 1 - sum (x - x')^2 / sum (x - mean x)^2: 1 is exact, 0 the mean, below that worse; nan of a constant.

    truth, answer: (n, k). Returns (k,) float64.
    """
    truth, answer = truth.double(), answer.double()
    spread = (truth - truth.mean(dim=0)).square().sum(dim=0)
    return torch.where(spread > 0, 1 - (truth - answer).square().sum(dim=0) / spread, torch.nan)


def id_accuracy(truth: Tensor, answer: Tensor) -> Tensor:
    """Of each categorical column the share of rows with the right id. truth, answer: (n, c). Returns (c,) float64."""
    return (truth == answer).double().mean(dim=0)


def table_figures(
    truth: tuple[Tensor, Tensor], answer: tuple[Tensor, Tensor], names: tuple[tuple[str, ...], tuple[str, ...]]
) -> dict[str, float]:
    """Figures of numeric and categorical columns: mse, r2 and id_accuracy over all columns, then `r2:NAME` and
    `id_accuracy:NAME` of each, if there are not more than 100. r2 is the mean over columns that vary.

    truth, answer: numeric (n, k) and categorical (n, c); names: of both.
    """
    figures: dict[str, float] = {}
    columns: dict[str, float] = {}
    if names[0]:
        r2 = r_squared(truth[0], answer[0])
        figures |= {"mse": mean_squared_error(truth[0], answer[0]), "r2": r2.nanmean().item()}
        columns |= {f"r2:{name}": value for name, value in zip(names[0], r2.tolist(), strict=True)}
    if names[1]:
        right = id_accuracy(truth[1], answer[1])
        figures |= {"id_accuracy": share(truth[1] == answer[1])}
        columns |= {f"id_accuracy:{name}": value for name, value in zip(names[1], right.tolist(), strict=True)}
    return figures | (columns if len(columns) <= _COLUMNS else {})


def picture_figures(truth: Tensor, answer: Tensor) -> dict[str, float]:
    """mse, psnr and ssim. truth, answer: (n, height, width) or (n, height, width, channels) in [0, 1]."""
    mse = mean_squared_error(truth, answer)
    return {"mse": mse, "psnr": psnr(mse), "ssim": ssim(truth, answer)}
