"""Rebuilt rows compared with the true ones, and with what anybody could have guessed."""

from collections.abc import Mapping, Sequence
from functools import cached_property

import torch
from torch import Tensor

from vflbench.attacks.base import RebuiltRows
from vflbench.data.rows import EncodedRows
from vflbench.data.table import LABEL_PARTY, Features, VerticalTable
from vflbench.errors import UserError
from vflbench.messages.facts import OwnColumns
from vflbench.messages.message import Kind
from vflbench.metrics.inversion import Compared, compare_pictures
from vflbench.metrics.line_up import LineUp
from vflbench.metrics.reconstruction import CHANCE, ReconstructionTable
from vflbench.run.guesses import GUESSES, Guesses
from vflbench.run.judges import ROWS, PictureBench, PictureJudge, TableJudge, whole

_SHOWN = 20  # rows in the picture of a run
_SLACK = 1e-3  # so far beyond [0, 1], a number is taken for rounded

ALL, BY = "all", " by "
"""Stands for the party where the parts of several are put together; between a party and another one that attacks it."""

_Graded = tuple[str, Compared, tuple[Tensor, Tensor] | None]


class Grader:
    """Figures of each party's columns and, of pictures, of the whole put together from all parties.

    Beside each answer, the same table has answers that need no message (their message is `none`), under the names of
    `run.guesses` as layers; and under `chance` the share of rows that are identified without one. Row by row, the answer's
    error is compared with that of each guess, which the table keeps as margins.
    """

    def __init__(self, train: EncodedRows, held_out: EncodedRows, seed: int):
        self._train, self._held_out, self._seed = train, held_out, seed
        self._pictures: dict[tuple[str, ...], PictureJudge] = {}

    def grade(
        self,
        attack: str,
        rebuilt: RebuiltRows,
        rows: VerticalTable,
        number: int,
        table: ReconstructionTable,
        party: str = LABEL_PARTY,
        message: Kind = Kind.EMBEDDING,
    ) -> None:
        """Add what an attack rebuilt. rows: the truth. number: of the batch, by which guesses are drawn. party: that
        attacks. message: what it read.

        A party that is not the label party is named beside the one that it attacks (`b by a`), and
        fills its own part into whole pictures, its own and those of guesses.

        Rows of the picture are chosen by class, a few of each. Raises UserError for an answer that can't be one.
        """
        drawn = torch.Generator().manual_seed(self._seed ^ number)
        lined_up = torch.Generator().manual_seed(self._seed ^ number ^ 1)
        answer = {name: _checked(attack, name, columns, rows) for name, columns in rebuilt.features.items()}
        parties = list(answer)
        own = party if party in rows.features and party not in answer and len(rows.features[party].columns) else None
        filled_in = _own_part(rows, parties, own)
        bench = self._bench(rows, [name for name in rows.features if name in {*parties, *filled_in}], lined_up)
        mine = self._figures(rows, answer | filled_in, bench, parts=True)
        guesses = self._guesses.of(rows, parties, own, drawn)
        graded = {name: self._figures(rows, guess | filled_in, bench, parts=False) for name, guess in guesses.items()}
        by = "" if party == LABEL_PARTY else f"{BY}{party}"
        errors = {name: {place: compared.error for place, compared, _ in figures} for name, figures in graded.items()}
        shown = _by_class(rows.labels)
        for place, compared, example in (graded_part for graded_part in mine if graded_part[0] not in filled_in):
            pair = None if example is None else (example[0][shown], example[1][shown])
            margins = {name: errors[name][place] - compared.error for name in GUESSES if place in errors.get(name, {})}
            key = (attack, str(message), f"{place}{by}", rebuilt.layer, True)
            table.add(key, {**compared.figures, **rebuilt.figures}, pair, rebuilt.note, rows=compared.rows, margins=margins)
        for name, figures in graded.items():
            for place, compared, _ in figures:
                table.add((attack, "none", f"{place}{by}", name, name != "true"), compared.figures, rows=compared.rows)
        for place, compared, _ in graded["mean"]:
            chance = compared.rows[CHANCE]
            table.add((attack, "none", f"{place}{by}", CHANCE, True), {"identified": chance.nanmean().item()})

    def _bench(self, rows: VerticalTable, parties: list[str], rng: torch.Generator) -> PictureBench | LineUp:
        """What answers of these parties are compared with."""
        pictures = whole(rows.features, parties)
        if pictures is None:
            return self._tables.line_up(rows, rng)
        if tuple(parties) not in self._pictures:
            self._pictures[tuple(parties)] = PictureJudge(self._train, parties, self._seed)
        return self._pictures[tuple(parties)].bench(rows, pictures, rng)

    def _figures(
        self, rows: VerticalTable, answer: Mapping[str, Features], bench: PictureBench | LineUp, *, parts: bool
    ) -> list[_Graded]:
        """Party, its figures, and an example of truth and answer. parts: of whole pictures, each party's part as well."""
        parties = list(answer)
        if isinstance(bench, LineUp):
            return [
                (
                    party,
                    self._tables.compare(party, rows.features[party], guess, bench),
                    (_numbers(rows.features[party], rows.features[party]), _numbers(guess, rows.features[party])),
                )
                for party, guess in answer.items()
            ]
        graded: list[_Graded] = []
        for party in parties if parts and len(parties) > 1 else []:
            true_part, rebuilt_part = whole(rows.features, [party]), whole(answer, [party])
            if true_part is not None and rebuilt_part is not None:
                graded.append((party, compare_pictures(true_part, rebuilt_part), None))
        truth, rebuilt = whole(rows.features, parties), whole(answer, parties)
        if truth is None or rebuilt is None:
            raise ValueError("the columns of these parties are no pictures")
        return [*graded, (parties[0] if len(parties) == 1 else ALL, bench.compare(rebuilt), (truth, rebuilt))]

    @cached_property
    def _known(self) -> VerticalTable:
        return self._held_out.sample(ROWS)

    @cached_property
    def _guesses(self) -> Guesses:
        return Guesses(self._known, self._seed)

    @cached_property
    def _tables(self) -> TableJudge:
        return TableJudge(self._train, self._known)


def _own_part(rows: VerticalTable, parties: Sequence[str], own: str | None) -> dict[str, Features]:
    """The attacker's own part of the picture, if it holds one and isn't the label party. parties: that it attacks."""
    is_part = own is not None and own != LABEL_PARTY and whole(rows.features, [*parties, own]) is not None
    return {own: rows.features[own]} if own is not None and is_part else {}


def _checked(attack: str, party: str, columns: OwnColumns, rows: VerticalTable) -> Features:
    """The answer as features. Raises UserError where it isn't of the party's columns, or holds what no row can hold."""

    def fail(what: str) -> UserError:
        return UserError(f"it rebuilt columns of party {party} {what}", key="attack", value=attack)

    if party not in rows.features:
        raise fail(f"that there is no such party for; parties with columns are {', '.join(rows.features)}")
    true = rows.features[party]
    numeric, ids = columns.numeric, columns.categorical
    for name, given, there in (("numeric", numeric, true.numeric), ("categorical", ids, true.categorical)):
        if tuple(given.shape) != tuple(there.shape):
            raise fail(f"as {tuple(given.shape)} {name} values; it must be {tuple(there.shape)}, rows and columns")
    if not bool(numeric.isfinite().all()):
        raise fail(f"with {int((~numeric.isfinite()).sum()):,} values that are not finite; numbers in [0, 1] are allowed")
    if numeric.numel() and (float(numeric.min()) < -_SLACK or float(numeric.max()) > 1 + _SLACK):
        raise fail(f"with values from {float(numeric.min()):g} to {float(numeric.max()):g}; numbers in [0, 1] are allowed")
    sizes = torch.tensor(true.columns.cardinalities, device=ids.device)
    if (ids.numel() and ids.is_floating_point()) or bool((ids < 0).any()) or bool((ids >= sizes).any()):
        raise fail("with ids that their column doesn't have; whole numbers from 0 to its number of ids - 1 are allowed")
    return Features(true.columns, numeric.detach(), ids.detach())


def _numbers(block: Features, truth: Features) -> Tensor:
    """All columns as (n, columns) in [0, 1]: of a categorical one 0 where it is as in `truth`, else 1."""
    return torch.cat([block.numeric, (block.categorical != truth.categorical).to(block.numeric.dtype)], dim=1)


def _by_class(labels: Tensor) -> Tensor:
    """Places of at most 20 rows, the first of each class, then the second of each, ..., put in the order of the classes."""
    turn = torch.stack([(labels[: i + 1] == labels[i]).sum() for i in range(len(labels))])
    chosen = (turn * (int(labels.max()) + 1) + labels).argsort()[:_SHOWN]
    return chosen[labels[chosen].argsort(stable=True)]
