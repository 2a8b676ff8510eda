"""An audit as `vflbench audit` makes it: the recording in, the values of a result folder out."""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vflbench.options import Seed, Steps, options
from vflbench.results.levels import level_of
from vflbench.results.schema import Observed, Summary
from vflbench.run.findings import AuditResult, Findings
from vflbench.run.guarantees import verdict
from vflbench.run.summary import leak_quantities, what_attacks_read

if TYPE_CHECKING:
    from vflbench.attacks.base import Attack
    from vflbench.messages.recorded_messages import RecordedMessages

KIND = "audit"
"""The entry `kind` of an audit's manifest; runs that trained have none."""


@options
class AuditOptions:
    """What is asked of an audit, beside its attacks.

    labels: a file of labels in place of the recording's own. batches, epochs, seed, probe: None: as in the recorded run.
    """

    seed: Seed | None = None
    labels: str | None = None
    batches: Steps | Literal["all", "auto"] | None = None
    epochs: Literal["all", "last"] | None = None
    probe: bool | None = None


def audit_recording(recording: RecordedMessages, attacks: Mapping[str, Attack], wanted: AuditOptions) -> AuditResult:
    """Attack the messages of a recording, in a process that is tuned as that of a run. Raises UserError."""
    from vflbench.run.offline import audit  # late: grades and contents need no torch

    return audit(
        recording,
        attacks,
        seed=wanted.seed,
        batches=wanted.batches,
        epochs=wanted.epochs,
        probe=wanted.probe,
        labels=wanted.labels,
    )


def audit_facts(result: AuditResult) -> dict[str, Any]:
    """What an audit's manifest says beside its provenance, as that of a run."""
    last = result.findings[-1] if result.findings else None
    shares = list(result.class_shares)
    return {
        "seed": result.seed,
        "batch_size": result.batch_size,
        "data": {
            "train_rows": result.listed,
            "classes": len(shares),
            "train_positive_ratio": shares[1] if len(shares) == 2 else None,
            "train_class_ratios": shares,
        },
        "model": dict(result.model),
        "claims": dict(result.claims),
        "notes": list(result.notes),
        "cut_layers": {party: list(layers) for party, layers in result.cut_layers.items()},
        "layers": {party: list(layers) for party, layers in result.layers.items()},
        "threats": {name: dict(threat) for name, threat in result.threats.items()},
        "skipped": dict(result.skipped),
        "unscored": dict(result.unscored),
        "adversary": {},
        "threads": sys.modules["torch"].get_num_threads() if "torch" in sys.modules else 1,
        "quantities": sorted(
            {"seconds", *result.model, *(leak_quantities(last.leaks, last.reconstructions) if last else ())}
        ),
    }


def audit_summary(result: AuditResult, seconds: float, skipped: Mapping[str, str]) -> Summary:
    """The summary, with the keys of a run; what the messages don't say of the model is None.

    seconds: that the audit took. skipped: attack -> why it did not run.
    """
    last = result.findings[-1] if result.findings else Findings([], [], [], {})
    levels = {leak.attack: level_of(leak.attack, result.threats) for leak in last.leaks}
    model: dict[str, Any] = {"test_auc": None, "train_auc": None, **result.model}
    test_auc = result.model.get("test_auc", math.nan)
    return Summary(
        epochs=len(result.findings),
        **model,
        **what_attacks_read(last),
        verdict=verdict(last.leaks, levels, {}, test_auc, (), result.cut_layers),
        skipped=dict(skipped),
        unscored=dict(result.unscored),
        guarantees={},
        claims_refused={},
        privacy=None,
        observed_privacy=Observed(**result.observed) if result.observed else None,
        embedding_privacy=[],
        failed=None,
        figures=[],
        seconds=round(seconds, 3),
        facts={},
    )


def recording_source(recording: Path, labels: str | None = None) -> dict[str, Any]:
    """Where a recording lies, and its state: the names, sizes and times of its files, as a digest; the time of
    change among them, which can't be set back.

    A result of another state is never taken for one of this recording.
    """
    files = sorted(Path(place) / name for place, _, names in os.walk(recording) for name in names)
    states = [(file, os.lstat(file)) for file in [*files, *([Path(labels)] if labels else [])]]
    listed = [[os.path.relpath(file, recording), s.st_size, s.st_mtime_ns, s.st_ctime_ns] for file, s in states]
    return {
        "path": str(recording),
        "files": len(states),
        "bytes": sum(state.st_size for _, state in states),
        "modified_ns": max((state.st_mtime_ns for _, state in states), default=0),
        "state": hashlib.sha256(json.dumps(listed).encode()).hexdigest()[:16],
    }
