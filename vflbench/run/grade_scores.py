"""Answers held against the truth: the type of an answer decides how it is graded. An attack can't grade itself."""

import copy
import math
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
from vflbench.metrics.leakage import LeakTable, checked_scores
from vflbench.metrics.probe import probe
from vflbench.metrics.reconstruction import Reconstruction, ReconstructionTable
from vflbench.numerics.auc import auc
from vflbench.results.schema import PROBE
from vflbench.run.attackers import Attacker, AttributeTarget, Lookup
from vflbench.run.grade_reconstruction import ReconstructionGrader

FOLLOWED = "followed rows"

_PARTS = 10  # of column scores, graded one by one, for an interval
_GROUPS = 8
_ROWS = 4096  # for the probe, of each party in an epoch, at most
_BESIDE = ("step", "layer", "figures", "note", "shares")  # parts of a rebuilt batch that are not compared

Listener = Callable[[Attacker, str, Tensor, Tensor, Tensor], None]
"""Is given each answer of scores: the attacker, the layer, ids (n,), scores, and (n,) bool, rows that must not count."""
Source = tuple[str, str, str]
"""Party, kind of message, and the layer; of an attack's scores, its name and the layer."""


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

    def rows(self, indices: Tensor) -> "QueryRows":
        """These rows of it."""
        ids, names, labels = self.ids[indices], self.names[indices], self.labels[indices]
        return QueryRows(ids, names, labels, self.known[indices], self.canary[indices], self.is_batch)

    def indices(self, names: Tensor, attack: str) -> Tensor:
        """Indices of the rows with these names. Raises UserError, about this attack, for a name that was not asked about or
        that comes twice.
        """
        if not isinstance(names, Tensor):
            raise _wrong(attack, "the ids of its answer must be a tensor of names from view.ids")
        ordered, order = self.names.sort()
        if names.ndim == 1 and names.dtype == ordered.dtype and (len(ordered) or not len(names)):
            names = names.to(ordered.device)
            place = torch.searchsorted(ordered, names).clamp_(max=len(ordered) - 1)
            if torch.equal(ordered[place], names) and len(names.unique()) == len(names):
                return order[place]
        raise _wrong(attack, "an answer must be about rows of the view: ids from view.ids, in any order, each of them once")


def _no_rows() -> Tensor:
    return torch.empty(0, dtype=torch.int64)


@dataclass
class ProbeRows:
    """Rows of the audited batches of an epoch, and all that was said about them.

    ids, labels: (n,). batch: (n,) number of the audited batch. usable: (n,) bool, neither canaries nor rows whose label an
    attack was given. messages: (n, d) each. scores: (n,) or (n, K) each, nan where the attack was not asked. followed: the
    same of attacks that follow rows of their own through the epochs: ids, labels, usable and scores of these rows.
    """

    ids: Tensor = field(default_factory=_no_rows)
    labels: Tensor = field(default_factory=_no_rows)
    batch: Tensor = field(default_factory=_no_rows)
    usable: Tensor = field(default_factory=lambda: _no_rows().bool())
    messages: dict[Source, Tensor] = field(default_factory=dict)
    scores: dict[Source, Tensor] = field(default_factory=dict)
    followed: dict[Source, list[Tensor]] = field(default_factory=dict)

    def add_batch(
        self, round_: Round, labels: Tensor, canary: Tensor, crossing: Mapping[str, Sequence[str]], batches: int
    ) -> None:
        """The first rows of an audited batch. crossing: party -> layers that cross. batches: audited in this epoch."""
        rows = slice(0, max(1, _ROWS // batches))
        new = round_.ids[rows].cpu()
        sent = {
            (party, str(kind), layer): values[rows].float().cpu()
            for party, layers in crossing.items()
            for (kind, layer), values in _messages(round_.facts, party, layers).items()
        }
        for source, values in sent.items():
            self.messages.setdefault(source, _unasked(values, len(self.ids)))
        for kept, given in ((self.messages, sent), (self.scores, {})):
            for source, values in kept.items():
                kept[source] = torch.cat([values, given.get(source, _unasked(values, len(new)))])
        number = int(self.batch[-1]) + 1 if len(self.batch) else 0
        self.ids, self.labels = torch.cat([self.ids, new]), torch.cat([self.labels, labels[rows].cpu()])
        self.batch = torch.cat([self.batch, torch.full_like(new, number)])
        self.usable = torch.cat([self.usable, ~canary[rows].cpu()])

    def add_scores(self, source: Source, ids: Tensor, scores: Tensor, known: Tensor) -> None:
        """An attack's scores of rows. known: (n,) bool, rows whose label it was given."""
        if not len(self.ids) or not len(ids):
            return
        ordered, order = ids.cpu().sort()
        place = torch.searchsorted(ordered, self.ids).clamp_(max=len(ordered) - 1)
        is_asked = ordered[place] == self.ids
        self.usable &= ~(is_asked & known.cpu()[order[place]])
        column = self.scores.setdefault(source, _unasked(scores.double().cpu(), len(self.ids)))
        column[is_asked] = scores.double().cpu()[order[place[is_asked]]]

    def add_followed(self, source: Source, ids: Tensor, labels: Tensor, scores: Tensor, unusable: Tensor) -> None:
        """Scores of rows that an attack follows. unusable: (n,) bool."""
        new = [ids.cpu(), labels.cpu(), ~unusable.cpu(), scores.double().cpu()]
        kept = self.followed.get(source)
        self.followed[source] = new if kept is None else [torch.cat(pair) for pair in zip(kept, new, strict=True)]

    def grade(self, classes: int, rng: torch.Generator, table: LeakTable) -> None:
        """Fit probes at each party, and add their scores batch by batch, under the layers `embeddings`, `gradients` and,
        for both together, `messages`; and under `followed rows` what the scores of attacks that follow rows come to.
        """

        def add(party: str, layer: str, blocks: list[Tensor], heard: list[Tensor], labels: Tensor, batch: Tensor) -> None:
            scores, half = probe(blocks, heard, labels, batch, classes, rng)
            if scores is None:
                return
            for number in batch.unique():
                for which in (0, 1):  # the halves are scored by two probes, whose scores don't compare
                    rows = ((batch == number) & (half == which)).nonzero()[:, 0]
                    table.add((PROBE, "none", party, layer, True), scores[rows], labels[rows])

        usable = self.usable.nonzero()[:, 0]
        layers = {"embeddings": {Kind.EMBEDDING}, "gradients": {Kind.GRADIENT}, "messages": set(Kind)}
        for party in dict.fromkeys(party for party, *_ in self.messages):
            for layer, kinds in layers.items():
                blocks, heard = (
                    [values[usable] for (at, kind, _), values in given.items() if at == party and kind in kinds]
                    for given in (self.messages, self.scores)
                )
                if blocks:
                    add(party, layer, blocks, heard, self.labels[usable], self.batch[usable])
        for party in dict.fromkeys(party for party, *_ in self.followed):
            labels, columns = _of_shared_rows([parts for (at, *_), parts in self.followed.items() if at == party])
            order = torch.randperm(len(labels), generator=rng)
            batch = torch.arange(len(labels)) * _GROUPS // max(1, len(labels))
            add(party, FOLLOWED, [], [column[order] for column in columns], labels[order], batch)


def _of_shared_rows(heard: Sequence[Sequence[Tensor]]) -> tuple[Tensor, list[Tensor]]:
    """Labels, and the scores of each attack, of the rows about which all were asked: those of the one that follows fewest.

    heard: ids, labels, usable and scores of each attack.
    """
    ids, asked_by = torch.cat([ids[usable] for ids, _, usable, _ in heard]).unique(return_counts=True)
    ids = ids[asked_by == len(heard)]
    labels, columns = torch.zeros_like(ids), []
    for asked, truth, usable, answer in heard:
        is_kept = usable & torch.isin(asked, ids)
        place = torch.searchsorted(ids, asked[is_kept])
        labels[place] = truth[is_kept]
        columns.append(_unasked(answer, len(ids)))
        columns[-1][place] = answer[is_kept]
    return labels, columns


def _unasked(like: Tensor, rows: int) -> Tensor:
    """So many rows of nan."""
    return like.new_full((rows, *like.shape[1:]), torch.nan)


@dataclass(frozen=True)
class Findings:
    """What the attacks of an epoch came to. examples: arrays of rows as they are and as they were rebuilt."""

    leaks: list[Leak] = field(default_factory=list)
    dependence: list[Dependence] = field(default_factory=list)
    reconstructions: list[Reconstruction] = field(default_factory=list)
    examples: dict[str, Any] = field(default_factory=dict)


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
        return {name: vars(table) for name, table in vars(self).items() if name != "listener"}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """A copy, so that nothing hangs on the file that it was read from."""
        kinds = (LeakTable, DependenceTable, ReconstructionTable, ProbeRows)
        names = ("leaks", "dependence", "reconstructions", "probed")
        return cls(*(kind(**copy.deepcopy(state[name])) for kind, name in zip(kinds, names, strict=True)))


@dataclass(frozen=True)
class Grader:
    """Grades answers into tables.

    rows: the truth by id. cuts: party -> its cut layer. shares: of the classes among the training rows. rebuilt: grades
    rebuilt rows; None where there are no held-out rows to compare with. private: step -> the private batch of that round.
    targets: columns that attacks infer.
    """

    rows: Lookup
    cuts: Mapping[str, str]
    shares: tuple[float, ...]
    rebuilt: ReconstructionGrader | None
    private: dict[int, PrivateBatch]
    targets: Mapping[str, AttributeTarget]

    def grade(
        self, attacker: Attacker, answers: Answers, query: QueryRows, tables: Tables, groups: Sequence[Tensor] = ()
    ) -> set[str]:
        """Add all that an attack answered. Returns the layers that were scored.

        groups: indices of the rows whose scores are graded together, where all rows were asked about at once.
        """
        layers: set[str] = set()
        for whole in answers if isinstance(answers, Sequence) else [answers]:
            for answer, rows in self._in_groups(attacker, whole, query, groups) if groups else [(whole, query)]:
                if isinstance(answer, Scores):
                    layers |= self._scores(attacker, answer, rows, tables)
                elif isinstance(answer, ColumnScores):
                    self._column_scores(attacker, answer, rows, tables)
                elif isinstance(answer, RebuiltRows):
                    self._rebuilt_rows(attacker, answer, rows, tables)
                elif isinstance(answer, RebuiltBatch):
                    self._rebuilt_batch(attacker, answer, tables)
                elif isinstance(answer, ClassCounts):
                    self._class_counts(attacker, answer, rows, tables)
                elif answer is not None:
                    allowed = "Scores, RebuiltRows, RebuiltBatch, ColumnScores, ClassCounts, a list of them, or None"
                    raise _wrong(attacker.name, f"it answered with {type(answer).__name__}; allowed are {allowed}")
        return layers

    def _in_groups(
        self, attacker: Attacker, answer: Any, query: QueryRows, groups: Sequence[Tensor]
    ) -> Iterator[tuple[Any, QueryRows]]:
        """Scores group by group, those of a column in ten parts, each with the rows that it is about."""
        if not isinstance(answer, Scores | ColumnScores):
            yield answer, query
            return
        row_of = torch.full((len(query.ids),), -1, device=query.ids.device)
        row_of[query.indices(answer.ids, attacker.name)] = torch.arange(len(answer.ids), device=query.ids.device)
        by_layer = self._by_layer(attacker, answer) if isinstance(answer, Scores) else {}
        for group in groups if isinstance(answer, Scores) else torch.cat(list(groups)).chunk(_PARTS):
            scored = group[row_of[group] >= 0]
            rows = query.rows(scored)
            if not len(scored):
                continue
            if isinstance(answer, ColumnScores):
                scores, guess = (values[row_of[scored].to(values.device)] for values in (answer.scores, answer.guess))
                yield ColumnScores(rows.names, answer.layer, scores, guess), rows
                continue
            layers, candidates = (
                {layer: values[row_of[scored].to(values.device)] for layer, values in of.items()}
                for of in (by_layer, answer.candidates)
            )
            yield Scores(rows.names, layers, answer.message, candidates), rows

    def _scores(self, attacker: Attacker, answer: Scores, query: QueryRows, tables: Tables) -> set[str]:
        asked = query.rows(query.indices(answer.ids, attacker.name))
        layers, kind = self._by_layer(attacker, answer), attacker.message_of(answer.message)
        is_heard = kind is not None and attacker.visible and attacker.threat.level is not Level.REFERENCE
        unusable = asked.known | asked.canary
        for layer, scores in layers.items():
            key, known = attacker.key(layer, answer.message), asked.known.nonzero()[:, 0]
            tables.leaks.add(key, scores, asked.labels, known, asked.canary, answer.candidates.get(layer))
            if tables.listener is not None:
                tables.listener(attacker, layer, asked.ids, scores, unusable)
            source = (attacker.party, str(kind), f"{attacker.name} {layer}")
            if is_heard and attacker.attack.follows:
                tables.probed.add_followed(source, asked.ids, asked.labels, scores, unusable)
            elif is_heard:
                tables.probed.add_scores(source, asked.ids, scores, asked.known)
        return set(layers)

    def _by_layer(self, attacker: Attacker, answer: Scores) -> dict[str, Tensor]:
        """Layer -> scores; a single tensor counts for the cut layer, or for `features` where no message was read."""
        layers = answer.layers
        if not isinstance(layers, Mapping):
            crosses = attacker.message_of(answer.message) in (Kind.EMBEDDING, Kind.GRADIENT)
            layers = {self.cuts.get(attacker.party, "cut") if crosses else "features": layers}
        rows, classes = len(answer.ids), len(self.shares)
        return {
            layer: checked_scores(scores, rows, classes, attack=attacker.name, layer=layer)
            for layer, scores in layers.items()
        }

    def _column_scores(self, attacker: Attacker, answer: ColumnScores, query: QueryRows, tables: Tables) -> None:
        """attribute_auc: the mean over values of the AUC of a value against the others. attribute_gain: how much it is above
        that of the guess without messages, or above a coin where that is more. Both stand under the name of the column.
        """
        if attacker.name not in self.targets:
            raise _wrong(attacker.name, "its scores are about a column, and its threat doesn't know one (KnownColumn)")
        asked = query.rows(query.indices(answer.ids, attacker.name))
        target = self.targets[attacker.name]
        truth = target.values(self.rows.features(target.party, asked.ids))
        areas = []
        for scores in (answer.scores, answer.guess):
            checked = checked_scores(scores, len(asked.ids), target.count, attack=attacker.name, layer=answer.layer)
            counts = ~asked.known.to(checked.device)
            areas.append(_macro_auc(checked[counts], truth.to(checked.device)[counts]))
        figures = {"attribute_auc": areas[0], "attribute_gain": areas[0] - max(areas[1], 0.5)}
        message, layer = str(attacker.threat.message or "none"), f"{target.name} ({answer.layer})"
        tables.reconstructions.add((attacker.name, message, target.party, layer, attacker.visible), figures)
        key = (attacker.name, "none", target.party, f"{target.name} (label and own columns)", attacker.visible)
        tables.reconstructions.add(key, {"attribute_auc": areas[1]})

    def _rebuilt_rows(self, attacker: Attacker, answer: RebuiltRows, query: QueryRows, tables: Tables) -> None:
        if self.rebuilt is None:
            problem = "the rows that it rebuilt can't be graded here: there are no held-out rows to compare them with"
            raise _wrong(attacker.name, problem)
        truth = self.rows.rows(query.ids[query.indices(answer.ids, attacker.name)])
        number, kind = int(query.ids[0]), attacker.threat.message or Kind.EMBEDDING
        self.rebuilt.grade(attacker.name, answer, truth, number, tables.reconstructions, attacker.party, kind)

    def _rebuilt_batch(self, attacker: Attacker, answer: RebuiltBatch, tables: Tables) -> None:
        if answer.step not in self.private:
            raise _wrong(attacker.name, f"it rebuilt the batch of step {answer.step}, which was not audited")
        truth = self.private[answer.step]
        parts = {name: value for name, value in vars(answer).items() if name not in _BESIDE}
        tables.reconstructions.add(
            (attacker.name, str(attacker.threat.message), truth.owner, answer.layer, attacker.visible),
            {**batch_figures(truth.x, truth.y, truth.steps, **parts), **answer.figures},
            batch_example(truth.x, truth.y, **parts, shares=answer.shares),
            answer.note,
        )

    def _class_counts(self, attacker: Attacker, answer: ClassCounts, query: QueryRows, tables: Tables) -> None:
        """count_error: half the sum of |differences| of shares, the share of rows that are counted for a wrong class;
        counts_right: 1 if every count is exact; guess_count_error: of the shares among the training rows.
        """
        if not query.is_batch:
            raise _wrong(attacker.name, "class counts are an answer about a batch, by Attack.batch")
        n, classes = len(query.labels), len(self.shares)
        true = torch.bincount(query.labels.cpu(), minlength=classes).double()
        guess = torch.tensor(self.shares, dtype=torch.float64) * n
        for layer, counts in answer.layers.items():
            given = counts.detach().double().cpu()
            if tuple(given.shape) != (classes,) or not bool(given.isfinite().all()):
                problem = f"class counts must be {classes} finite numbers, got shape {tuple(given.shape)}"
                raise _wrong(attacker.name, problem)
            figures = {
                "count_error": float((given - true).abs().sum() / (2 * n)),
                "counts_right": float(torch.equal(given.round(), true)),
                "guess_count_error": float((guess - true).abs().sum() / (2 * n)),
            }
            tables.reconstructions.add(attacker.key(layer), figures)


def _wrong(attack: str, problem: str) -> UserError:
    return UserError(problem, key="attack", value=attack)


def _messages(facts: Mapping[str, Facts], party: str, layers: Sequence[str]) -> dict[tuple[Kind, str], Tensor]:
    """Kind and layer -> (n, d), of the layers that cross, in both directions; embeddings as they arrived, where the label
    party's facts are there.
    """
    embeddings, gradients = (facts.get(party, {}).get(kind) for kind in (Embeddings, Gradients))
    arrived = facts.get(LABEL_PARTY, {}).get(Embeddings)
    sent: Mapping[str, Tensor] = embeddings.layers if isinstance(embeddings, Embeddings) else {}
    if isinstance(arrived, Embeddings):
        sent = {**sent, **arrived.received.get(party, {})}
    received = gradients.layers if isinstance(gradients, Gradients) else {}
    both = ((Kind.EMBEDDING, sent), (Kind.GRADIENT, received))
    return {(kind, layer): values[layer] for kind, values in both for layer in layers if layer in values}


def _macro_auc(scores: Tensor, truth: Tensor) -> float:
    """Of the values that some of the rows have, and not all. scores: (n,) or (n, K)."""
    columns = [(1, scores)] if scores.ndim == 1 else enumerate(scores.T)
    areas = [auc(column, truth == value) for value, column in columns]
    defined = [area for area in areas if not math.isnan(area)]
    return sum(defined) / len(defined) if defined else math.nan
