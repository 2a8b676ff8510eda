"""Answers held against the truth: the type of an answer decides how it is graded. An attack can't grade itself."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor

from vflbench.attacks.base import Answers, ClassCounts, ColumnScores, RebuiltBatch, RebuiltRows, Scores
from vflbench.errors import UserError
from vflbench.messages.facts import Embeddings
from vflbench.messages.message import Kind
from vflbench.messages.round import PrivateBatch, Round
from vflbench.messages.threat import Level
from vflbench.metrics.batch import batch_example, batch_figures
from vflbench.metrics.dependence import DependenceTable
from vflbench.metrics.leakage import LeakTable, checked_scores
from vflbench.metrics.reconstruction import ReconstructionTable
from vflbench.run.findings import Findings
from vflbench.run.grading import Grader
from vflbench.run.hidden_columns import HiddenColumns, split
from vflbench.run.known_rows import Lookup
from vflbench.run.posts import Post
from vflbench.run.probe_rows import ProbeRows
from vflbench.run.question import Question

Listener = Callable[[Post, str, Tensor, Tensor, Tensor], None]
"""Is given each answer of scores: the post, the layer, ids (n,), scores, and (n,) bool, rows that must not count."""


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


class Marker:
    """Grades answers into tables.

    rows: the truth by id. cut_of: party -> its cut layer. shares: of the classes among the training rows. grader: for
    rebuilt rows; None where there are no held-out rows to compare with. private: step -> the private batch of that round.
    hidden: columns that attacks are after, if any is.
    """

    def __init__(
        self,
        rows: Lookup,
        cut_of: Callable[[str], str],
        shares: tuple[float, ...],
        grader: Grader | None,
        private: Mapping[int, PrivateBatch],
        hidden: HiddenColumns | None = None,
    ):
        self._hidden = hidden
        self._rows, self._cut_of, self._shares, self._grader, self._private = rows, cut_of, shares, grader, private

    def mark(self, post: Post, answers: Answers, question: Question, tables: Tables) -> set[str]:
        """Add all that an attack answered. Returns the layers that were scored."""
        layers: set[str] = set()
        for answer in answers if isinstance(answers, Sequence) else [answers]:
            if answer is None:
                continue
            if isinstance(answer, Scores):
                layers |= self._scores(post, answer, question, tables)
            elif isinstance(answer, ColumnScores):
                self._column_scores(post, answer, question, tables)
            elif isinstance(answer, RebuiltRows):
                self._rebuilt_rows(post, answer, question, tables)
            elif isinstance(answer, RebuiltBatch):
                self._rebuilt_batch(post, answer, tables)
            elif isinstance(answer, ClassCounts):
                self._class_counts(post, answer, question, tables)
            else:
                allowed = "Scores, RebuiltRows, RebuiltBatch, ColumnScores, ClassCounts, a list of them, or None"
                problem = f"it answered with {type(answer).__name__}; allowed are {allowed}"
                raise UserError(problem, key="attack", value=post.name)
        return layers

    def mark_in_groups(
        self, post: Post, answers: Answers, question: Question, groups: Sequence[Tensor], tables: Tables
    ) -> None:
        """The same for an answer about all rows at once: scores are graded group by group. groups: places of the rows."""
        for answer in answers if isinstance(answers, Sequence) else [answers]:
            if isinstance(answer, ColumnScores):
                for rows in split(answer, question.places(answer.ids, post.name), groups):
                    self._column_scores(post, rows, question, tables)
                continue
            if not isinstance(answer, Scores):
                self.mark(post, answer, question, tables)
                continue
            places = question.places(answer.ids, post.name)
            row_of = torch.full((len(question.ids),), -1, device=question.ids.device)
            everyone = torch.arange(len(question.ids), device=question.ids.device)
            row_of[everyone if places is None else places] = torch.arange(len(answer.ids), device=question.ids.device)
            for group in groups:
                scored = group[row_of[group] >= 0]
                layers, candidates = (
                    {layer: values[row_of[scored].to(values.device)] for layer, values in by_layer.items()}
                    for by_layer in (self._by_layer(post, answer), answer.candidates)
                )
                part = Scores(question.names[scored], layers, answer.message, candidates)
                if len(scored):
                    self._scores(post, part, question.group(scored), tables)

    def _scores(self, post: Post, answer: Scores, question: Question, tables: Tables) -> set[str]:
        places = question.places(answer.ids, post.name)
        asked = question if places is None else question.group(places)
        known = asked.known.nonzero()[:, 0]
        layers = self._by_layer(post, answer)
        for layer, scores in layers.items():
            key = post.key(layer, answer.message)
            candidates = answer.candidates.get(layer)
            tables.leaks.add(key, scores, asked.labels, known, asked.canary, candidates)
            kind = post.message_of(answer.message)
            if tables.listener is not None:
                tables.listener(post, layer, asked.ids, scores, asked.known | asked.canary)
            if kind is not None and post.visible and post.threat.level is not Level.REFERENCE:
                name = (kind, f"{post.name} {layer}")
                if post.attack.follows:
                    tables.probed.hear_followed(
                        post.party, name, asked.ids, asked.labels, scores, asked.known | asked.canary
                    )
                else:
                    tables.probed.hear(post.party, name, asked.ids, scores, asked.known)
        return set(layers)

    def _by_layer(self, post: Post, answer: Scores) -> dict[str, Tensor]:
        """Layer -> scores; a single tensor counts for the cut layer, or for `features` where no message was read."""
        layers = answer.layers
        if not isinstance(layers, Mapping):
            message = post.message_of(answer.message)
            layers = {self._cut_of(post.party) if message in (Kind.EMBEDDING, Kind.GRADIENT) else "features": layers}
        rows, classes = len(answer.ids), len(self._shares)
        return {
            layer: checked_scores(scores, rows, classes, attack=post.name, layer=layer) for layer, scores in layers.items()
        }

    def _column_scores(self, post: Post, answer: ColumnScores, question: Question, tables: Tables) -> None:
        if self._hidden is None or post.name not in self._hidden.of:
            problem = "its scores are about a column, and its threat doesn't know one (KnownColumn)"
            raise UserError(problem, key="attack", value=post.name)
        places = question.places(answer.ids, post.name)
        asked = question if places is None else question.group(places)
        self._hidden.grade(post, answer, asked.ids, asked.known, tables.reconstructions)

    def _rebuilt_rows(self, post: Post, answer: RebuiltRows, question: Question, tables: Tables) -> None:
        if self._grader is None:
            problem = "the rows that it rebuilt can't be graded here: there are no held-out rows to compare them with"
            raise UserError(problem, key="attack", value=post.name)
        places = question.places(answer.ids, post.name)
        ids = question.ids if places is None else question.ids[places]
        number, kind = int(question.ids[0]), post.message or Kind.EMBEDDING
        self._grader.grade(post.name, answer, self._rows.rows(ids), number, tables.reconstructions, post.party, kind)

    def _rebuilt_batch(self, post: Post, answer: RebuiltBatch, tables: Tables) -> None:
        if answer.step not in self._private:
            problem = f"it rebuilt the batch of step {answer.step}, which was not audited"
            raise UserError(problem, key="attack", value=post.name)
        truth = self._private[answer.step]
        names = ("rows", "labels", "candidates", "guess", "guess_label", "steps", "binary")
        guesses = ("guessed_rows", "guessed_labels", "column_guesses")
        parts = {name: getattr(answer, name) for name in (*names, *guesses)}
        tables.reconstructions.add(
            (post.name, str(post.message), truth.owner, answer.layer, post.visible),
            {**batch_figures(truth.x, truth.y, truth.steps, **parts), **answer.figures},
            batch_example(truth.x, truth.y, **parts, shares=answer.shares),
            answer.note,
        )

    def _class_counts(self, post: Post, answer: ClassCounts, question: Question, tables: Tables) -> None:
        """count_error: half the sum of |differences| of shares, the share of rows that are counted for a wrong class;
        counts_right: 1 if every count is exact; guess_count_error: of the shares among the training rows.
        """
        if not question.is_batch:
            raise UserError("class counts are an answer about a batch, by Attack.batch", key="attack", value=post.name)
        n, classes = len(question.labels), len(self._shares)
        true = torch.bincount(question.labels.cpu(), minlength=classes).double()
        guess = torch.tensor(self._shares, dtype=torch.float64) * n
        for layer, counts in answer.layers.items():
            given = counts.detach().double().cpu()
            if tuple(given.shape) != (classes,) or not bool(given.isfinite().all()):
                problem = f"class counts must be {classes} finite numbers, got shape {tuple(given.shape)}"
                raise UserError(problem, key="attack", value=post.name)
            figures = {
                "count_error": float((given - true).abs().sum() / (2 * n)),
                "counts_right": float(torch.equal(given.round(), true)),
                "guess_count_error": float((guess - true).abs().sum() / (2 * n)),
            }
            key = (post.name, str(post.message or "none"), post.party, layer, post.visible)
            tables.reconstructions.add(key, figures)
