"""What a run writes: the rows of metrics.csv, the facts of manifest.json, and summary.json; and an epoch in a line."""

import inspect
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Self

from pydantic import PlainSerializer, PlainValidator, TypeAdapter

from vflbench.attacks.base import Attack
from vflbench.data.labels import listed_rows
from vflbench.data.rows import TrainTest
from vflbench.data.table import Columns
from vflbench.defenses.base import Defense
from vflbench.defenses.chain import Figures, claims_of
from vflbench.messages.message import Kind
from vflbench.messages.threat import Level, Threat
from vflbench.messages.wire import Traffic, traffic_from, traffic_state
from vflbench.metrics.dependence import Dependence
from vflbench.metrics.embedding_privacy import Sent
from vflbench.metrics.exposure import Exposure
from vflbench.metrics.leak import CLASS_FIGURES, Leak
from vflbench.metrics.reconstruction import Reconstruction
from vflbench.metrics.verdict import Reading, reading, strength
from vflbench.numerics.interval import Interval, auc_interval
from vflbench.protocols.adversary import Adversary
from vflbench.protocols.base import Session
from vflbench.results.schema import OWN_COLUMNS, PROBE, Figure, Link, MetricRow, Summary, Tree, level_of
from vflbench.run.attackers import Attacker
from vflbench.run.grade_scores import Findings
from vflbench.run.guarantees import account, embedding_account, failure, messages_changed, promised, verdict
from vflbench.run.known_rows import Canaries

LOSS_EVERY = 100
"""Steps between lines of loss.log."""

_REBUILT = ("entries_right", "recognised", "identified", "r2")
"""The figure of rebuilt data in an epoch's line is the first of these that there is."""
_PROBE_TEXT = (
    "No attacker: a reference that is given the labels of half of the audited rows, all messages that cross and the scores "
    "of every attack, and is graded on the other half."
)
_SHARED = "In this protocol every party holds the labels."

TrafficByRoute = Mapping[tuple[str, str, Kind], Traffic]
_Traffic = Annotated[TrafficByRoute, PlainSerializer(traffic_state), PlainValidator(traffic_from)]


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
    traffic: dict[str, _Traffic] = field(default_factory=dict)
    figures: list[Figures] = field(default_factory=list)
    dependence: list[Dependence] = field(default_factory=list)
    reconstructions: list[Reconstruction] = field(default_factory=list)
    steps: int = 0
    losses: list[float] = field(default_factory=list)

    def state(self) -> dict[str, Any]:
        """The same in numbers, strings, lists and dicts."""
        return dict(_PLAIN.dump_python(self))

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """The inverse of `state`. Raises ValueError."""
        return cls(**vars(_PLAIN.validate_python(state)))

    def loss_lines(self) -> list[str]:
        """`epoch 0 step 100/2582 loss: 0.588637`: the mean loss of the 100 steps that end there, for step 100, 200, ..."""
        ends = [LOSS_EVERY * (i + 1) for i in range(len(self.losses))]
        return [
            f"epoch {self.epoch} step {end}/{self.steps} loss: {loss:.6f}"
            for end, loss in zip(ends, self.losses, strict=True)
        ]

    def line(self, epochs: int) -> str:
        """`epoch 1 of 2: loss 0.5123, train AUC 0.833, test AUC 0.788, worst leak AUC 0.912 (norm), 3.2 s`."""
        parts = [f"loss {self.loss:.4f}", *(f"{split} AUC {self.utility[split]['auc']:.3f}" for split in ("train", "test"))]
        leaks = [leak for leak in self.leaks if leak.visible and leak.message != "none"]
        worst = max((reading(leak) for leak in leaks if leak.batches), key=_strength, default=None)
        if worst is not None:
            parts.append(f"worst leak {worst.figure} {worst.value:.3f} ({worst.attack})")
        elif leaks:
            parts.append("worst leak undefined")
        rebuilt = [one for one in self.reconstructions if one.visible and one.message != "none"]
        for one in rebuilt[:1]:
            first = next((name for name in _REBUILT if name in one.figures), next(iter(one.figures), ""))
            parts += [f"{first.replace('_', ' ')} {one.figures[first].mean:.3g} ({one.attack})"] if first else []
        return f"epoch {self.epoch + 1} of {epochs}: {', '.join(parts)}, {sum(self.seconds.values()):.1f} s"


def _strength(one: Reading) -> float:
    return strength(one.figure, one.value)


_PLAIN = TypeAdapter(EpochResult)


def epoch_rows(result: EpochResult) -> list[MetricRow]:
    """Everything measured in an epoch, in long form."""
    epoch = result.epoch
    rows = [MetricRow(epoch, "train", metric="loss", value=result.loss)]
    if result.penalty:
        rows.append(MetricRow(epoch, "train", metric="penalty", value=result.penalty))
    for split, metrics in result.utility.items():
        rows += [MetricRow(epoch, split, metric=metric, value=value) for metric, value in metrics.items()]
    rows += leak_rows(epoch, result.leaks)
    for phase, traffic in result.traffic.items():
        rows += traffic_rows(epoch, phase, traffic)
    rows += [*dependence_rows(epoch, result.dependence), *reconstruction_rows(epoch, result.reconstructions)]
    for figures in result.figures:
        place = (epoch, "train", figures.party, figures.layer, figures.message, "")
        rows += [MetricRow(*place, figure, value) for figure, value in figures.values.items()]
    rows += [MetricRow(epoch, phase, metric="seconds", value=round(s, 3)) for phase, s in result.seconds.items()]
    return rows


def traffic_rows(epoch: int, phase: str, traffic: TrafficByRoute) -> list[MetricRow]:
    """What crossed, by party and kind of message: up from it, and of gradients and models down to it. Then by link."""
    totals: dict[tuple[str, Kind], Traffic] = {}
    for (sender, receiver, kind), count in traffic.items():
        total = totals.setdefault((receiver if kind in (Kind.GRADIENT, Kind.MODEL) else sender, kind), Traffic())
        total.messages += count.messages
        total.bytes += count.bytes
    rows = []
    for (party, kind), total in totals.items():
        rows.append(MetricRow(epoch, phase, party, message=str(kind), metric="messages_sent", value=total.messages))
        rows.append(MetricRow(epoch, phase, party, message=str(kind), metric="bytes_sent", value=total.bytes))
    for (sender, receiver, kind), count in traffic.items():
        rows.append(MetricRow(epoch, phase, sender, message=str(kind), metric=f"bytes_sent:{receiver}", value=count.bytes))
    return rows


def finding_rows(epoch: int, findings: Findings) -> list[MetricRow]:
    """What attacks and measurements of an epoch came to."""
    return [
        *leak_rows(epoch, findings.leaks),
        *dependence_rows(epoch, findings.dependence),
        *reconstruction_rows(epoch, findings.reconstructions),
    ]


def leak_rows(epoch: int, leaks: Sequence[Leak]) -> list[MetricRow]:
    rows = []
    for leak in leaks:
        place = (epoch, "train", leak.party, leak.layer, leak.message, leak.attack)
        values = {"leak_auc": leak.raw, "leak_auc_two_sided": leak.two_sided, "leak_auc_oriented": leak.oriented}
        values |= {"leak_auc_coin": Interval(leak.coin, leak.coin, leak.coin), "leak_auc_net": leak.net}
        values = {} if leak.of_classes else values
        values |= {f"leak_{figure}": interval for figure, interval in leak.classes.items()}
        rows += [MetricRow(*place, metric, v.mean, v.low, v.high, leak.visible) for metric, v in values.items()]
    return rows


def dependence_rows(epoch: int, dependence: Sequence[Dependence]) -> list[MetricRow]:
    return [
        MetricRow(
            *(epoch, "train", one.party, one.layer, str(Kind.EMBEDDING), ""),
            "distance_correlation",
            *(one.dcor.mean, one.dcor.low, one.dcor.high, one.visible),
        )
        for one in dependence
    ]


def reconstruction_rows(epoch: int, reconstructions: Sequence[Reconstruction]) -> list[MetricRow]:
    return [
        MetricRow(epoch, "train", one.party, one.layer, one.message, one.attack, figure, v.mean, v.low, v.high, one.visible)
        for one in reconstructions
        for figure, v in one.figures.items()
    ]


def run_facts(
    data: TrainTest,
    session: Session,
    attackers: Sequence[Attacker],
    attacks: Mapping[str, Attack],
    skipped: Mapping[str, str],
    adversaries: Mapping[str, Adversary],
    *,
    probed: bool = False,
) -> dict[str, Any]:
    """The data, cut layers, layers, threats, also of references, skipped attacks with reasons, and adversaries. Where
    every party holds the labels, each threat says so.
    """
    cheats = [f"party {a.party} cheats: {a.text()}" for a in adversaries.values()]
    threats = threats_of(attackers, attacks, cheats, probed=probed)
    for threat in threats.values() if session.labels_shared else ():
        threat["text"] = f"{threat['text']} {_SHARED}"
    return {
        "data": describe(data, session.columns),
        "cut_layers": {party: list(layers) for party, layers in session.cut_layers().items()},
        "layers": {party: list(layers) for party, layers in session.layers().items()},
        "threats": threats,
        "skipped": dict(skipped),
        "adversary": {name: {"party": a.party, "text": a.text()} for name, a in adversaries.items()},
    }


def threats_of(
    attackers: Sequence[Attacker], attacks: Mapping[str, Attack], cheats: Sequence[str] = (), *, probed: bool = False
) -> dict[str, dict[str, Any]]:
    """Attack -> who attacks and what it does, also of attacks that are skipped, and of references. cheats: a line for each
    adversary, which belongs to the threat of active attacks.
    """
    seated = {one.name: one.threat for one in sorted(attackers, key=lambda one: one.threat.active)}
    active = {name for name, threat in seated.items() if threat.active}
    threats = {
        name: seated.get(name, attack.threat).record() | {"does": _first_paragraph(attack)}
        for name, attack in attacks.items()
    }
    for attacker in attackers:
        if attacker.on_columns:
            does = (
                f"{attacker.name.removesuffix(OWN_COLUMNS)} with the party's own columns in place of messages: a reference."
            )
            threats[attacker.name] = attacker.threat.record() | {"does": does}
    if probed:
        threats[PROBE] = Threat().record() | {"level": str(Level.REFERENCE), "does": _PROBE_TEXT, "text": _PROBE_TEXT}
    for name in active & set(threats):
        threats[name]["text"] = " ".join([threats[name]["text"], *(f"{cheat[0].upper()}{cheat[1:]}" for cheat in cheats)])
    return threats


def quantities(result: EpochResult) -> list[str]:
    """Names of what a run measured in its last epoch, as the axes of a report take them."""
    names = [f"{split}_{metric}" for split, metrics in result.utility.items() for metric in metrics]
    return sorted({*names, "loss", "bytes_sent", "seconds", *leak_quantities(result.leaks, result.reconstructions)})


def leak_quantities(leaks: Sequence[Leak], reconstructions: Sequence[Reconstruction]) -> list[str]:
    """Names of what attacks came to."""
    names: list[str] = []
    for leak in leaks:
        figures = [f"leak_{figure}" for figure in leak.classes] + ([] if leak.of_classes else ["leak_auc"])
        names += [name for figure in figures for name in (figure, f"{figure}:{leak.attack}")]
    for rebuilt in reconstructions:
        names += [f"rebuilt.{figure}" for figure in rebuilt.figures if ":" not in figure]
    return sorted(set(names))


def _first_paragraph(attack: Attack) -> str:
    """Of the docstring of its class, or of the nearest class below `Attack` that has one."""
    kinds = type(attack).__mro__[: type(attack).__mro__.index(Attack)]
    docstring = next((cls.__doc__ for cls in kinds if cls.__doc__), "")
    return " ".join(inspect.cleandoc(docstring).split("\n\n")[0].split()) or f"{type(attack).__name__} has no docstring."


def describe(data: TrainTest, held: Mapping[str, Columns]) -> dict[str, Any]:
    """What manifest.json records about the data. held: party -> columns."""
    parties = {
        party: {"numeric": list(columns.numeric), "categorical": list(columns.categorical)}
        for party, columns in held.items()
    }
    return {
        "fingerprint": data.fingerprint,
        "train_rows": len(data.train),
        "test_rows": len(data.test),
        "classes": data.train.classes,
        "train_positive_ratio": data.train.positive_ratio,
        "train_class_ratios": list(data.train.class_ratios),
        "ids": sum(sum(columns.cardinalities) for columns in held.values()),
        "parties": parties,
        **data.facts,
    }


def introduce(data: TrainTest, columns: Mapping[str, Columns] | None = None) -> str:
    """One line on the data and the parties. columns: of each party; those of the data if left out."""
    held = ", ".join(f"{party}: {len(its)} columns" for party, its in (columns or data.train.columns).items())
    facts = "".join(
        f", {key.replace('_', ' ')} {value:.4f}" for key, value in data.facts.items() if isinstance(value, float)
    )
    rows = data.facts.get("class_rows", {})
    classes = f"; classes {listed_rows(rows)}" if rows else ""
    return (
        f"{len(data.train):,} training and {len(data.test):,} test rows, "
        f"positive ratio {data.train.positive_ratio:.4f}{facts}{classes}; {held}"
    )


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
    return Summary(
        epochs=len(results),
        **_utility(last, data),
        loss=last.loss,
        first_epoch_loss={str(LOSS_EVERY * (i + 1)): loss for i, loss in enumerate(results[0].losses)},
        **what_attacks_read(last),
        verdict=verdict(last.leaks, levels, promises, last.utility["test"]["auc"], changed, crossing),
        skipped=dict(skipped),
        unscored=dict(unscored),
        guarantees=promises,
        claims_refused=dict(claims_of(defenses).refused),
        privacy=privacy,
        embedding_privacy=embedding_account(claims, len(results)),
        failed=failure(privacy) or stopped or None,
        figures=_figures(results),
        bytes_sent={
            str(kind): sum(c.bytes for r in results for (_, _, k), c in r.traffic["train"].items() if k is kind)
            for kind in Kind
        },
        links=_links(results),
        seconds=round(sum(sum(r.seconds.values()) for r in results), 3),
        facts=dict(data.facts),
    )


def what_attacks_read(found: EpochResult | Findings) -> dict[str, Any]:
    """The parts of the summary about leaks, a tree a figure and all of them as they are, and about rebuilt data."""
    return {
        "leak_auc": _tree(found.leaks, "raw"),
        "leak_auc_two_sided": _tree(found.leaks, "two_sided"),
        **{f"leak_{figure}": _tree(found.leaks, figure) for figure in CLASS_FIGURES},
        "leaks": [asdict(leak) for leak in found.leaks],
        "distance_correlation": [asdict(one) for one in found.dependence],
        "reconstructions": [asdict(one) for one in found.reconstructions],
    }


def _tree(leaks: Sequence[Leak], figure: str) -> Tree:
    """attack -> message -> layer -> that figure; of several parties with such a layer, of the one that learns most.

    figure: raw or two_sided of the leak AUC, or a name in CLASS_FIGURES; leaks that have none are left out.
    """
    worst: dict[tuple[str, str, str], Leak] = {}
    for leak in leaks:
        key = (leak.attack, leak.message, leak.layer)
        is_there = figure in leak.classes if figure in CLASS_FIGURES else not leak.of_classes
        if is_there and (key not in worst or _weight(leak) > _weight(worst[key])):
            worst[key] = leak
    tree: Tree = {}
    for (attack, message, layer), leak in worst.items():
        interval = leak.classes[figure] if figure in CLASS_FIGURES else getattr(leak, figure)
        tree.setdefault(attack, {}).setdefault(message, {})[layer] = interval.mean
    return tree


def _weight(leak: Leak) -> tuple[bool, float]:
    """Leaks that an attacker sees weigh more than hidden ones; an undefined leak (nan) weighs least."""
    if not leak.batches:
        return leak.visible, -math.inf
    one = reading(leak)
    return leak.visible, strength(one.figure, one.value)


def _utility(last: EpochResult, data: TrainTest) -> dict[str, Any]:
    """Of two classes also the interval of the test AUC, and the rows of each class that it is measured on."""
    values = {f"{split}_{name}": value for split, metrics in last.utility.items() for name, value in metrics.items()}
    rows = test_rows(data)
    return values if rows is None else values | tested(values["test_auc"], *rows)


def test_rows(data: TrainTest) -> tuple[int, int] | None:
    """Rows of class 0 and of class 1 that a model is tested on; None for more classes."""
    if data.train.classes != 2:
        return None
    positives = round(data.test.positive_ratio * len(data.test))
    return len(data.test) - positives, positives


def tested(test_auc: float, negatives: int, positives: int) -> dict[str, Any]:
    """What a summary says on how sure a test AUC is: its interval, and the rows of either class."""
    interval = auc_interval(test_auc, positives, negatives)
    ends = {"test_auc_low": interval.low, "test_auc_high": interval.high}
    return ends | {"test_positives": positives, "test_negatives": negatives}


def _links(results: Sequence[EpochResult]) -> list[Link]:
    """What crossed each link in training, over all epochs."""
    total: dict[tuple[str, str, Kind], Traffic] = {}
    for result in results:
        for route, count in result.traffic["train"].items():
            of_route = total.setdefault(route, Traffic())
            of_route.messages += count.messages
            of_route.bytes += count.bytes
    return [
        Link(sender=sender, receiver=receiver, message=str(kind), **asdict(count))
        for (sender, receiver, kind), count in total.items()
    ]


def _figures(results: Sequence[EpochResult]) -> list[Figure]:
    """Each figure of each party and layer: counts added up over the epochs, measurements of the last epoch."""
    total: dict[tuple[str, str, str, str], float] = {}
    for result in results:
        for figures in result.figures:
            for name, value in figures.values.items():
                key = (figures.party, figures.layer, figures.message, name)
                total[key] = total.get(key, 0) + value if isinstance(value, int) else value
    return [
        Figure(party=party, layer=layer, message=message, figure=figure, value=value)
        for (party, layer, message, figure), value in total.items()
    ]
