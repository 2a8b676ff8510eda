"""Labels of rows, collected batch by batch."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from vflbench.errors import UserError
from vflbench.messages.row_ids import row_ids


class CollectedLabels:
    """Each id once. Memory: the rows seen, and as many again."""

    def __init__(self, classes: int):
        self.classes = classes
        self._ids, self._labels = torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
        self._new: list[tuple[Tensor, Tensor]] = []
        self._new_rows = 0

    def __bool__(self) -> bool:
        return bool(len(self._ids) or self._new)

    def add(self, ids: Any, labels: Any) -> None:
        """ids, labels: (n,), or labels (n, 1). Raises UserError for what is no class, and for an id with two labels."""
        of_rows = torch.as_tensor(labels).detach()
        made = row_ids(ids, unique=False)
        if of_rows.shape not in ((len(made),), (len(made), 1)):
            raise UserError(f"there must be one label a row, ({len(made)},)", key="labels", value=tuple(of_rows.shape))
        of_rows = of_rows.flatten().clone()  # what is on another device stays there: a copy would wait for it
        self._new.append((made, self._classes(of_rows) if of_rows.is_cpu else of_rows))
        self._new_rows += len(made)
        if self._new_rows >= len(self._ids):
            self._merge()

    def rows(self) -> tuple[Tensor, Tensor]:
        """ids (n,), in order, and their labels (n,); int64."""
        self._merge()
        return self._ids, self._labels

    def _merge(self) -> None:
        if not self._new:
            return
        ids = torch.cat([self._ids, *(ids for ids, _ in self._new)])
        labels = torch.cat([self._labels, *(self._classes(labels) for _, labels in self._new)])
        self._new, self._new_rows = [], 0
        order = torch.from_numpy(np.argsort(ids.numpy()))  # several times as fast as torch's
        ids, labels = ids[order], labels[order]
        again = ids[1:] == ids[:-1]
        differ = (again & (labels[1:] != labels[:-1])).nonzero().flatten()
        if len(differ):
            row = int(differ[0])
            problem = f"it has the labels {int(labels[row])} and {int(labels[row + 1])}; a row has one label"
            raise UserError(problem, key="id", value=int(ids[row]))
        first = torch.cat([torch.ones(min(len(ids), 1), dtype=torch.bool), ~again])
        self._ids, self._labels = ids[first], labels[first]

    def _classes(self, labels: Tensor) -> Tensor:
        labels = labels.cpu()
        whole = labels.to(torch.int64)
        if labels.is_complex() or not bool(((whole == labels) & (whole >= 0) & (whole < self.classes)).all()):
            wrong = labels[(whole != labels) | (whole < 0) | (whole >= self.classes)][0].item()
            problem = f"labels are classes from 0 to {self.classes - 1}; `classes=` says how many there are"
            raise UserError(problem, key="label", value=wrong)
        return whole
