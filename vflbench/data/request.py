"""What to prepare of which texts."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vflbench.data import store
from vflbench.data.files import Part
from vflbench.data.text import TextFormat

_READER = 2
"""Version of what is accepted as a row. Tables that were prepared by another are prepared again."""


@dataclass(frozen=True)
class Request:
    """What to prepare.

    parts: the texts, in the order of their rows. form: returns the layout; it may read the texts for that.
    classes: all labels, each with its rows, and the number of rows -> names of the classes, and the class of each label.
    options: everything a prepared table depends on besides the content of the texts. rows: limit on the number of good rows.
    skip: leave bad rows out; the preparation fails if their share exceeds `max_bad_fraction`.
    """

    parts: Sequence[Part]
    form: Callable[[], TextFormat]
    classes: Callable[[Mapping[str, int], int], tuple[list[str], np.ndarray]]
    options: Mapping[str, Any]
    rows: int | None = None
    skip: bool = False
    max_bad_fraction: float = 0.01

    def options_key(self) -> str:
        limits = [self.rows, self.skip, self.max_bad_fraction if self.skip else None]
        return json.dumps([store.VERSION, _READER, dict(self.options), limits], sort_keys=True, default=str)
