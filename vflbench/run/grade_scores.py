"""Answers held against the truth: the type of an answer decides how it is graded. An attack can't grade itself."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor

from vflbench.attacks.base import Answers, ClassCounts, ColumnScores, RebuiltBatch, RebuiltRows, Scores
from vflbench.data.table import LABEL_PARTY
from vflbench.errors import UserError
from vflbench.messages.facts import Embeddings, Gradients
from vflbench.messages.message import Kind
from vflbench.messages.round import Facts, PrivateBatch, Round
from vflbench.messages.threat import Level
from vflbench.metrics.batch import batch_example, batch_figures
from vflbench.metrics.dependence import Dependence, DependenceTable
from vflbench.metrics.leak import Leak
from vflbench.metrics.leakage import Key, LeakTable, checked_scores
from vflbench.metrics.probe import probe
from vflbench.metrics.reconstruction import Reconstruction, ReconstructionTable
from vflbench.numerics.auc import auc
from vflbench.results.schema import PROBE
from vflbench.run.attackers import Attacker
from vflbench.run.grade_reconstruction import ReconstructionGrader
from vflbench.run.known_rows import AttributeTargets, Lookup

FOLLOWED = "followed rows"

_PARTS = 10  # of column scores, graded one by one, for an interval
_GROUPS = 8
_ROWS = 4096  # for the probe, of each party in an epoch, at most

Listener = Callable[[Attacker, str, Tensor, Tensor, Tensor], None]
"""Is given each answer of scores: the attacker, the layer, ids (n,), scores, and (n,) bool, rows that must not count."""


@dataclass(frozen=True)
class QueryRows:
    """The rows that an attack was asked about, and what must not count.

    ids, names, labels: (n,). known: (n,) bool, rows whose label the attacker was given. canary: (n,) bool. is_batch: whether
    a whole batch was asked about, whose classes can be counted.
    """

    ids: Tensor
    names: Tensor
    labels: Tensor
    known: Tensor
    canary: Tensor
    is_batch: bool = True

    def group(self, indices: Tensor) -> "QueryRows":
        """These rows of it."""
        ids, names, labels = self.ids[indices], self.names[indices], self.labels[indices]
        return QueryRows(ids, names, labels, self.known[indices], self.canary[indices], self.is_batch)

    def indices(self, names: Tensor, attack: str) -> Tensor | None:
        """Indices of the rows with these names; None for all of them in order. Raises UserError, about this attack, for a
        name that was not asked about or that comes twice.
        """
        asked = self.names
        if not isinstance(names, Tensor):
            raise UserError("the ids of its answer must be a tensor of names from view.ids", key="attack", value=attack)
        if names.shape == asked.shape and torch.equal(names.to(asked.device), asked):
            return None
        ordered, order = asked.sort()
        if names.ndim == 1 and names.dtype == ordered.dtype and len(ordered):
            names = names.to(ordered.device)
            place = torch.searchsorted(ordered, names).clamp_(max=len(ordered) - 1)
            if torch.equal(ordered[place], names) and len(names.unique()) == len(names):
                return order[place]
        problem = "an answer must be about rows of the view: ids from view.ids, in any order, each of them once"
        raise UserError(problem, key="attack", value=attack)


class ProbeRows:
    """Rows of the audited batches of an epoch, and all that was said about them.

    ids, labels: (n,). batch: (n,) number of the audited batch. usable: (n,) bool, neither canaries nor rows whose label an
    attack was given. messages: party -> kind and layer -> (n, d). scores: party -> kind of message, and attack and layer ->
    (n,) or (n, K), nan where the attack was not asked. followed: the same of attacks that follow rows of their own through
    the epochs: ids, labels, usable and scores of these rows.
    """

    def __init__(self) -> None:
        self.ids = torch.empty(0, dtype=torch.int64)
        self.labels, self.batch = self.ids.clone(), self.ids.clone()
        self.usable = torch.empty(0, dtype=torch.bool)
        self.messages: dict[str, dict[tuple[Kind, str], Tensor]] = {}
        self.scores: dict[str, dict[tuple[Kind, str], Tensor]] = {}
        self.followed: dict[str, dict[tuple[Kind, str], list[Tensor]]] = {}

    def add_batch(
        self,
        round_: Round,
        labels: Tensor,
        canary: Tensor,
        crossing: Mapping[str, Sequence[str]],
        batches: int,
    ) -> None:
        """The first rows of an audited batch. crossing: party -> layers that cross. batches: audited in this epoch."""
        rows = slice(0, max(1, _ROWS // batches))
        new = round_.ids[rows].cpu()
        number = int(self.batch[-1]) + 1 if len(self.batch) else 0
        self.ids, self.labels = torch.cat([self.ids, new]), torch.cat([self.labels, labels[rows].cpu()])
        self.batch = torch.cat([self.batch, torch.full_like(new, number)])
        self.usable = torch.cat([self.usable, ~canary[rows].cpu()])
        for party, layers in crossing.items():
            kept = self.messages.setdefault(party, {})
            for name, values in _messages(round_.facts, party, layers).items():
                before = (len(self.ids) - len(new), values.shape[1])
                filled = kept.get(name, values.new_full(before, torch.nan, device="cpu"))
                kept[name] = torch.cat([_padded(filled, len(self.ids) - len(new)), values[rows].float().cpu()])

    def add_scores(self, party: str, name: tuple[Kind, str], ids: Tensor, scores: Tensor, known: Tensor) -> None:
        """An attack's scores of rows. name: the kind of message, and attack and layer. known: (n,) bool, rows whose label it
        was given.
        """
        if not len(self.ids):
            return
        ordered, order = ids.cpu().sort()
        place = torch.searchsorted(ordered, self.ids).clamp_(max=max(len(ordered) - 1, 0))
        if not len(ordered):
            return
        is_asked = ordered[place] == self.ids
        self.usable &= ~(is_asked & known.cpu()[order[place]])
        kept = self.scores.setdefault(party, {})
        column = _padded(kept.get(name, scores.new_empty((0, *scores.shape[1:])).double().cpu()), len(self.ids))
        column[is_asked] = scores.double().cpu()[order[place[is_asked]]]
        kept[name] = column

    def add_followed(
        self, party: str, name: tuple[Kind, str], ids: Tensor, labels: Tensor, scores: Tensor, unusable: Tensor
    ) -> None:
        """Scores of rows that an attack follows. unusable: (n,) bool."""
        new = [ids.cpu(), labels.cpu(), ~unusable.cpu(), scores.double().cpu()]
        kept = self.followed.setdefault(party, {}).get(name)
        self.followed[party][name] = new if kept is None else [torch.cat(pair) for pair in zip(kept, new, strict=True)]

    def grade(self, classes: int, rng: torch.Generator, table: LeakTable) -> None:
        """Fit probes at each party, and add their scores batch by batch, under the layers `embeddings`, `gradients` and,
        for both together, `messages`; and under `followed rows` what the scores of attacks that follow rows come to.
        """
        usable = self.usable.nonzero()[:, 0]
        labels, batch = self.labels[usable], self.batch[usable]
        for party in self.messages:
            kinds = {"embeddings": (Kind.EMBEDDING,), "gradients": (Kind.GRADIENT,)}
            for layer, of in {**kinds, "messages": tuple(Kind)}.items():
                blocks, heard = (
                    [
                        _padded(values, len(self.ids))[usable]
                        for (kind, _), values in given.get(party, {}).items()
                        if kind in of
                    ]
                    for given in (self.messages, self.scores)
                )
                if blocks:
                    scores, half = probe(blocks, heard, labels, batch, classes, rng)
                    if scores is not None:
                        _add(scores, half, labels, batch, (PROBE, "none", party, layer, True), table)
        for party, of_attacks in self.followed.items():
            self._grade_followed(list(of_attacks.values()), classes, rng, (PROBE, "none", party, FOLLOWED, True), table)

    def _grade_followed(
        self, heard: Sequence[Sequence[Tensor]], classes: int, rng: torch.Generator, key: Key, table: LeakTable
    ) -> None:
        """On the rows about which all of them were asked: those of the attack that follows fewest."""
        ids, asked_by = torch.cat([ids[usable] for ids, _, usable, _ in heard]).unique(return_counts=True)
        ids = ids[asked_by == len(heard)]
        labels, columns = torch.zeros_like(ids), []
        for asked, truth, usable, answer in heard:
            is_kept = usable & torch.isin(asked, ids)
            place = torch.searchsorted(ids, asked[is_kept])
            labels[place] = truth[is_kept]
            columns.append(answer.new_full((len(ids), *answer.shape[1:]), torch.nan))
            columns[-1][place] = answer[is_kept]
        order = torch.randperm(len(ids), generator=rng)
        batch = torch.arange(len(ids)) * _GROUPS // max(1, len(ids))
        scores, half = probe([], [column[order] for column in columns], labels[order], batch, classes, rng)
        if scores is not None:
            _add(scores, half, labels[order], batch, key, table)

    def state(self) -> dict[str, Any]:
        return {
            "rows": [self.ids, self.labels, self.batch, self.usable],
            "messages": _listed(self.messages),
            "scores": _listed(self.scores),
            "followed": [[*place, *values] for *place, values in _listed(self.followed)],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        rows = cls()
        rows.ids, rows.labels, rows.batch, rows.usable = (values.clone() for values in state["rows"])
        for given, saved in ((rows.messages, state["messages"]), (rows.scores, state["scores"])):
            for party, kind, name, values in saved:
                given.setdefault(party, {})[Kind(kind), name] = values.clone()
        for party, kind, name, *parts in state["followed"]:
            rows.followed.setdefault(party, {})[Kind(kind), name] = [values.clone() for values in parts]
        return rows


@dataclass(frozen=True)
class Findings:
    """What the attacks of an epoch came to. examples: arrays of rows as they are and as they were rebuilt."""

    leaks: list[Leak]
    dependence: list[Dependence]
    reconstructions: list[Reconstruction]
    examples: dict[str, Any]


@dataclass
class Tables:
    """Figures of an epoch under way, and what the probe is given at its end. listener: also hears scores."""

    leaks: LeakTable = field(default_factory=LeakTable)
    dependence: DependenceTable = field(default_factory=DependenceTable)
    reconstructions: ReconstructionTable = field(default_factory=ReconstructionTable)
    probed: ProbeRows = field(default_factory=ProbeRows)
    listener: Listener | None = None

    def findings(self) -> Findings:
        tables = (self.leaks.leaks(), self.dependence.found(), self.reconstructions.found())
        return Findings(*tables, self.reconstructions.examples())

    def measure(self, round_: Round, labels: Tensor, canary: Tensor, visible: Sequence[str], hidden: Sequence[str]) -> None:
        """How far the embeddings of every layer of these parties depend on the labels, canaries aside."""
        for party in (*visible, *hidden):
            embeddings = round_.facts.get(party, {}).get(Embeddings)
            layers = embeddings.layers if isinstance(embeddings, Embeddings) else {}
            for layer, h in layers.items():
                self.dependence.add((party, layer, party in visible), h[~canary], labels[~canary])

    def state(self) -> dict[str, Any]:
        return {
            "leaks": self.leaks.state(),
            "dependence": self.dependence.state(),
            "reconstructions": self.reconstructions.state(),
            "probed": self.probed.state(),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        leaks, dependence = LeakTable.from_state(state["leaks"]), DependenceTable.from_state(state["dependence"])
        reconstructions = ReconstructionTable.from_state(state["reconstructions"])
        return cls(leaks, dependence, reconstructions, ProbeRows.from_state(state["probed"]))


class Grader:
    """Grades answers into tables.

    rows: the truth by id. cuts: party -> its cut layer. shares: of the classes among the training rows. rebuilt: grades
    rebuilt rows; None where there are no held-out rows to compare with. private: step -> the private batch of that round.
    targets: columns that attacks infer.
    """

    def __init__(
        self,
        rows: Lookup,
        cuts: Mapping[str, str],
        shares: tuple[float, ...],
        rebuilt: ReconstructionGrader | None,
        private: Mapping[int, PrivateBatch],
        targets: AttributeTargets,
    ):
        self._targets = targets
        self._rows, self._cuts, self._shares, self._rebuilt, self._private = rows, cuts, shares, rebuilt, private

    def grade(self, attacker: Attacker, answers: Answers, query: QueryRows, tables: Tables) -> set[str]:
        """Add all that an attack answered. Returns the layers that were scored."""
        layers: set[str] = set()
        for answer in answers if isinstance(answers, Sequence) else [answers]:
            if answer is None:
                continue
            if isinstance(answer, Scores):
                layers |= self._scores(attacker, answer, query, tables)
            elif isinstance(answer, ColumnScores):
                self._column_scores(attacker, answer, query, tables)
            elif isinstance(answer, RebuiltRows):
                self._rebuilt_rows(attacker, answer, query, tables)
            elif isinstance(answer, RebuiltBatch):
                self._rebuilt_batch(attacker, answer, tables)
            elif isinstance(answer, ClassCounts):
                self._class_counts(attacker, answer, query, tables)
            else:
                allowed = "Scores, RebuiltRows, RebuiltBatch, ColumnScores, ClassCounts, a list of them, or None"
                problem = f"it answered with {type(answer).__name__}; allowed are {allowed}"
                raise UserError(problem, key="attack", value=attacker.name)
        return layers

    def grade_in_groups(
        self, attacker: Attacker, answers: Answers, query: QueryRows, groups: Sequence[Tensor], tables: Tables
    ) -> None:
        """The same for an answer about all rows at once: scores are graded group by group. groups: indices of the rows."""
        for answer in answers if isinstance(answers, Sequence) else [answers]:
            if isinstance(answer, ColumnScores):
                for rows in _split(answer, query.indices(answer.ids, attacker.name), groups):
                    self._column_scores(attacker, rows, query, tables)
                continue
            if not isinstance(answer, Scores):
                self.grade(attacker, answer, query, tables)
                continue
            indices = query.indices(answer.ids, attacker.name)
            row_of = torch.full((len(query.ids),), -1, device=query.ids.device)
            everyone = torch.arange(len(query.ids), device=query.ids.device)
            row_of[everyone if indices is None else indices] = torch.arange(len(answer.ids), device=query.ids.device)
            for group in groups:
                scored = group[row_of[group] >= 0]
                layers, candidates = (
                    {layer: values[row_of[scored].to(values.device)] for layer, values in by_layer.items()}
                    for by_layer in (self._by_layer(attacker, answer), answer.candidates)
                )
                part = Scores(query.names[scored], layers, answer.message, candidates)
                if len(scored):
                    self._scores(attacker, part, query.group(scored), tables)

    def _scores(self, attacker: Attacker, answer: Scores, query: QueryRows, tables: Tables) -> set[str]:
        indices = query.indices(answer.ids, attacker.name)
        asked = query if indices is None else query.group(indices)
        known = asked.known.nonzero()[:, 0]
        layers = self._by_layer(attacker, answer)
        for layer, scores in layers.items():
            key = attacker.key(layer, answer.message)
            candidates = answer.candidates.get(layer)
            tables.leaks.add(key, scores, asked.labels, known, asked.canary, candidates)
            kind = attacker.message_of(answer.message)
            if tables.listener is not None:
                tables.listener(attacker, layer, asked.ids, scores, asked.known | asked.canary)
            if kind is not None and attacker.visible and attacker.threat.level is not Level.REFERENCE:
                name = (kind, f"{attacker.name} {layer}")
                if attacker.attack.follows:
                    tables.probed.add_followed(
                        attacker.party, name, asked.ids, asked.labels, scores, asked.known | asked.canary
                    )
                else:
                    tables.probed.add_scores(attacker.party, name, asked.ids, scores, asked.known)
        return set(layers)

    def _by_layer(self, attacker: Attacker, answer: Scores) -> dict[str, Tensor]:
        """Layer -> scores; a single tensor counts for the cut layer, or for `features` where no message was read."""
        layers = answer.layers
        if not isinstance(layers, Mapping):
            message = attacker.message_of(answer.message)
            layers = {
                self._cuts.get(attacker.party, "cut") if message in (Kind.EMBEDDING, Kind.GRADIENT) else "features": layers
            }
        rows, classes = len(answer.ids), len(self._shares)
        return {
            layer: checked_scores(scores, rows, classes, attack=attacker.name, layer=layer)
            for layer, scores in layers.items()
        }

    def _column_scores(self, attacker: Attacker, answer: ColumnScores, query: QueryRows, tables: Tables) -> None:
        """attribute_auc: the mean over values of the AUC of a value against the others. attribute_gain: how much it is above
        that of the guess without messages, or above a coin where that is more. Both stand under the name of the column.
        """
        if attacker.name not in self._targets.of:
            problem = "its scores are about a column, and its threat doesn't know one (KnownColumn)"
            raise UserError(problem, key="attack", value=attacker.name)
        indices = query.indices(answer.ids, attacker.name)
        asked = query if indices is None else query.group(indices)
        target, truth = self._targets.of[attacker.name], self._targets.values(attacker.name, asked.ids)
        areas = []
        for scores in (answer.scores, answer.guess):
            checked = checked_scores(scores, len(asked.ids), target.count, attack=attacker.name, layer=answer.layer)
            counts = ~asked.known
            areas.append(_macro_auc(checked[counts.to(checked.device)], truth[counts].to(checked.device)))
        figures = {"attribute_auc": areas[0], "attribute_gain": areas[0] - max(areas[1], 0.5)}
        layer = f"{target.name} ({answer.layer})"
        key = (attacker.name, str(attacker.message or "none"), target.party, layer, attacker.visible)
        tables.reconstructions.add(key, figures)
        key = (attacker.name, "none", target.party, f"{target.name} (label and own columns)", attacker.visible)
        tables.reconstructions.add(key, {"attribute_auc": areas[1]})

    def _rebuilt_rows(self, attacker: Attacker, answer: RebuiltRows, query: QueryRows, tables: Tables) -> None:
        if self._rebuilt is None:
            problem = "the rows that it rebuilt can't be graded here: there are no held-out rows to compare them with"
            raise UserError(problem, key="attack", value=attacker.name)
        indices = query.indices(answer.ids, attacker.name)
        ids = query.ids if indices is None else query.ids[indices]
        number, kind = int(query.ids[0]), attacker.message or Kind.EMBEDDING
        self._rebuilt.grade(
            attacker.name, answer, self._rows.rows(ids), number, tables.reconstructions, attacker.party, kind
        )

    def _rebuilt_batch(self, attacker: Attacker, answer: RebuiltBatch, tables: Tables) -> None:
        if answer.step not in self._private:
            problem = f"it rebuilt the batch of step {answer.step}, which was not audited"
            raise UserError(problem, key="attack", value=attacker.name)
        truth = self._private[answer.step]
        names = ("rows", "labels", "candidates", "guess", "guess_label", "steps", "binary")
        guesses = ("guessed_rows", "guessed_labels", "column_guesses")
        parts = {name: getattr(answer, name) for name in (*names, *guesses)}
        tables.reconstructions.add(
            (attacker.name, str(attacker.message), truth.owner, answer.layer, attacker.visible),
            {**batch_figures(truth.x, truth.y, truth.steps, **parts), **answer.figures},
            batch_example(truth.x, truth.y, **parts, shares=answer.shares),
            answer.note,
        )

    def _class_counts(self, attacker: Attacker, answer: ClassCounts, query: QueryRows, tables: Tables) -> None:
        """count_error: half the sum of |differences| of shares, the share of rows that are counted for a wrong class;
        counts_right: 1 if every count is exact; guess_count_error: of the shares among the training rows.
        """
        if not query.is_batch:
            raise UserError("class counts are an answer about a batch, by Attack.batch", key="attack", value=attacker.name)
        n, classes = len(query.labels), len(self._shares)
        true = torch.bincount(query.labels.cpu(), minlength=classes).double()
        guess = torch.tensor(self._shares, dtype=torch.float64) * n
        for layer, counts in answer.layers.items():
            given = counts.detach().double().cpu()
            if tuple(given.shape) != (classes,) or not bool(given.isfinite().all()):
                problem = f"class counts must be {classes} finite numbers, got shape {tuple(given.shape)}"
                raise UserError(problem, key="attack", value=attacker.name)
            figures = {
                "count_error": float((given - true).abs().sum() / (2 * n)),
                "counts_right": float(torch.equal(given.round(), true)),
                "guess_count_error": float((guess - true).abs().sum() / (2 * n)),
            }
            key = (attacker.name, str(attacker.message or "none"), attacker.party, layer, attacker.visible)
            tables.reconstructions.add(key, figures)


def _add(scores: Tensor, half: Tensor, labels: Tensor, batch: Tensor, key: Key, table: LeakTable) -> None:
    """The halves are scored by two probes, whose scores don't compare."""
    for number in batch.unique():
        for which in (0, 1):
            rows = ((batch == number) & (half == which)).nonzero()[:, 0]
            table.add(key, scores[rows], labels[rows])


def _messages(facts: Mapping[str, Facts], party: str, layers: Sequence[str]) -> dict[tuple[Kind, str], Tensor]:
    """Kind and layer -> (n, d), of the layers that cross, in both directions; embeddings as they arrived, where the label
    party's facts are there.
    """
    crossed: dict[tuple[Kind, str], Tensor] = {}
    embeddings, gradients = (facts.get(party, {}).get(kind) for kind in (Embeddings, Gradients))
    arrived = facts.get(LABEL_PARTY, {}).get(Embeddings)
    sent: Mapping[str, Tensor] = embeddings.layers if isinstance(embeddings, Embeddings) else {}
    if isinstance(arrived, Embeddings):
        sent = {**sent, **arrived.received.get(party, {})}
    received = gradients.layers if isinstance(gradients, Gradients) else {}
    for kind, values in ((Kind.EMBEDDING, sent), (Kind.GRADIENT, received)):
        crossed |= {(kind, layer): values[layer] for layer in layers if layer in values}
    return crossed


def _listed(given: Mapping[str, Mapping[tuple[Kind, str], Any]]) -> list[list[Any]]:
    """[party, kind, name, values] each."""
    return [[party, str(kind), name, values] for party, of in given.items() for (kind, name), values in of.items()]


def _padded(values: Tensor, rows: int) -> Tensor:
    """With nan for rows that are missing at the end."""
    missing = rows - len(values)
    return values if missing <= 0 else torch.cat([values, values.new_full((missing, *values.shape[1:]), torch.nan)])


def _split(answer: ColumnScores, places: Tensor | None, groups: Sequence[Tensor]) -> Iterator[ColumnScores]:
    """The answer in ten parts. places: (n,) of its rows in the question, None for the order there. groups: of all places."""
    at = torch.arange(len(answer.ids)) if places is None else places.cpu()
    for group in torch.cat(list(groups)).chunk(_PARTS):
        rows = torch.isin(at, group.cpu()).nonzero()[:, 0]
        if len(rows):
            ids, scores, guess = (values[rows.to(values.device)] for values in (answer.ids, answer.scores, answer.guess))
            yield ColumnScores(ids, answer.layer, scores, guess)


def _macro_auc(scores: Tensor, truth: Tensor) -> float:
    """Of the values that some of the rows have, and not all. scores: (n,) or (n, K)."""
    columns = [scores] if scores.ndim == 1 else list(scores.T)
    values = [1] if scores.ndim == 1 else range(len(columns))
    defined = [auc(column, truth == value) for column, value in zip(columns, values, strict=True)]
    defined = [area for area in defined if area == area]
    return sum(defined) / len(defined) if defined else float("nan")
