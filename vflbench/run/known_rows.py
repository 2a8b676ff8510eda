"""The rows that attacks know or are asked about: their names, hints of a batch, known rows, rows that are followed."""

from typing import Protocol

import torch
from torch import Tensor

from vflbench.data.table import Features, VerticalTable
from vflbench.messages.facts import Known
from vflbench.numerics.mixing import mix, unmix
from vflbench.run.canaries import Canaries

USUALLY_KNOWN = 380
"""So many known rows are the same ones, however many of them the most curious attack knows."""

_SAMPLE = 20_000  # training rows among which known ones are drawn, at least, if there are as many


class Population(Protocol):
    """The training rows, in memory or not, or those of a recording."""

    @property
    def device(self) -> torch.device: ...

    @property
    def class_ratios(self) -> tuple[float, ...]: ...

    @property
    def classes(self) -> int: ...

    def __len__(self) -> int: ...

    def sample(self, wanted: int) -> VerticalTable: ...


class Lookup(Protocol):
    """What is known of rows, by their ids: of a data set, or of a recording."""

    @property
    def classes(self) -> int: ...

    def labels(self, ids: Tensor) -> Tensor:
        """(n,) classes."""
        ...

    def features(self, party: str, ids: Tensor) -> Features:
        """The party's own columns."""
        ...

    def rows(self, ids: Tensor) -> VerticalTable:
        """All columns of all parties, where there are any."""
        ...


class RowNames:
    """Names by which attackers tell rows apart. A name says nothing else about a row.

    Places in a file that is sorted by label would be the labels, so attackers see a keyed permutation of the row ids.
    """

    def __init__(self, rng: torch.Generator):
        self.key = int(torch.randint(2**62, (), generator=rng))

    @classmethod
    def keyed(cls, key: int) -> "RowNames":
        """The names that this key makes."""
        names = cls.__new__(cls)
        names.key = key
        return names

    def of(self, ids: Tensor) -> Tensor:
        """(n,) names of these rows."""
        return mix(ids, self.key)

    def ids(self, names: Tensor) -> Tensor:
        """(n,) ids of the rows with these names."""
        return unmix(names, self.key)


def draw_positives(labels: Tensor, canary: Tensor, count: int, rng: torch.Generator) -> Tensor:
    """Places of at most so many positives, canaries aside, drawn at random. labels, canary: (n,)."""
    positives = ((labels != 0) & ~canary).nonzero()[:, 0].cpu()
    return positives[torch.randperm(len(positives), generator=rng)[:count]]


def draw_one_of_each(labels: Tensor, classes: int, rng: torch.Generator) -> Tensor:
    """(K,) the place of one row of each class, drawn at random; empty if a class has no row. labels: (n,) on the CPU."""
    order = torch.randperm(len(labels), generator=rng)
    is_class = labels[order] == torch.arange(classes)[:, None]
    return order[is_class.int().argmax(dim=1)] if bool(is_class.any(dim=1).all()) else order[:0]


class KnownRows:
    """Training rows whose labels attackers know during the whole run, in a random order; an attack knows the first so many.

    Canaries are not among them. Up to 380 of them are the same however many any attack knows, so that no attack changes what
    another one reads. The first K rows are of K different classes, as far as the sample has them, so that few known rows
    show every class.
    """

    def __init__(self, train: Population, most: int, rng: torch.Generator, canaries: Canaries):
        """most: how many the most curious attack knows."""
        self.ids, self.labels = torch.empty((2, 0), dtype=torch.int64, device=train.device)
        self._facts: dict[int, Known] = {}
        if most:
            rows = train.sample(min(len(train), max(_SAMPLE, 50 * most + 1000)))
            kept = (~canaries.among(rows.ids)).nonzero()[:, 0].cpu()
            order = kept[torch.randperm(len(kept), generator=rng)].to(rows.ids.device)
            labels = rows.labels[order]
            first = [(labels == k).nonzero()[:1, 0] for k in range(train.classes)]
            leading = torch.cat(first)[:most]
            is_leading = torch.zeros(len(order), dtype=torch.bool, device=order.device).index_fill_(0, leading, True)
            chosen = torch.cat([leading, (~is_leading).nonzero()[:, 0]])[:most]
            self.ids, self.labels = rows.ids[order[chosen]], labels[chosen]

    @classmethod
    def recorded(cls, ids: Tensor, labels: Tensor) -> "KnownRows":
        """Those of a recording. ids, labels: (k,), the first known first."""
        known = cls.__new__(cls)
        known.ids, known.labels, known._facts = ids, labels, {}
        return known

    def fact(self, count: int, names: RowNames) -> Known:
        """The first so many. names: the same at each call."""
        if count not in self._facts:
            self._facts[count] = Known(names.of(self.ids[:count]), self.labels[:count])
        return self._facts[count]

    def among(self, ids: Tensor, count: int) -> Tensor:
        """(n,) bool: which of these rows are among the first so many."""
        return torch.isin(ids, self.ids[:count])


class FollowedRows:
    """Training rows that attacks follow, in a random order; an attack follows the first so many."""

    def __init__(self, train: Population, count: int, rng: torch.Generator, canaries: Canaries):
        self.ids, self.labels = torch.empty((2, 0), dtype=torch.int64, device=train.device)
        if count:
            rows = train.sample(count)
            labels = canaries.planted(rows.ids, rows.labels)
            order = torch.randperm(len(rows), generator=rng)[:count].to(train.device)
            self.ids, self.labels = rows.ids[order], labels[order]
        self._sorted, self._rank = self.ids.sort()
        self.is_met = torch.zeros(len(self.ids), dtype=torch.bool, device=train.device)

    def among(self, ids: Tensor, first: int) -> Tensor:
        """Places of those of the `first` followed rows that are in a batch; they count as met from now on."""
        if not len(self.ids):
            return torch.empty(0, dtype=torch.int64, device=ids.device)
        place = torch.searchsorted(self._sorted, ids).clamp_(max=len(self._sorted) - 1)
        rank = self._rank[place]
        is_followed = (self._sorted[place] == ids) & (rank < first)
        self.is_met[rank[is_followed]] = True
        return is_followed.nonzero()[:, 0]

    def met(self, first: int) -> tuple[Tensor, Tensor]:
        """Ids and labels of those of the `first` that were met."""
        is_met = self.is_met[:first]
        return self.ids[:first][is_met], self.labels[:first][is_met]
