"""Answers held against the truth: the type of an answer decides how it is graded. An attack can't grade itself."""

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from vflbench.attacks.base import Answers, ClassCounts, ColumnScores, RebuiltBatch, RebuiltRows, Scores
from vflbench.data.table import LABEL_PARTY
from vflbench.errors import UserError
from vflbench.messages.facts import Embeddings, Gradients
from vflbench.messages.threat import Level, PrivateBatch, Round
from vflbench.messages.wire import Kind
from vflbench.metrics.leak import Leak, LeakTable, checked_scores
from vflbench.metrics.probe import probe
from vflbench.metrics.reconstruction import Reconstruction, ReconstructionTable, batch_example, batch_figures
from vflbench.metrics.utility import Dependence, DependenceTable
from vflbench.numerics.auc import auc
from vflbench.results.schema import PROBE
from vflbench.run.attackers import Attacker, AttributeTarget, RowIndex, RowLookup
from vflbench.run.grade_reconstruction import ReconstructionGrader

FOLLOWED = "followed rows"

_PARTS = 10  # of column scores, graded one by one, for an interval
_GROUPS = 8
_ROWS = 4096  # for the probe, of each party in an epoch, at most
_NOT_COMPARED = ("step", "layer", "figures", "note", "shares")  # parts of a rebuilt batch that are not compared

Listener = Callable[[Attacker, str, Tensor, Tensor, Tensor], None]
"""Is given each answer of scores: the attacker, the layer, ids (n,), scores, and (n,) bool, rows that must not count."""
Source = tuple[str, str, str]
"""Party, kind of message, and the layer; of an attack's scores, its name and the layer."""


@dataclass(frozen=True)
class QueryRows:
    """The rows that an attack was asked about, and what must not count.

    ids, names, labels: (n,). known: (n,) bool, rows whose label the attacker was given. canary: (n,) bool. epoch, step:
    when; step is None at the end of an epoch, and of a whole batch, whose classes can be counted, else.
    """

    ids: Tensor
    names: Tensor
    labels: Tensor
    known: Tensor
    canary: Tensor
    epoch: int
    step: int | None

    def rows(self, indices: Tensor) -> "QueryRows":
        """These rows of it."""
        parts: dict[str, Any] = {name: part[indices] for name, part in vars(self).items() if isinstance(part, Tensor)}
        return replace(self, **parts)

    def parts(self, names: Tensor, attack: str, groups: Sequence[Tensor] = ()) -> Iterator[tuple[Any, "QueryRows"]]:
        """Of an answer about the rows with these names: places in the answer, and the rows, of each group of which it has
        any; without groups, of all. groups: indices (n,) each. Raises UserError, about this attack, for a name that was not
        asked about or that comes twice.
        """
        if not isinstance(names, Tensor):
            raise _wrong(attack, "the ids of its answer must be a tensor of names from view.ids")
        is_right = names.ndim == 1 and names.dtype == self.names.dtype
        if is_right:
            is_there, at = RowIndex(self.names).find(names.to(self.names.device))
            is_right = bool(is_there.all()) and len(names.unique()) == len(names)
        if not is_right:
            raise _wrong(
                attack, "an answer must be about rows of the view: ids from view.ids, in any order, each of them once"
            )
        if not groups:
            yield slice(None), self.rows(at)
        place = torch.full_like(self.names, -1).index_put_((at,), torch.arange(len(names), device=at.device))
        for group in groups:
            answered = group[place[group] >= 0]
            if len(answered):
                yield place[answered].cpu(), self.rows(answered)


@dataclass
class ProbeRows:
    """Rows of the audited batches of an epoch, and all that was said about them.

    batches: ids, labels and usable (n,) of the first rows of each; usable: neither canaries nor rows whose label an attack
    was given. messages, scores: by source, of some of these rows their ids (m,) and values (m, ...), as often as there were
    any. followed: of attacks that follow rows of their own through the epochs: ids, labels, usable and scores of these rows.
    """

    batches: list[list[Tensor]] = field(default_factory=list)
    messages: dict[Source, list[list[Tensor]]] = field(default_factory=dict)
    scores: dict[Source, list[list[Tensor]]] = field(default_factory=dict)
    followed: dict[Source, list[Tensor]] = field(default_factory=dict)

    def add_batch(
        self, round_: Round, labels: Tensor, canary: Tensor, crossing: Mapping[str, Sequence[str]], batches: int
    ) -> None:
        """The first rows of an audited batch, and what crossed about them; embeddings as they arrived, where the label
        party's facts are there. crossing: party -> layers that cross. batches: audited in this epoch.
        """
        rows = slice(0, max(1, _ROWS // batches))
        ids = round_.ids[rows].cpu()
        self.batches.append([ids, labels[rows].cpu(), ~canary[rows].cpu()])
        for party, layers in crossing.items():
            known, at_label = (round_.facts.get(one, {}) for one in (party, LABEL_PARTY))
            sent, received = (getattr(known.get(kind), "layers", {}) for kind in (Embeddings, Gradients))
            arrived = getattr(at_label.get(Embeddings), "received", {}).get(party, {})
            for kind, values in ((Kind.EMBEDDING, {**sent, **arrived}), (Kind.GRADIENT, received)):
                for layer in filter(values.__contains__, layers):
                    self.messages.setdefault((party, str(kind), layer), []).append([ids, values[layer][rows].float().cpu()])

    def add_scores(self, source: Source, ids: Tensor, scores: Tensor, known: Tensor) -> None:
        """An attack's scores of rows. known: (n,) bool, rows whose label it was given."""
        ids, known = ids.cpu(), known.cpu()
        for of_batch, _, usable in self.batches:
            usable &= ~torch.isin(of_batch, ids[known])
        is_there = torch.isin(ids, torch.cat([ids[:0], *(of_batch for of_batch, *_ in self.batches)]))
        self.scores.setdefault(source, []).append([ids[is_there], scores.double().cpu()[is_there]])

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

        if self.messages:
            ids, labels, usable = (torch.cat(parts) for parts in zip(*self.batches, strict=True))
            batch = torch.arange(len(self.batches)).repeat_interleave(torch.tensor([len(of[0]) for of in self.batches]))
            ids, labels, batch = ids[usable], labels[usable], batch[usable]
            layers = {"embeddings": {Kind.EMBEDDING}, "gradients": {Kind.GRADIENT}, "messages": set(Kind)}
            for party in dict.fromkeys(party for party, *_ in self.messages):
                for layer, kinds in layers.items():
                    blocks, heard = (
                        [_in_order(ids, said) for (at, kind, _), said in given.items() if at == party and kind in kinds]
                        for given in (self.messages, self.scores)
                    )
                    if blocks:
                        add(party, layer, blocks, heard, labels, batch)
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
    labels = heard[0][1][RowIndex(heard[0][0]).find(ids)[1]]
    return labels, [_in_order(ids, [[asked[usable], scores[usable]]]) for asked, _, usable, scores in heard]


def _in_order(ids: Tensor, said: Sequence[Sequence[Tensor]]) -> Tensor:
    """(n, ...) what was said of these rows; nan of a row of which nothing was. said: ids (m,) and values (m, ...) each."""
    asked, values = (torch.cat(parts) for parts in zip(*said, strict=True))
    is_there, place = RowIndex(asked).find(ids)
    ordered_values = values.new_full((len(ids), *values.shape[1:]), torch.nan)
    ordered_values[is_there] = values[place[is_there]]
    return ordered_values


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

    def measure(self, round_: Round, labels: Tensor, canary: Tensor, visible: Sequence[str], hidden: Sequence[str]) -> None:
        """How far the embeddings of every layer of these parties depend on the labels, canaries aside."""
        for party in (*visible, *hidden):
            for layer, h in getattr(round_.facts.get(party, {}).get(Embeddings), "layers", {}).items():
                self.dependence.add((party, layer, party in visible), h[~canary], labels[~canary])

    def state(self) -> dict[str, Any]:
        return {name: vars(table) for name, table in vars(self).items() if name != "listener"}

    def restore(self, state: Mapping[str, Any]) -> None:
        """A copy, so that nothing hangs on the file that it was read from."""
        for name, saved in state.items():
            vars(getattr(self, name)).update(copy.deepcopy(saved))


@dataclass
class Grader:
    """Grades answers into the tables of the epoch.

    rows: the truth by id. cuts: party -> its layers that cross. shares: of the classes among the training rows. rebuilt:
    grades rebuilt rows; None where there are no held-out rows to compare with. targets: columns that attacks infer. private:
    step -> the private batch of that round.
    """

    rows: RowLookup
    cuts: Mapping[str, Sequence[str]]
    shares: tuple[float, ...]
    rebuilt: Callable[[], ReconstructionGrader] | None
    targets: Mapping[str, AttributeTarget]
    tables: Tables
    private: dict[int, PrivateBatch] = field(default_factory=dict)

    def grade(self, attacker: Attacker, answers: Answers, query: QueryRows, groups: Sequence[Tensor] = ()) -> set[str]:
        """Add all that an attack answered. Returns the layers that were scored.

        groups: indices of the rows whose scores are graded together, where all rows were asked about at once.
        """
        layers: set[str] = set()
        for answer in answers if isinstance(answers, Sequence) else [answers]:
            if isinstance(answer, Scores):
                layers |= self._scores(attacker, answer, query, groups)
            elif isinstance(answer, ColumnScores):
                self._column_scores(attacker, answer, query, groups)
            elif isinstance(answer, RebuiltRows):
                self._rebuilt_rows(attacker, answer, query)
            elif isinstance(answer, RebuiltBatch):
                self._rebuilt_batch(attacker, answer)
            elif isinstance(answer, ClassCounts):
                self._class_counts(attacker, answer, query)
            elif answer is not None:
                allowed = "Scores, RebuiltRows, RebuiltBatch, ColumnScores, ClassCounts, a list of them, or None"
                raise _wrong(attacker.name, f"it answered with {type(answer).__name__}; allowed are {allowed}")
        return layers

    def _scores(self, attacker: Attacker, answer: Scores, query: QueryRows, groups: Sequence[Tensor]) -> set[str]:
        """A single tensor counts for the cut layer, or for `features` where no message was read."""
        layers, kind = answer.layers, attacker.message_of(answer.message)
        if not isinstance(layers, Mapping):
            crosses = kind in (Kind.EMBEDDING, Kind.GRADIENT)
            layers = {self.cuts.get(attacker.party, ("cut",))[0] if crosses else "features": layers}
        rows, classes, candidates = len(answer.ids), len(self.shares), answer.candidates
        checked = {
            layer: checked_scores(scores, rows, classes, attack=attacker.name, layer=layer)
            for layer, scores in layers.items()
        }
        is_heard = kind is not None and attacker.visible and attacker.threat.level is not Level.REFERENCE
        for places, asked in query.parts(answer.ids, attacker.name, groups):
            known, unusable = asked.known.nonzero()[:, 0], asked.known | asked.canary
            for layer, of_all in checked.items():
                scores, directions = of_all[places], candidates[layer][places] if layer in candidates else None
                key, source = attacker.key(layer, answer.message), (attacker.party, str(kind), f"{attacker.name} {layer}")
                self.tables.leaks.add(key, scores, asked.labels, known, asked.canary, directions)
                if self.tables.listener is not None:
                    self.tables.listener(attacker, layer, asked.ids, scores, unusable)
                if is_heard and attacker.attack.follows:
                    self.tables.probed.add_followed(source, asked.ids, asked.labels, scores, unusable)
                elif is_heard:
                    self.tables.probed.add_scores(source, asked.ids, scores, asked.known)
        return set(checked)

    def _column_scores(self, attacker: Attacker, answer: ColumnScores, query: QueryRows, groups: Sequence[Tensor]) -> None:
        """attribute_auc: the mean over values of the AUC of a value against the others. attribute_gain: how much it is above
        that of the guess without messages, or above a coin where that is more. Both stand under the name of the column.
        Graded in ten parts where all rows were asked about at once.
        """
        if attacker.name not in self.targets:
            raise _wrong(attacker.name, "its scores are about a column, and its threat doesn't know one (KnownColumn)")
        target, parts = self.targets[attacker.name], torch.cat(list(groups)).chunk(_PARTS) if groups else ()
        message, reference = str(attacker.threat.message or "none"), f"{target.name} (label and own columns)"
        key = (attacker.name, message, target.party, f"{target.name} ({answer.layer})", attacker.visible)
        for places, asked in query.parts(answer.ids, attacker.name, parts):
            truth, areas = target.values(self.rows.features(target.party, asked.ids)), []
            for scores in (answer.scores[places], answer.guess[places]):
                checked = checked_scores(scores, len(asked.ids), target.count, attack=attacker.name, layer=answer.layer)
                counts = ~asked.known.to(checked.device)
                areas.append(_macro_auc(checked[counts], truth.to(checked.device)[counts]))
            figures = {"attribute_auc": areas[0], "attribute_gain": areas[0] - max(areas[1], 0.5)}
            self.tables.reconstructions.add(key, figures)
            reference_key = (attacker.name, "none", target.party, reference, attacker.visible)
            self.tables.reconstructions.add(reference_key, {"attribute_auc": areas[1]})

    def _rebuilt_rows(self, attacker: Attacker, answer: RebuiltRows, query: QueryRows) -> None:
        if self.rebuilt is None:
            problem = "the rows that it rebuilt can't be graded here: there are no held-out rows to compare them with"
            raise _wrong(attacker.name, problem)
        for _, asked in query.parts(answer.ids, attacker.name):
            truth, number = self.rows.rows(asked.ids), int(query.ids[0])
            kind, table = attacker.threat.message or Kind.EMBEDDING, self.tables.reconstructions
            self.rebuilt().grade(attacker.name, answer, truth, number, table, attacker.party, kind)

    def _rebuilt_batch(self, attacker: Attacker, answer: RebuiltBatch) -> None:
        if answer.step not in self.private:
            raise _wrong(attacker.name, f"it rebuilt the batch of step {answer.step}, which was not audited")
        truth = self.private[answer.step]
        parts = {name: value for name, value in vars(answer).items() if name not in _NOT_COMPARED}
        self.tables.reconstructions.add(
            (attacker.name, str(attacker.threat.message), truth.owner, answer.layer, attacker.visible),
            {**batch_figures(truth.x, truth.y, truth.steps, **parts), **answer.figures},
            batch_example(truth.x, truth.y, **parts, shares=answer.shares),
            answer.note,
        )

    def _class_counts(self, attacker: Attacker, answer: ClassCounts, query: QueryRows) -> None:
        """count_error: half the sum of |differences| of shares, the share of rows that are counted for a wrong class;
        counts_right: 1 if every count is exact; guess_count_error: of the shares among the training rows.
        """
        if query.step is None:
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
            self.tables.reconstructions.add(attacker.key(layer), figures)


def _wrong(attack: str, problem: str) -> UserError:
    return UserError(problem, key="attack", value=attack)


def _macro_auc(scores: Tensor, truth: Tensor) -> float:
    """Of the values that some of the rows have, and not all. scores: (n,) or (n, K)."""
    columns = [(1, scores)] if scores.ndim == 1 else enumerate(scores.T)
    areas = [auc(column, truth == value) for value, column in columns]
    defined = [area for area in areas if not math.isnan(area)]
    return sum(defined) / len(defined) if defined else math.nan
