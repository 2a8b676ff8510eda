"""Handwritten digits, from scikit-learn."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from vflbench.data.pictures import Pictures, PictureSet
from vflbench.options import options


@options
class Digits(Pictures):
    """Handwritten digits: 1,797 pictures of 8 x 8 grey pixels, 10 classes. Part of scikit-learn.

    Source: Alpaydin and Kaynak, "Optical Recognition of Handwritten Digits", UCI, 1998.
    """

    def pictures(self) -> tuple[PictureSet, dict[str, Any]]:
        table = read_table()
        return PictureSet(table[:, :64].reshape(-1, 8, 8), table[:, 64].astype(int), classes=10, white=16.0), {}


def read_table() -> np.ndarray:
    """(1797, 65): pixels, then the class. Read as scikit-learn does, but without importing it, which takes a second."""
    spec = find_spec("sklearn")
    for place in (spec.submodule_search_locations or []) if spec is not None else []:
        file = Path(place) / "datasets" / "data" / "digits.csv.gz"
        if file.exists():
            return np.loadtxt(file, delimiter=",")
    from sklearn.datasets import load_digits  # keeps its files elsewhere

    bunch = load_digits()
    return np.column_stack([bunch.data, bunch.target])
