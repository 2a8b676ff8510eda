"""Results of an epoch, and of a run as summary.json."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, Self

from vflbench.data.rows import TrainTest
from vflbench.defenses.base import Defense
from vflbench.defenses.chain import Figures, claims_of
from vflbench.messages.message import Kind
from vflbench.messages.wire import Traffic, traffic_from, traffic_state
from vflbench.metrics.dependence import Dependence
from vflbench.metrics.embedding_privacy import Sent
from vflbench.metrics.exposure import Exposure
from vflbench.metrics.leak import Leak
from vflbench.metrics.reconstruction import Reconstruction
from vflbench.metrics.verdict import Reading, reading, strength
from vflbench.numerics.interval import Interval, auc_interval
from vflbench.results.levels import level_of
from vflbench.results.schema import Summary
from vflbench.run.account import account, embedding_account, failure
from vflbench.run.known_rows import Canaries
from vflbench.run.leak_summary import leak_figures
from vflbench.run.verdict import messages_changed, promised, verdict

LOSS_EVERY = 100
"""Steps between lines of loss.log."""

_REBUILT = ("entries_right", "recognised", "identified", "r2")
"""The figure of rebuilt data in an epoch's line is the first of these that there is."""

TrafficByRoute = Mapping[tuple[str, str, Kind], Traffic]


@dataclass
class EpochResult:
    """One epoch. utility: train and test -> metric -> value. traffic, seconds: by phase.

    figures: what the defenses counted and measured. steps: of the epoch. losses: the mean loss of each LOSS_EVERY steps.
    """

    epoch: int
    loss: float
    penalty: float
    leaks: list[Leak]
    seconds: dict[str, float]
    utility: dict[str, dict[str, float]] = field(default_factory=dict)
    traffic: dict[str, TrafficByRoute] = field(default_factory=dict)
    figures: list[Figures] = field(default_factory=list)
    dependence: list[Dependence] = field(default_factory=list)
    reconstructions: list[Reconstruction] = field(default_factory=list)
    steps: int = 0
    losses: list[float] = field(default_factory=list)

    def state(self) -> dict[str, Any]:
        """The same in numbers, strings, lists and dicts."""
        return {
            "epoch": self.epoch,
            "loss": self.loss,
            "penalty": self.penalty,
            "leaks": [leak.state() for leak in self.leaks],
            "seconds": dict(self.seconds),
            "utility": {split: {m: float(v) for m, v in metrics.items()} for split, metrics in self.utility.items()},
            "traffic": {phase: traffic_state(traffic) for phase, traffic in self.traffic.items()},
            "figures": [[f.party, f.layer, f.message, dict(f.values)] for f in self.figures],
            "dependence": [[d.party, d.layer, d.visible, [d.dcor.mean, d.dcor.low, d.dcor.high]] for d in self.dependence],
            "reconstructions": [one.state() for one in self.reconstructions],
            "steps": self.steps,
            "losses": list(self.losses),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        leaks = [Leak.from_state(leak) for leak in state["leaks"]]
        traffic = {phase: traffic_from(rows) for phase, rows in state["traffic"].items()}
        figures = [Figures(*figures) for figures in state["figures"]]
        dependence = [
            Dependence(party, layer, visible, Interval(*dcor)) for party, layer, visible, dcor in state["dependence"]
        ]
        lists = {"leaks": leaks, "figures": figures, "dependence": dependence}
        lists["reconstructions"] = [Reconstruction.from_state(one) for one in state["reconstructions"]]
        return cls(**{**state, "traffic": traffic, **lists})

    def loss_lines(self) -> list[str]:
        """`epoch 0 step 100/2582 loss: 0.588637`: the mean loss of the 100 steps that end there, for step 100, 200, ..."""
        ends = [LOSS_EVERY * (i + 1) for i in range(len(self.losses))]
        return [
            f"epoch {self.epoch} step {end}/{self.steps} loss: {loss:.6f}"
            for end, loss in zip(ends, self.losses, strict=True)
        ]

    def line(self) -> str:
        """The epoch in one line for a person."""
        seen: dict[str, list[Reading]] = {leak.attack: [] for leak in self.leaks if leak.visible}
        for leak in self.leaks:
            if leak.visible and leak.batches:
                seen[leak.attack].append(reading(leak))
        leaks = "".join(f"  {attack} {_strongest(readings)}" for attack, readings in seen.items())
        best: dict[str, str] = {}
        for one in self.reconstructions:
            if one.visible and one.message != "none":  # of several parties, all of them together, which come last
                figures = ", ".join(f"{name} {v.mean:.4g}" for name, v in one.figures.items() if ":" not in name)
                best[one.attack] = f"  {one.attack} {figures}"
        rebuilt = "".join(best.values())
        leaks = "" if rebuilt and not leaks else f"  worst leak AUC{leaks or ': no attack ran'}"
        return (
            f"epoch {self.epoch} done: loss {self.loss:.4f}  train AUC {self.utility['train']['auc']:.4f}  "
            f"test AUC {self.utility['test']['auc']:.4f}{leaks}{rebuilt}  "
            f"{sum(self.seconds.values()):.1f} s"
        )

    def short_line(self, epochs: int) -> str:
        """`epoch 1 of 2: loss 0.5123, test AUC 0.788, worst leak AUC 0.912 (norm), 3.2 s`: what fits a terminal."""
        readings = [reading(leak) for leak in self.leaks if leak.visible and leak.batches and leak.message != "none"]
        parts = [f"loss {self.loss:.4f}", f"test AUC {self.utility['test']['auc']:.3f}"]
        if readings:
            worst = max(readings, key=lambda one: strength(one.figure, one.value))
            parts.append(f"worst leak {worst.figure} {worst.value:.3f} ({worst.attack})")
        rebuilt = [one for one in self.reconstructions if one.visible and one.message != "none"]
        for one in rebuilt[:1]:
            first = next((name for name in _REBUILT if name in one.figures), next(iter(one.figures), ""))
            parts += [f"{first.replace('_', ' ')} {one.figures[first].mean:.3g} ({one.attack})"] if first else []
        return f"epoch {self.epoch + 1} of {epochs}: {', '.join(parts)}, {sum(self.seconds.values()):.1f} s"


def _strongest(readings: Sequence[Reading]) -> str:
    if not readings:
        return "undefined"
    one = max(readings, key=lambda one: strength(one.figure, one.value))
    return f"{one.value:.4f}" + ("" if one.figure == "AUC" else f" ({one.figure})")


def summarise(
    results: Sequence[EpochResult],
    skipped: Mapping[str, str],
    unscored: Mapping[str, str],
    defenses: Mapping[str, Defense],
    data: TrainTest,
    messages_per_row: int,
    canaries: Canaries,
    claims: Mapping[tuple[str, str], Sent] = MappingProxyType({}),
    threats: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    joining: Collection[str] = (),
    mixing: Collection[str] = (),
    crossing: Mapping[str, Sequence[str]] = MappingProxyType({}),
    stopped: str = "",
) -> Summary:
    """The figures of the last epoch (never of the best one), the guarantees of the defenses, and the costs of the run.

    claims: (party, layer) -> what is claimed of embeddings. threats: attack -> what the manifest records of it. joining:
    attacks that join the messages about a row over the epochs. mixing: attacks that read several kinds of messages.
    crossing: party -> layers that cross. stopped: why training ended early. failed: why the run counts as failed though it
    is complete, or None.
    """
    last = results[-1]
    exposure = Exposure(len(results), len(results) * messages_per_row)
    levels = {leak.attack: level_of(leak.attack, threats) for leak in last.leaks}
    figures = [figures for result in results for figures in result.figures]
    promises = promised(defenses, exposure, last.leaks, levels, joining, figures, mixing, crossing)
    changed = messages_changed(defenses.values())
    privacy = account(defenses, exposure, last.leaks, canaries)
    made = {
        "epochs": len(results),
        **{f"{split}_{metric}": value for split, metrics in last.utility.items() for metric, value in metrics.items()},
        **_tested_on(data, last.utility["test"]["auc"]),
        "loss": last.loss,
        "first_epoch_loss": {str(LOSS_EVERY * (i + 1)): loss for i, loss in enumerate(results[0].losses)},
        **leak_figures(last.leaks),
        "verdict": verdict(last.leaks, levels, promises, last.utility["test"]["auc"], changed, crossing),
        "distance_correlation": [asdict(one) for one in last.dependence],
        "reconstructions": [asdict(one) for one in last.reconstructions],
        "skipped": dict(skipped),
        "unscored": dict(unscored),
        "guarantees": promises,
        "claims_refused": dict(claims_of(defenses).refused),
        "privacy": privacy,
        "embedding_privacy": embedding_account(claims, len(results)),
        "failed": failure(privacy) or stopped or None,
        "figures": _figures(results),
        "bytes_sent": {
            str(kind): sum(c.bytes for r in results for (_, _, k), c in r.traffic["train"].items() if k is kind)
            for kind in Kind
        },
        "links": _links(results),
        "seconds": round(sum(sum(r.seconds.values()) for r in results), 3),
        "facts": dict(data.facts),
    }
    return Summary.model_validate(made)


def _tested_on(data: TrainTest, auc: float) -> dict[str, Any]:
    """The interval of the test AUC, and the rows of each class that it is measured on; of two classes only."""
    if data.train.classes != 2:
        return {}
    positives = round(data.test.positive_ratio * len(data.test))
    interval = auc_interval(auc, positives, len(data.test) - positives)
    ends = {"test_auc_low": interval.low, "test_auc_high": interval.high}
    return {**ends, "test_positives": positives, "test_negatives": len(data.test) - positives}


def _links(results: Sequence[EpochResult]) -> list[dict[str, Any]]:
    """What crossed each link in training, over all epochs."""
    total: dict[tuple[str, str, Kind], Traffic] = {}
    for result in results:
        for route, count in result.traffic["train"].items():
            of_route = total.setdefault(route, Traffic())
            of_route.messages += count.messages
            of_route.bytes += count.bytes
    return [
        {"sender": sender, "receiver": receiver, "message": str(kind), **asdict(count)}
        for (sender, receiver, kind), count in total.items()
    ]


def _figures(results: Sequence[EpochResult]) -> list[dict[str, Any]]:
    """Each figure of each party and layer: counts added up over the epochs, measurements of the last epoch."""
    total: dict[tuple[str, str, str, str], float] = {}
    for result in results:
        for figures in result.figures:
            for name, value in figures.values.items():
                key = (figures.party, figures.layer, figures.message, name)
                total[key] = total.get(key, 0) + value if isinstance(value, int) else value
    names = ("party", "layer", "message", "figure", "value")
    return [dict(zip(names, (*key, value), strict=True)) for key, value in total.items()]
