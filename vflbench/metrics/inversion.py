"""The error of reconstructed features: (truth, answer) -> numbers."""

import math

import numpy as np
import torch
from torch import Tensor

from vflbench.metrics.reconstruction import share

_LEAST_MSE = 1e-10
_COLUMNS = 100
_WINDOW = 7
"""Side of the SSIM window for pictures that are large enough."""


def mean_squared_error(truth: Tensor, answer: Tensor) -> float:
    """mean (x - x')^2 over rows and columns, in [0, 1]; nan if there are none."""
    return (truth.double() - answer.double()).square().mean().item() if truth.numel() else math.nan


def psnr(mse: float) -> float:
    """10 log10(1 / mse) in dB, for values in [0, 1]; at most 100, reached at mse = 1e-10, so that means stay finite."""
    return math.nan if math.isnan(mse) else -10 * math.log10(max(mse, _LEAST_MSE))


def ssim(truth: Tensor, answer: Tensor) -> float:
    """Mean structural similarity of pictures by scikit-image, in windows of 7 x 7 pixels; 1 for equal pictures.

    truth, answer: (n, height, width) or (n, height, width, channels) in [0, 1]. For smaller pictures the window is the
    largest odd one that fits; nan if that is 1.
    """
    from skimage.metrics import structural_similarity  # takes half a second to import

    side = min(truth.shape[1:3])
    window = min(_WINDOW, side - (side + 1) % 2)
    if window < 3 or not len(truth):
        return math.nan
    axis = -1 if truth.ndim == 4 else None
    pairs = zip(truth.double().cpu().numpy(), answer.double().cpu().numpy(), strict=True)
    values = [structural_similarity(a, b, win_size=window, data_range=1.0, channel_axis=axis) for a, b in pairs]
    return float(np.mean(values))


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


def table_figures(
    truth: tuple[Tensor, Tensor], answer: tuple[Tensor, Tensor], names: tuple[tuple[str, ...], tuple[str, ...]]
) -> dict[str, float]:
    """mse, r2 and id_accuracy over all columns, then `r2:NAME` or `id_accuracy:NAME` per column if there are at most 100.

    truth, answer: numeric (n, k) and categorical (n, c); names: of their columns. r2 is the mean over columns that vary.
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
