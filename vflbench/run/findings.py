"""What an epoch's attacks came to, and an audit's: plain figures, which load no torch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vflbench.metrics.leak import Leak
from vflbench.results.rows import Row

if TYPE_CHECKING:
    from vflbench.metrics.dependence import Dependence
    from vflbench.metrics.reconstruction import Reconstruction


@dataclass(frozen=True)
class Findings:
    """What the attacks of an epoch came to. examples: arrays of rows as they are and as they were rebuilt."""

    leaks: list[Leak]
    dependence: list[Dependence]
    reconstructions: list[Reconstruction]
    examples: dict[str, Any]


@dataclass(frozen=True)
class AuditResult:
    """What an audit of recorded messages came to.

    findings: of each epoch. skipped, unscored: attack -> why it could not run, or why nothing could be scored.
    threats: attack -> who attacks, as a run's manifest has it, also of references. layers, cut_layers: party -> all layers,
    and those that cross. class_shares: of the K classes among the training rows. listed:
    training rows of which it has labels.
    batch_size: rows of a batch. seed: that was used. model: figures of the finished model (test_auc, train_auc, ...), as far
    as the recording has them. claims: what it promises about labels. observed: what messages
    show against that, as `ObservedPrivacy.plain`; empty where nothing is promised. notes: lines that a user must not miss.
    """

    findings: list[Findings]
    skipped: dict[str, str]
    unscored: dict[str, str]
    threats: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    layers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    cut_layers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    class_shares: Sequence[float] = ()
    listed: int = 0
    batch_size: int = 0
    seed: int = 0
    model: Mapping[str, float] = field(default_factory=dict)
    claims: Mapping[str, Any] = field(default_factory=dict)
    observed: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def rows(self) -> list[Row]:
        """The same rows that a run writes to metrics.csv about its attacks."""
        from vflbench.run.summary import finding_rows

        return [row for epoch, findings in enumerate(self.findings) for row in finding_rows(epoch, findings)]


def unanswered(attacks: Sequence[str], scored: Collection[str]) -> dict[str, str]:
    """Attack -> why it has no score, for those that were asked and have none."""
    reason = "it gave no answer that counts: none at all, or about rows that are known, are canaries or are of one class"
    return dict.fromkeys((name for name in attacks if name not in scored), reason)
