"""How far a run has come: all that changes from batch to batch, as plain values and back."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor

from vflbench.generators import Generators
from vflbench.messages.round import Facts, Training
from vflbench.protocols.base import Session
from vflbench.run.attackers import remembered
from vflbench.run.auditor import Auditor
from vflbench.run.grade_scores import Findings
from vflbench.run.recording import RoundRecorder
from vflbench.run.summary import LOSS_EVERY, EpochResult

_SERIES = ("losses", "penalties")


@dataclass
class Epoch:
    """An epoch under way.

    order: the state of the generator `batches` when the epoch began, so that the same order can be drawn again. step:
    batches that were trained on. losses, penalties: one of each batch.
    """

    number: int
    order: Tensor
    step: int = 0
    losses: list[float] = field(default_factory=list)
    penalties: list[float] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: {"train": 0.0, "audit": 0.0})

    def add(self, training: Training) -> None:
        """One more batch was trained on."""
        self.losses.append(training.loss)
        self.penalties.append(training.penalty)
        self.step += 1

    def result(self, findings: Findings) -> EpochResult:
        """What training and the attacks came to; what the model is worth is still to be measured."""
        ends = range(LOSS_EVERY, self.step + 1, LOSS_EVERY)
        losses = [math.fsum(self.losses[end - LOSS_EVERY : end]) / LOSS_EVERY for end in ends]
        loss, penalty = math.fsum(self.losses) / self.step, math.fsum(self.penalties) / self.step
        return EpochResult(
            self.number,
            loss,
            penalty,
            findings.leaks,
            dict(self.seconds),
            dependence=findings.dependence,
            reconstructions=findings.reconstructions,
            steps=self.step,
            losses=losses,
        )

    def state(self) -> dict[str, Any]:
        series = {name: torch.tensor(getattr(self, name), dtype=torch.float64) for name in _SERIES}
        return {**vars(self), **series}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        series = {name: state[name].tolist() for name in _SERIES}
        return cls(**{**state, **series, "order": state["order"].clone()})


@dataclass
class Progress:
    """results: of the finished epochs. epoch: the one under way, if any. rounds: keeps them on disk, if that is wanted."""

    generators: Generators
    session: Session
    auditor: Auditor
    rounds: RoundRecorder | None
    results: list[EpochResult] = field(default_factory=list)
    epoch: Epoch | None = None

    def begin_epoch(self) -> Epoch:
        """The epoch under way, or else the next."""
        if self.epoch is None:
            self.epoch = Epoch(len(self.results), self.generators["batches"].get_state())
        return self.epoch

    def facts_at_the_end(self, epoch: int) -> Mapping[str, Facts]:
        """What each party knows after the last batch about the rows that attacks are asked about; recorded, if wanted."""
        auditor, rounds, parts = self.auditor, self.rounds, self.auditor.parts_at_the_end
        wanted = auditor.wants_at_the_end | (rounds.wants_at_the_end if rounds is not None else frozenset())
        facts = remembered(self.session.facts(auditor.rows_at_the_end, wanted), parts)
        if rounds is not None:
            rounds.end_epoch(epoch, facts, parts)
        return facts

    def end_epoch(self, result: EpochResult) -> None:
        self.results.append(result)
        if self.rounds is not None:
            self.rounds.note_model(result.utility)
        self.epoch = None

    def __str__(self) -> str:
        if self.epoch is not None and self.epoch.step:
            return f"epoch {self.epoch.number}, step {self.epoch.step}"
        return f"epoch {len(self.results)}"

    def state(self) -> dict[str, Any]:
        """Tensors, numbers, strings, lists and dicts. In mid-epoch, `batches` is as the epoch began."""
        generators = self.generators.state()
        if self.epoch is not None:
            generators["cpu"]["batches"] = self.epoch.order
        return {
            "generators": generators,
            "session": self.session.state(),
            "attacks": self.auditor.state(),
            "traffic": self.session.wire.state(),
            "results": [result.state() for result in self.results],
            "epoch": None if self.epoch is None else self.epoch.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Bring a run that was just seated to where another one of the same configuration stood."""
        self.generators.restore(state["generators"])
        self.session.restore(state["session"])
        self.auditor.restore(state["attacks"])
        self.session.wire.restore(state["traffic"])
        self.results = [EpochResult.from_state(result) for result in state["results"]]
        self.epoch = None if state["epoch"] is None else Epoch.from_state(state["epoch"])
        numbers = [result.epoch for result in self.results] + ([] if self.epoch is None else [self.epoch.number])
        if numbers != list(range(len(numbers))):
            raise ValueError("its epochs are not those of a run")
