"""The same alignment apart: each party has its own file alone, and identifiers, positions and roles cross as plain values.

identifiers  ->  label party: who has which rows; what each is for
positions and roles of the shared rows  ->  each party: its own columns, in the common order, fitted on them alone
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from vflbench.data.alignment import Alignment
from vflbench.data.base import DROPPED, VALIDATION
from vflbench.data.party_files import PartyFiles, align, fitted_to
from vflbench.data.party_source import PartySource
from vflbench.data.party_table import PartyTable
from vflbench.data.rows import TrainTest
from vflbench.data.table import LABEL_PARTY
from vflbench.errors import UserError


class OwnFile:
    """A party's own file. dataset: whose `party_files` names it; the others' are not looked at."""

    def __init__(self, dataset: PartyFiles, party: str):
        self.dataset, self.party = dataset, party
        self._source: PartySource = dataset.party_source(party)

    def __len__(self) -> int:
        return len(self._source.ids)

    def ids(self) -> list[str]:
        """The identifiers of its rows, in the order of the file: what the label party gets."""
        return list(self._source.ids)

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines that a person must not miss."""
        return (*self._source.lines, *self._source.notes) if self.party != LABEL_PARTY else self._source.notes

    def table(self, positions: Tensor, role: Tensor) -> PartyTable:
        """Its columns of the shared rows, by their place among them. positions: (m,) int64, where they stand in its file.
        role: (m,) uint8, what each is for. Both come from the label party. Raises UserError for what can't be.
        """
        source, alignment = self._source, Alignment({self.party: positions}, role)
        self._check(positions, role)
        raw, encoding = fitted_to(self.dataset, source, alignment)
        features = encoding(raw)[self.party]
        dropped = role == DROPPED
        features.numeric[dropped], features.categorical[dropped] = 0, 0
        digest = hashlib.sha256(raw.fingerprint.encode())
        for values in (features.numeric, features.categorical):
            digest.update(values.numpy())
        encoding.update(digest)
        return PartyTable(self.party, features.columns, features.numeric, features.categorical, digest.hexdigest())

    def _check(self, positions: Tensor, role: Tensor) -> None:
        problem = ""
        if (
            positions.dtype != torch.int64
            or role.dtype != torch.uint8
            or positions.dim() != 1
            or role.shape != positions.shape
        ):
            problem = "they must be int64 and uint8, and of one dimension"
        elif len(role) != len(positions):
            problem = f"there are {len(positions):,} positions and {len(role):,} roles"
        elif not len(positions) or int(positions.min()) < 0 or int(positions.max()) >= len(self):
            problem = f"they must be of some of the {len(self):,} rows of the file"
        elif len(positions.unique()) < len(positions):
            problem = "a row stands there twice"
        elif int(role.max()) > VALIDATION or not (role != DROPPED).any():
            problem = "there is no such role, or no row is used"
        if problem:
            raise UserError(f"positions and roles that came from the label party: {problem}", key=f"party {self.party}")


class LabelFile(OwnFile):
    """The label party's own file, and what it decides from the identifiers of the others."""

    def __init__(self, dataset: PartyFiles):
        super().__init__(dataset, LABEL_PARTY)

    def align(self, ids: Mapping[str, Sequence[str]], rng: torch.Generator) -> Alignment:
        """Which rows all parties share, and what each is for: the same as in one process, from the same generator state.

        ids: non-label party -> its identifiers. Raises UserError where they are no list of different texts.
        """
        if LABEL_PARTY in ids or not ids:
            raise UserError("it must be of the non-label parties, at least one", key="dataset.id")
        return align(self.dataset, self._source, ids, rng)

    def rows(self, alignment: Alignment) -> TrainTest:
        """The label party's rows: labels and its own columns, and no others."""
        raw, encoding = fitted_to(self.dataset, self._source, alignment)
        encoding = replace(encoding, parties=encoding.parties if raw.names else {})
        role = alignment.role.numpy()
        digest = hashlib.sha256(self._source.raw.fingerprint.encode())
        digest.update(alignment.positions[LABEL_PARTY].numpy())
        digest.update(role)
        encoding.update(digest)
        raw, facts = replace(raw, fingerprint=digest.hexdigest()), {**alignment.facts}
        facts["party_files"] = {LABEL_PARTY: dict(self._source.facts or {})}
        return self.dataset.split_rows(raw, encoding, role, digest.hexdigest(), facts, alignment.notes)


def own_file(dataset: PartyFiles, party: str) -> OwnFile:
    """What a party reads of its own file, and of no other's."""
    return LabelFile(dataset) if party == LABEL_PARTY else OwnFile(dataset, party)
