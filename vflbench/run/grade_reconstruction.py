"""Rebuilt rows compared with the true ones, and with what anybody could have guessed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache

import torch
from torch import Tensor

from vflbench.attacks.base import RebuiltRows
from vflbench.data.rows import EncodedRows
from vflbench.data.table import LABEL_PARTY, Features, VerticalTable
from vflbench.errors import UserError
from vflbench.messages.facts import PartyFeatures
from vflbench.messages.wire import Kind
from vflbench.metrics.inversion import Compared, LineUp, Recogniser, TableColumns, compare_pictures, compare_tables
from vflbench.metrics.reconstruction import CHANCE, ReconstructionTable
from vflbench.numerics.decoder import Decoder, fit_decoder
from vflbench.numerics.pixels import Area, area_of, put_together
from vflbench.results.schema import GUESSES

ROWS = 10_000
"""Training rows, evenly spread, for recognisers and line-ups; as many held-out rows are the basis of guesses."""

_SHOWN = 20  # rows in the picture of a run
_SLACK = 1e-3  # so far beyond [0, 1], a number is taken for rounded

ALL, BY = "all", " by "
"""Stands for the party where the parts of several are put together; between a party and another one that attacks it."""

_Graded = dict[str, tuple[Compared, tuple[Tensor, Tensor] | None]]
"""Party -> figures of its columns, and the true and the rebuilt ones, to look at."""

Judges = tuple[Tensor, list[Recogniser]]
"""Ids of the first half of the pool, and recognisers trained on the first and on the second half."""
_Pictures = tuple[VerticalTable, Tensor]
"""Rows, and their pictures."""

_DRAWS, _COPIES = 24, 8
"""Pictures that are made up, and held-out rows, among which the best draw is chosen."""
_DIRECTIONS = 20
_SHRINK = 0.1
_WIDTH, _STEPS = 128, 500
_IDS = 32  # of a column, the most frequent ones, are inputs of the network of own columns


class ReconstructionGrader:
    """Figures of each party's columns and, of pictures, of the whole put together from all parties.

    Beside each answer, the same table has answers that need no message (their message is `none`), under the names of
    `GUESSES` as layers; and under `chance` the share of rows that are identified without one. Row by row, the answer's
    error is compared with that of each guess, which the table keeps as margins.
    """

    def __init__(self, train: EncodedRows, held_out: EncodedRows, seed: int):
        self._seed, self._pool, self._known = seed, train.sample(ROWS), held_out.sample(ROWS)
        self._guesses = BaselineGuesses(self._known, seed)
        self._trained: dict[tuple[str, ...], Judges] = {}

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
        attacker = party if party in rows.features and party not in answer and len(rows.features[party].columns) else None
        is_part = attacker is not None and attacker != LABEL_PARTY and whole(rows.features, [*parties, attacker]) is not None
        filled_in = {attacker: rows.features[attacker]} if attacker is not None and is_part else {}
        bench = self._bench(rows, [name for name in rows.features if name in {*parties, *filled_in}], lined_up)
        mine = bench.compare(answer | filled_in, parts=True)
        guesses = self._guesses.of(rows, parties, attacker, drawn)
        graded = {name: bench.compare(guess | filled_in) for name, guess in guesses.items()}
        by = "" if party == LABEL_PARTY else f"{BY}{party}"
        shown = _by_class(rows.labels)
        for place, (compared, example) in mine.items():
            if place in filled_in:
                continue
            pair = None if example is None else (example[0][shown], example[1][shown])
            guessed = {name: graded[name][place][0] for name in GUESSES if place in graded.get(name, {})}
            margins = {name: guess.error - compared.error for name, guess in guessed.items()}
            key = (attack, str(message), f"{place}{by}", rebuilt.layer, True)
            table.add(key, {**compared.figures, **rebuilt.figures}, pair, rebuilt.note, rows=compared.rows, margins=margins)
        for name, figures in graded.items():
            for place, (compared, _) in figures.items():
                table.add((attack, "none", f"{place}{by}", name, name != "true"), compared.figures, rows=compared.rows)
        for place, (compared, _) in graded["mean"].items():
            chance = compared.rows[CHANCE]
            table.add((attack, "none", f"{place}{by}", CHANCE, True), {"identified": chance.nanmean().item()})

    def _bench(self, rows: VerticalTable, parties: Sequence[str], rng: torch.Generator) -> PictureBench | TableBench:
        pool, truth, pictures = self._pool, whole(rows.features, parties), whole(self._pool.features, parties)
        if truth is None or pictures is None:
            return TableBench(rows, pool, self._known, rng)
        if (key := tuple(parties)) not in self._trained:
            self._trained[key] = self._recognisers(pictures)
        return PictureBench((rows, truth), (pool, pictures), self._trained[key], rng)

    def _recognisers(self, pictures: Tensor) -> Judges:
        pool = self._pool
        order = torch.randperm(len(pool), generator=torch.Generator().manual_seed(self._seed)).to(pool.ids.device)
        halves = order[: len(order) // 2], order[len(order) // 2 :]
        return pool.ids[halves[0]], [
            Recogniser(pictures[half], pool.labels[half], pool.classes, torch.Generator().manual_seed(self._seed))
            for half in halves
        ]


def _checked(attack: str, party: str, columns: PartyFeatures, rows: VerticalTable) -> Features:
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
    if not bool(((numeric >= -_SLACK) & (numeric <= 1 + _SLACK)).all()):  # nan is neither
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


class PictureBench:
    """Compares answers about one batch with the true pictures.

    Two recognisers, each trained on half of the pool of training rows. A row is judged by the one that has not seen it.
    Beside the figures of `compare_pictures`, an answer gets `recognised`, the share whose class is recognised;
    `feature_distance`, how far apart a recogniser sees the rebuilt and the true picture; and `identified`, the share of
    pictures that are nearer by that distance to their own true picture than to others of the class (`metrics.inversion`).
    """

    def __init__(self, truth: _Pictures, of_pool: _Pictures, judges: Judges, rng: torch.Generator):
        (self._rows, self._truth), (first, self._recognisers) = truth, judges
        (pool, pictures), rows, recognisers = of_pool, self._rows, self._recognisers
        is_first = torch.isin(pool.ids, first)
        unseen = torch.stack([~is_first, is_first])  # by each recogniser, of the pool
        judge_of = torch.isin(rows.ids, first).long()  # the first one judges rows that aren't in the first half
        self._line_up = LineUp((rows.ids, rows.labels), (pool.ids, pool.labels), rng, unseen[judge_of])
        self._places = [(judge_of == judge).nonzero()[:, 0] for judge in range(len(recognisers))]
        self._true_features = self._features(self._truth)
        self._others = [
            recognisers[judge].features(pictures[places]) if len(places) else torch.empty(0)
            for judge, places in zip(judge_of.tolist(), self._line_up.others, strict=True)
        ]

    def compare(self, answer: Mapping[str, Features], *, parts: bool = False) -> _Graded:
        """Figures of the whole picture, and with `parts`, where several parties have one, of each party's part before."""
        parties = list(answer)
        graded: _Graded = {}
        for party in parties if parts and len(parties) > 1 else []:
            truth, part = whole(self._rows.features, [party]), whole(answer, [party])
            if truth is not None and part is not None:
                graded[party] = compare_pictures(truth, part), None
        rebuilt = whole(answer, parties)
        assert rebuilt is not None  # its columns are those of the truth
        return graded | {parties[0] if len(parties) == 1 else ALL: (self._compare(rebuilt), (self._truth, rebuilt))}

    def _compare(self, answer: Tensor) -> Compared:
        features, recognised = self._features(answer), torch.zeros(len(answer), dtype=torch.float64)
        for recogniser, places in zip(self._recognisers, self._places, strict=True):
            if len(places):
                recognised[places.cpu()] = recogniser.hits(answer[places], self._rows.labels[places])
        distance = (features - self._true_features).square().sum(dim=1)

        def distances(row: int) -> Tensor:
            return torch.cat([distance[row : row + 1], (self._others[row] - features[row]).square().sum(dim=1)])

        rows = {"recognised": recognised, "identified": self._line_up.identified(distances), "feature_distance": distance}
        return _with_rows(compare_pictures(self._truth, answer), rows, self._line_up)

    def _features(self, pictures: Tensor) -> Tensor:
        """(n, d), of each picture by the recogniser that has not seen the row."""
        parts = [judge.features(pictures[places]) for judge, places in zip(self._recognisers, self._places, strict=True)]
        order = torch.cat(self._places).argsort().cpu()
        return torch.cat([part for part in parts if len(part)])[order]


class TableBench:
    """Figures of `compare_tables` and `identified`, among training rows of the class, by a party's columns.

    d(x, x') = sum over numeric columns of (x - x')^2 / variance + the number of ids that differ
    """

    def __init__(self, rows: VerticalTable, pool: VerticalTable, held_out: VerticalTable, rng: torch.Generator):
        self._rows, self._pool, self._held_out = rows, pool, held_out
        self._line_up = LineUp((rows.ids, rows.labels), (pool.ids, pool.labels), rng)

    def compare(self, answer: Mapping[str, Features], *, parts: bool = False) -> _Graded:
        """Figures of each party, with or without `parts`."""
        graded: _Graded = {}
        for party, guess in answer.items():
            true = self._rows.features[party]
            graded[party] = self._compare(party, true, guess), (_numbers(true, true), _numbers(guess, true))
        return graded

    def _compare(self, party: str, truth: Features, answer: Features) -> Compared:
        numbers = self._held_out.features[party].numeric.double()
        spread = (numbers - numbers.mean(dim=0)).square().mean(dim=0).sqrt()  # torch's own warns where there is no column
        columns = TableColumns(truth.columns.numeric, truth.columns.categorical, spread)

        def distances(row: int) -> Tensor:
            others = self._pool.features[party].rows(self._line_up.others[row])
            numeric = torch.cat([truth.numeric[row : row + 1], others.numeric])
            ids = torch.cat([truth.categorical[row : row + 1], others.categorical])
            off = columns.scaled(numeric) - columns.scaled(answer.numeric[row : row + 1])
            return off.square().sum(dim=1) + (ids != answer.categorical[row]).sum(dim=1)

        compared = compare_tables((truth.numeric, truth.categorical), (answer.numeric, answer.categorical), columns)
        return _with_rows(compared, {"identified": self._line_up.identified(distances)}, self._line_up)


def _with_rows(compared: Compared, rows: Mapping[str, Tensor], line_up: LineUp) -> Compared:
    """These as well, before figures of single columns."""
    means = {name: values.nanmean().item() for name, values in rows.items()}
    whole_table = {name: value for name, value in compared.figures.items() if ":" not in name}
    by_column = {name: value for name, value in compared.figures.items() if ":" in name}
    return Compared(whole_table | means | by_column, {**compared.rows, **rows, CHANCE: line_up.chance}, compared.error)


def whole(features: Mapping[str, Features], parties: Sequence[str]) -> Tensor | None:
    """Pictures put together from these parties' columns; None if they are none."""
    parts: dict[Area, Tensor] = {}
    for party in parties:
        block = features[party]
        area = None if block.columns.categorical else area_of(block.columns.numeric)
        if area is None:
            return None
        parts[area] = block.numeric
    return put_together(parts)


class BaselineGuesses:
    """Answers that take no message about a row.

        mean          of the held-out rows; of categories the most frequent id
        class_mean    the same by class, which the label party knows
        random_row    a held-out row, drawn at random
        class_row     a held-out row of the class, drawn at random
        best_draw     of pictures: of 24 draws from a normal distribution of the class, and 8 held-out rows of it, the one
                      that a classifier of the attacker's own takes for its class most surely
        features_network  where the attacker has columns of the row: what a network makes of these and of the class
        features_linear   the same by ridge regression; ids are those of the network

    The class mean is also what `features_network`, or a decoder as that of a black box, tends to without messages
    and without own columns: it has the least squared error of all answers that depend on the class alone.

    nearest_row, the held-out row nearest to the true one, and true are no guesses: they take the truth.

    held_out: rows that aren't trained on.
    """

    def __init__(self, held_out: VerticalTable, seed: int):
        self._held_out, self._seed = held_out, seed
        self._everyone = torch.arange(len(held_out), device=held_out.ids.device)
        places = [(held_out.labels == k).nonzero()[:, 0] for k in range(held_out.classes)]
        self._of_class = [some if len(some) else self._everyone for some in places]
        self._discriminant_of = cache(self._discriminant)  # the directions of large pictures take seconds
        self._networks_of = cache(self._networks)

    def of(
        self, rows: VerticalTable, parties: Sequence[str], attacker: str | None, rng: torch.Generator
    ) -> dict[str, dict[str, Features]]:
        """Guess -> party -> columns of these rows. attacker: the party that attacks, if it has columns of its own."""
        held_out, labels = self._held_out, rows.labels.tolist()
        drawn = torch.randint(len(held_out), (len(rows),), generator=rng).to(rows.ids.device)
        separation = torch.stack([_distances(rows.features[p], held_out.features[p]) for p in parties])  # (parties, n, m)
        nearest = separation.sum(dim=0).argmin(dim=1)
        alike = [self._of_class[k] for k in labels]
        of_class = torch.stack([places[int(torch.randint(len(places), (), generator=rng))] for places in alike])
        first = torch.zeros_like(rows.labels)

        def taken(places: Tensor) -> dict[str, Features]:
            return {p: held_out.features[p].rows(places) for p in parties}

        guesses = {
            "mean": {p: self._means(p, self._everyone).rows(first) for p in parties},
            "class_mean": {p: self._means(p, *self._of_class).rows(rows.labels) for p in parties},
            "random_row": taken(drawn),
            "class_row": taken(of_class),
        }
        if whole(held_out.features, parties) is not None:
            guesses["best_draw"] = self._best_draws(rows, parties, rng)
        if attacker is not None:
            guesses["features_network"] = self._by_network(rows, parties, attacker)
            guesses["features_linear"] = {
                p: Features(block.columns, self._linear(rows, p, attacker), block.categorical)
                for p, block in guesses["features_network"].items()
            }
        guesses["nearest_row"] = taken(nearest)
        return guesses | {"true": {p: rows.features[p] for p in parties}}

    def _means(self, party: str, *groups: Tensor) -> Features:
        """The mean row of each of these groups of held-out rows; of categories the most frequent id."""
        blocks = [self._held_out.features[party].rows(places) for places in groups]
        numeric = torch.stack([block.numeric.mean(dim=0) for block in blocks])
        ids = torch.stack(
            [b.categorical.mode(dim=0).values if len(b.columns.categorical) else b.categorical[0] for b in blocks]
        )
        return Features(blocks[0].columns, numeric, ids)

    def _best_draws(self, rows: VerticalTable, parties: Sequence[str], rng: torch.Generator) -> dict[str, Features]:
        """Pictures that look most like their class to a linear discriminant of the held-out rows' main directions."""
        x, mean, directions, centres, factor, precision = self._discriminant_of(tuple(parties))
        chosen = []
        for label in rows.labels.tolist():
            noise = torch.randn(_DRAWS, factor.shape[0], generator=rng, dtype=x.dtype)
            made_up = (mean + (centres[label] + noise @ factor.T) @ directions.T).clamp(0, 1)
            of_class = self._of_class[label].cpu()
            copies = x[of_class[torch.randint(len(of_class), (_COPIES,), generator=rng)]]
            candidates = torch.cat([made_up, copies])
            off = ((candidates - mean) @ directions)[:, None] - centres[None]  # (32, classes, q)
            log_odds = -0.5 * torch.einsum("ckq,qr,ckr->ck", off, precision, off)
            chosen.append(candidates[log_odds.log_softmax(dim=1)[:, label].argmax()])
        blocks = [self._held_out.features[p] for p in parties]
        parts = torch.stack(chosen).to(blocks[0].numeric).split([b.numeric.shape[1] for b in blocks], dim=1)
        return {
            p: Features(block.columns, part, block.categorical[:1].expand(len(rows), -1))
            for p, block, part in zip(parties, blocks, parts, strict=True)
        }

    def _discriminant(self, parties: Sequence[str]) -> tuple[Tensor, ...]:
        """Of the held-out rows: x (m, d), its mean, main directions (d, q), centres of classes (K, q), and the Cholesky
        factor and the inverse (q, q) of what varies within classes.
        """
        x = torch.cat([self._held_out.features[p].numeric for p in parties], dim=1).double().cpu()
        mean, labels = x.mean(dim=0), self._held_out.labels.cpu()
        covariance = (x - mean).T @ (x - mean) / len(x)
        directions = torch.linalg.eigh(covariance).eigenvectors[:, -_DIRECTIONS:]  # (d, q)
        z = (x - mean) @ directions
        centres = torch.stack([z[places.cpu()].mean(dim=0) for places in self._of_class])
        within = z - centres[labels]
        spread = within.T @ within / len(z)
        spread = (1 - _SHRINK) * spread + _SHRINK * spread.diagonal().mean() * torch.eye(len(spread), dtype=z.dtype)
        return x, mean, directions, centres, torch.linalg.cholesky(spread), torch.linalg.inv(spread)

    def _by_network(self, rows: VerticalTable, parties: Sequence[str], attacker: str) -> dict[str, Features]:
        """What a network that is fitted to held-out rows makes of the class and of the attacker's own columns."""
        h, networks = self._known(rows, attacker), self._networks_of(attacker, *parties)
        return {p: Features(self._held_out.features[p].columns, *network(h)) for p, network in networks.items()}

    def _networks(self, attacker: str, *parties: str) -> dict[str, Decoder]:
        h = self._known(self._held_out, attacker)

        def fitted(block: Features) -> Decoder:
            rng = torch.Generator(h.device).manual_seed(self._seed)
            return fit_decoder(h, block.numeric, block.categorical, rng, width=_WIDTH, steps=_STEPS)

        return {p: fitted(self._held_out.features[p]) for p in parties}

    def _linear(self, rows: VerticalTable, party: str, attacker: str) -> Tensor:
        """(n, k): ridge regression on the held-out rows, its strength by generalised cross-validation."""
        x, y = self._known(self._held_out, attacker).double(), self._held_out.features[party].numeric.double()
        if not y.shape[1]:
            return y[:1].expand(len(rows), -1).float()
        mean, scale, middle = x.mean(dim=0), x.std(dim=0).clamp_min(1e-6), y.mean(dim=0)
        u, s, vt = torch.linalg.svd((x - mean) / scale, full_matrices=False)
        uy = u.T @ (y - middle)
        total, best = (y - middle).square().sum(), (math.inf, torch.zeros_like(s))
        for strength in torch.logspace(-4, 4, 17, dtype=s.dtype).tolist():
            kept = s.square() / (s.square() + strength)  # of each direction
            error = total - ((2 * kept - kept.square())[:, None] * uy.square()).sum()
            score = float(error) / max(1 - float(kept.sum() + 1) / len(x), 1e-6) ** 2
            best = min(best, (score, kept / s.clamp_min(1e-12)), key=lambda pair: pair[0])
        answer = middle + (self._known(rows, attacker).double() - mean) / scale @ vt.T @ (best[1][:, None] * uy)
        return answer.clamp(0, 1).float()

    def _known(self, rows: VerticalTable, attacker: str) -> Tensor:
        """(n, d): the class, numeric columns, and the most frequent ids of each categorical one, as 0 and 1."""
        block, known = rows.features[attacker], self._held_out.features[attacker]
        parts = [torch.nn.functional.one_hot(rows.labels, rows.classes).to(block.numeric.dtype), block.numeric]
        for column, of_known in zip(block.categorical.T, known.categorical.T, strict=True):
            values, counts = of_known.unique(return_counts=True)
            ids = values[counts.argsort(descending=True)[:_IDS]]
            parts.append((column[:, None] == ids).to(block.numeric.dtype))
        return torch.cat(parts, dim=1)


def _distances(block: Features, others: Features) -> Tensor:
    """(n, m) squared distance of each row from each other row; each category that differs counts as 1."""
    numbers = torch.cdist(block.numeric.double(), others.numeric.double()).square()
    return numbers + torch.cdist(block.categorical.double(), others.categorical.double(), p=0)
