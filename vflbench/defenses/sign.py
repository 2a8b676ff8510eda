"""Sign: one bit for each coordinate of a gradient."""

from dataclasses import replace
from typing import Literal

from torch import Tensor

from vflbench.defenses.base import Context, Form, LabelDefense
from vflbench.messages.codec import Encoded, Grid
from vflbench.options import options


@options
class Sign(LabelDefense):
    """The signs of the coordinates of a gradient, times one length. Falls to `direct`, which needs no label and only one
    message.

        g'_ij = s_i sign(g_ij),   sign(0) = 1

    scale: with `row`, s_i is the mean of |g_ij| over the row, and a model trains as well as without a defense. With `batch`,
    s is the mean over the batch, so that all rows are equally long. Then the model learns next to nothing, and `direct`
    reads as much. s crosses as one float32 for each row or message, beside one bit for each coordinate. For coordinates that
    `top_k` left out, nothing is sent. What the signs lose is not sent later.

    It carries no guarantee: the gradient (p - y) J of a row has the signs of J for one class and the opposite signs for the
    other.

    Source: Bernstein et al., "signSGD: compressed optimisation for non-convex problems", ICML 2018; the scale: Karimireddy
    et al., "Error feedback fixes SignSGD and other gradient compression schemes", ICML 2019.
    """

    takes = frozenset({Form.REAL, Form.SPARSE})
    gives = Form.INTEGERS

    scale: Literal["row", "batch"] = "row"

    def gradient(self, g: Tensor | Encoded, y: Tensor, context: Context) -> Encoded:
        """g: (n, d)."""
        encoded = g if isinstance(g, Encoded) else Encoded(g.shape[1], g)
        magnitudes, codes = encoded.numbers.double().abs(), (encoded.numbers >= 0).long()
        if self.scale == "row":
            s = magnitudes.mean(dim=1, keepdim=True).float()
            return replace(encoded, numbers=codes, code=Grid(-s, 2 * s, 2, 1), announced=s[:, 0])
        s = magnitudes.mean().float()
        return replace(encoded, numbers=codes, code=Grid(-s.item(), 2 * s.item(), 2, 1), announced=s[None])
