"""Handwritten digits, from scikit-learn."""

from typing import Any

from sklearn.datasets import load_digits

from vflbench.data.pictures import Pictures, PictureSet
from vflbench.options import options


@options
class Digits(Pictures):
    """Handwritten digits: 1,797 pictures of 8 x 8 grey pixels, 10 classes. Part of scikit-learn.

    Source: Alpaydin and Kaynak, "Optical Recognition of Handwritten Digits", UCI, 1998.
    """

    def pictures(self) -> tuple[PictureSet, dict[str, Any]]:
        bunch = load_digits()
        return PictureSet(bunch.images, bunch.target, classes=10, white=16.0), {}
