"""Attack: what every entry of configs/attack builds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from torch import Tensor

from vflbench.messages.transcript import Knowledge, OwnFeatures, Seat, View
from vflbench.messages.wire import Kind

ABOUT = {"embeddings": (Knowledge.EMBEDDINGS, Kind.EMBEDDING), "gradients": (Knowledge.GRADIENTS, Kind.GRADIENT)}
"""What an attack with the option `message` must know, and the kind of message that its answer is about."""


@dataclass(frozen=True)
class RebuiltBatch:
    """What an attack makes of a private batch; nothing here was compared with it.

    rows: (m, d), nan where it can't tell; None if it has no answer. labels: (m,) in {-1, +1}, or shares of positives between
    them where only their number is known, nan where it can't tell; None as above. candidates: all batches (m, d) that it
    found to fit, `rows` among them. guess: (d,) what it takes an entry of each column for without any update; guess_label:
    likewise. steps: (m,) 0, 1, ...: the local step that each row was in, where it can tell. binary: (d,) bool, columns that
    it took for binary. shares: (m, d), how likely it holds a 1, in the order of rows. figures: of how it got there. note:
    why it has no answer, or less than all.
    """

    guess: Tensor
    guess_label: float
    rows: Tensor | None = None
    labels: Tensor | None = None
    candidates: Sequence[Tensor] = ()
    steps: Tensor | None = None
    binary: Tensor | None = None
    shares: Tensor | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


class Rebuilt(NamedTuple):
    """Features that an attack rebuilt from one batch.

    layer: whose messages it made them of. places: (m,) in the batch, of the rows they are about. features: party -> its
    columns of these rows, numeric (m, k) in [0, 1] and categorical (m, c) ids.
    """

    layer: str
    places: Tensor
    features: Mapping[str, OwnFeatures]


class Attack:
    """One inference rule. It reads a View and nothing else, and returns scores; it never sees a label.

    seat: the party whose view it has. knows: what it may read of that view. scores: the kind of message its answer is
    about; None if it looks at no message, and then its one layer is called `features`. Where an option decides on these
    two, the class says what holds by default, and an instance what holds for it. max_classes: the most classes it can tell
    apart (inf: any number). hints: how many known positives of a batch it needs; class_hints: whether it needs one known
    row of each class; the run chooses them, and never scores them. follows: for an attack that joins batches, how many rows
    it follows through the training (0: it looks at audited batches one by one). rebuilds: whether it answers with features,
    by `rebuild`, instead of scores; auxiliary: how many auxiliary rows it knows. collects: whether it rebuilds private
    batches, each of which it is shown in every epoch: it overrides `observe` and `rebuild_batch`.
    """

    seat: ClassVar[Seat] = Seat.NON_LABEL
    knows: ClassVar[frozenset[Knowledge]]
    scores: ClassVar[Kind | None]
    max_classes: ClassVar[float] = 2
    hints: int = 0
    class_hints: bool = False
    follows: int = 0
    collects: ClassVar[bool] = False
    rebuilds: ClassVar[bool] = False
    auxiliary: int = 0

    def __init_subclass__(cls) -> None:
        for name in ("knows", "scores"):
            if not hasattr(cls, name):
                raise TypeError(f"the attack {cls.__name__} must define `{name}`, as {Attack.__module__}.Attack says")

    def infer(self, view: View) -> Mapping[str, Tensor]:
        """Layer -> (n,) scores, higher for rows that are more likely positive, or (n, K), one column a class; called once
        an audited batch, in order.

        For an attack that follows rows: at the end of each epoch for each group of these rows, in a view without values.
        Each party has an instance of its own. An attack on embeddings is also shown the label party's layers, in a view
        with `visible` False and without gradients, for the record; leave out layers that can't be scored.
        """
        raise NotImplementedError

    def rebuild(self, view: View) -> Rebuilt:
        """For an attack that rebuilds data: the features of some rows of an audited batch; called once each, in order."""
        raise NotImplementedError

    def observe(self, view: View) -> None:
        """For an attack that follows rows: those of them that are in a batch, every batch; without hints. For one that
        collects: a round of an audited batch, which has the same `view.step` in every epoch.
        """
        raise NotImplementedError

    def rebuild_batch(self, view: View) -> Mapping[str, RebuiltBatch]:
        """For an attack that collects: layer -> what the batch of `view.step` is, at the end of each epoch."""
        raise NotImplementedError

    def unmet(self, offered: frozenset[Knowledge], classes: int) -> str | None:
        """Why this attack can't run here, or None. offered: what the protocol lets an attacker of this seat know."""
        missing = sorted(self.knows - offered)
        if missing:
            return f"it needs to know the {', '.join(missing)}, which this protocol does not give the {self.seat}"
        if classes > self.max_classes:
            return f"it tells {self.max_classes} classes apart, and the labels have {classes}"
        return None
