"""Attack: what every entry of configs/attack builds; the answers that it can give; and rows that it meets again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from vflbench.messages.facts import Embeddings, Fact, Gradients, PartyFeatures
from vflbench.messages.threat import Threat, View
from vflbench.messages.wire import Kind

MESSAGE_FACTS: Mapping[str, type[Embeddings] | type[Gradients]] = {"embeddings": Embeddings, "gradients": Gradients}
"""The fact that an attack with the option `message` reads."""


@dataclass(frozen=True)
class Scores:
    """Scores of rows: higher for rows that are more likely positive. Graded as leak AUC.

    Args:
        ids: (n,) names of the rows, all of `view.ids` or some.
        layers: layer -> (n,) scores, or (n, K), one column a class; a single tensor counts for the cut layer, or for
            `features` where no message was read.
        message: the kind of message that the scores are about; as the attack's threat says, if left out.
        candidates: layer -> (n, m) scores along m directions, between which, and between whose signs, the attacker can't
            decide without labels. `layers` has the scores that it chose; the auditor reports the best of the candidates as
            well, less what a coin reaches as the best of m.
    """

    ids: Tensor
    layers: Mapping[str, Tensor] | Tensor
    message: Kind | None = None
    candidates: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class RebuiltRows:
    """Features that an attack rebuilt from one batch. Graded column by column, or as pictures.

    Args:
        ids: (m,) names of the rows.
        layer: the layer whose messages they were made of.
        features: party -> its columns of these rows, numeric (m, k) in [0, 1] and categorical (m, c) ids.
        figures: of the search, reported beside those of the answer, name -> number.
        note: what the attack says of its answer.
    """

    ids: Tensor
    layer: str
    features: Mapping[str, PartyFeatures]
    figures: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class RebuiltBatch:
    """What an attack takes a private batch of federated training for; nothing here was compared with it.

    Args:
        step: the round in which the batch is met, the same in every epoch.
        guess: (d,) the entry of each column that it would guess without any update.
        guess_label: the label that it would guess without any update, -1 or +1.
        rows: (m, d), nan where unknown; None if it has no answer.
        labels: (m,) in {-1, +1}, or shares of positives between them where only their number is known, nan where unknown;
            None if it has no answer.
        candidates: all batches (m, d) that fit, `rows` among them.
        steps: (m,) 0, 1, ..., the local step of each row, where it is known.
        binary: (d,) bool, columns taken for binary.
        shares: (m, d) in [0, 1], how likely an entry is a 1, in the order of `rows`.
        guessed_rows: (m, d), nan where it has no guess: its best guess where rows are unknown, in their order; it claims
            nothing.
        column_guesses: (g, m, d), batches that follow from its own columns alone, as a reference for what an answer is
            worth.
        figures: of the search, name -> number.
        note: why it has no answer, or an incomplete one.
        layer: what the updates are about.
    """

    step: int
    guess: Tensor
    guess_label: float
    rows: Tensor | None = None
    labels: Tensor | None = None
    candidates: Sequence[Tensor] = ()
    steps: Tensor | None = None
    binary: Tensor | None = None
    shares: Tensor | None = None
    guessed_rows: Tensor | None = None
    column_guesses: Tensor | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    layer: str = "theta"


@dataclass(frozen=True)
class ColumnScores:
    """Scores of rows about a column of another party, `KnownColumn`, and not about the label. Graded by their AUC against
    that column, and by how much it is above that of a guess without messages; never a label leak.

    Args:
        ids: (n,) names of the rows.
        layer: that the scores were made of.
        scores: (n, K) for the K values of the column, or (n,) where there are two.
        guess: of the shape of `scores`, the same attack's answer without messages.
    """

    ids: Tensor
    layer: str
    scores: Tensor
    guess: Tensor


@dataclass(frozen=True)
class ClassCounts:
    """How many rows of each class a batch has. Graded by the error of the shares, beside that of the training rows' shares.

    Args:
        layers: layer -> (K,) counts, which need not be whole numbers.
    """

    layers: Mapping[str, Tensor]


Answer = Scores | ColumnScores | RebuiltRows | RebuiltBatch | ClassCounts
Answers = Answer | Sequence[Answer] | None


class Attack:
    """One inference rule. It reads a View and nothing else, and never sees the truth that its answer is graded against.

    A subclass overrides `observe`, `batch` and `epoch` as it needs them. The type of the answer decides how it is graded.
    Each party has an instance of its own. An attack on embeddings is also shown the label party's own layers, in a view with
    `visible` False; it leaves out layers that can't be scored.

    Attributes:
        threat: who attacks; of the instance, as options may decide.
        max_classes: the most classes it can tell apart (inf: any number).
        on_labels: whether it infers labels; it then has nothing to do at a party that holds them.
        every_round: whether `observe` is shown every round, not only the audited ones.
        follows: for an attack that joins the messages of several epochs, how many training rows it follows through the run;
            0 for others. `observe` is then shown every round, of each the followed rows in it and those whose labels it
            knows; and `epoch` is asked about the followed rows that were met.
        auxiliary: number of auxiliary rows it knows, if it declares `Auxiliary`.
    """

    max_classes: ClassVar[float] = 2
    on_labels: ClassVar[bool] = True
    every_round: ClassVar[bool] = False
    follows: int = 0
    auxiliary: int = 0

    def __init_subclass__(cls) -> None:
        if cls.threat is Attack.threat:
            raise TypeError(f"the attack {cls.__name__} must define `threat`, as {Attack.__module__}.Attack says")

    @property
    def threat(self) -> Threat:
        """Who attacks; a subclass may give it as a plain class attribute."""
        raise NotImplementedError

    def observe(self, view: View) -> None:
        """After a round that it observes, to keep what it needs of it."""

    def batch(self, view: View) -> Answers:
        """After an audited round, which it has observed: about the rows of that batch."""
        return None

    def epoch(self, view: View) -> Answers:
        """At the end of an epoch, about the rows `view.ids`: training rows that the attack follows, or else those of the
        audited batches of this epoch and a sample of others, up to 20,000 rows in all.

        `view.step` is None, and the view has no values of a round. An attack with hints is asked about one group of rows
        after the other, each as large as a batch, with hints of its own; others once, about all rows.
        """
        return None

    @classmethod
    def overrides(cls, method: str) -> bool:
        """Whether it has an `observe`, `batch` or `epoch` of its own."""
        return getattr(cls, method) is not getattr(Attack, method)

    def unmet(self, offered: frozenset[type[Fact]], classes: int, where: str = "this protocol") -> str | None:
        """Why this attack can't run, or None. offered: facts that an attacker in its role can have; where: who offers."""
        missing = sorted(fact.title or fact.__name__ for fact in self.threat.knows - offered)
        if missing:
            are = "are" if len(missing) > 1 or missing[0].endswith("s") else "is"
            return f"{' and '.join(missing)} {are} not in {where} for the {self.threat.role}"
        if classes > self.max_classes:
            return f"it tells {self.max_classes} classes apart, and the labels have {classes}"
        return None


def message_threat(message: str, *facts: type[Fact], hints: int = 0) -> Threat:
    """The threat of an attack with the option `message`. message: embeddings or gradients. facts: what else it knows."""
    return Threat(knows={MESSAGE_FACTS[message], *facts}, hints=hints)


class FollowedRows:
    """What an attack keeps of rows that it meets again: tables by their ids, on the CPU; plain values, which its state has.

    It adds what is new of some rows to what is known of them: sums over the messages of several epochs.
    """

    def __post_init__(self) -> None:
        self._ids = torch.empty(0, dtype=torch.int64)  # sorted
        self._tables: dict[str, Tensor] = {}  # name -> (n, d), in their order

    def add(self, ids: Tensor, values: Mapping[str, Tensor]) -> None:
        """Values of rows, (m, d) each, are added to those of the same ids (m,), which are zeros at first."""
        both = torch.cat([self._ids, ids]).unique()
        if len(both) > len(self._ids):
            places = torch.searchsorted(both, self._ids)
            for name, x in self._tables.items():
                self._tables[name] = x.new_zeros(len(both), x.shape[1]).index_copy_(0, places, x)
            self._ids = both
        for name, x in values.items():
            table = self._tables.setdefault(name, x.new_zeros(len(both), x.shape[1]))
            table.index_add_(0, self.places(ids), x)

    def places(self, ids: Tensor) -> Tensor:
        """(m,) in the tables, of rows that are in them."""
        return torch.searchsorted(self._ids, ids)


def last_met(met: Sequence[Tensor], asked: Tensor) -> tuple[Tensor, Tensor]:
    """Which of the rows asked about were met, bool, and the places of these in the batches side by side, where each was
    met last. met: ids (b,) of each batch, on the CPU. asked: (n,).
    """
    ids, order = torch.cat([asked[:0].cpu(), *met]).sort(stable=True)
    places = torch.searchsorted(ids, asked.cpu(), right=True) - 1
    is_met = torch.isin(asked.cpu(), ids)
    return is_met, order[places[is_met]]
