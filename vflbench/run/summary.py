"""What a run writes: the rows of metrics.csv, the facts of manifest.json, and summary.json; and an epoch in a line."""

import inspect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from vflbench.attacks.base import Attack
from vflbench.data.labels import listed_rows
from vflbench.data.rows import TrainTest
from vflbench.data.table import Columns
from vflbench.defenses.chain import Figures, claims_of
from vflbench.messages.message import Kind
from vflbench.messages.threat import Threat
from vflbench.messages.wire import Route, Traffic
from vflbench.metrics.leak import CLASS_FIGURES, Leak, reading, strength, worst
from vflbench.metrics.privacy import Exposure
from vflbench.numerics.interval import Interval, auc_interval
from vflbench.results import schema
from vflbench.results.schema import OWN_COLUMNS, PROBE, Link, MetricRow, Plain, Summary, Tree, level_of
from vflbench.run.attackers import Attacker
from vflbench.run.grade_scores import Findings
from vflbench.run.guarantees import account, embedding_account, failure, messages_changed, promised, verdict

if TYPE_CHECKING:
    from vflbench.run.setup import Run

LOSS_EVERY = 100
"""Steps between lines of loss.log."""

_REBUILT = ("entries_right", "recognised", "identified", "r2")
"""The figure of rebuilt data in an epoch's line is the first of these that there is."""
_TREES = ("leak_auc", "leak_auc_two_sided", *(f"leak_{figure}" for figure in CLASS_FIGURES))
"""Figures of leaks that the summary has a tree of, attack -> message -> layer."""
_PROBE_TEXT = (
    "No attacker: a reference that is given the labels of half of the audited rows, all messages that cross and the scores "
    "of every attack, and is graded on the other half."
)
_SHARED = "In this protocol every party holds the labels."


@dataclass
class EpochResult:
    """One epoch. found: by attacks. utility: train and test -> metric -> value. links, seconds: by phase.

    figures: what the defenses counted and measured. steps: of the epoch. losses: the mean loss of each LOSS_EVERY steps.
    """

    epoch: int
    loss: float
    penalty: float
    found: Findings
    seconds: dict[str, float]
    utility: dict[str, dict[str, float]] = field(default_factory=dict)
    links: dict[str, list[Link]] = field(default_factory=dict)
    figures: list[Figures] = field(default_factory=list)
    steps: int = 0
    losses: list[float] = field(default_factory=list)

    @property
    def measured(self) -> dict[str, Any]:
        """train_auc, ...: what the model is worth."""
        return {f"{split}_{name}": value for split, metrics in self.utility.items() for name, value in metrics.items()}

    def loss_lines(self) -> list[str]:
        """`epoch 0 step 100/2582 loss: 0.588637`: the mean loss of the 100 steps that end there, for step 100, 200, ..."""
        return [
            f"epoch {self.epoch} step {LOSS_EVERY * (i + 1)}/{self.steps} loss: {loss:.6f}"
            for i, loss in enumerate(self.losses)
        ]

    def line(self, epochs: int) -> str:
        """`epoch 1 of 2: loss 0.5123, train AUC 0.833, test AUC 0.788, worst leak AUC 0.912 (norm), 3.2 s`."""
        parts = [f"loss {self.loss:.4f}", *(f"{split} AUC {self.utility[split]['auc']:.3f}" for split in ("train", "test"))]
        leaks = [leak for leak in self.found.leaks if leak.visible and leak.message != "none"]
        if one := worst(leaks):
            parts.append(f"worst leak {one.figure} {one.value:.3f} ({one.attack})")
        elif leaks:
            parts.append("worst leak undefined")
        rebuilt = [one for one in self.found.reconstructions if one.visible and one.message != "none" and one.figures]
        for entry in rebuilt[:1]:
            first = next(name for name in (*_REBUILT, *entry.figures) if name in entry.figures)
            parts.append(f"{first.replace('_', ' ')} {entry.figures[first].mean:.3g} ({entry.attack})")
        return f"epoch {self.epoch + 1} of {epochs}: {', '.join(parts)}, {sum(self.seconds.values()):.1f} s"


EPOCHS = TypeAdapter(list[EpochResult])
"""Takes epochs apart into numbers, strings, lists and dicts, and puts them together again."""


def epoch_rows(result: EpochResult) -> Iterator[MetricRow]:
    """Everything measured in an epoch, in long form."""
    epoch = result.epoch
    yield MetricRow(epoch, "train", metric="loss", value=result.loss)
    if result.penalty:
        yield MetricRow(epoch, "train", metric="penalty", value=result.penalty)
    for split, metrics in result.utility.items():
        for metric, value in metrics.items():
            yield MetricRow(epoch, split, metric=metric, value=value)
    yield from finding_rows(epoch, Findings(result.found.leaks))
    for phase, links in result.links.items():
        yield from traffic_rows(epoch, phase, links)
    yield from finding_rows(epoch, replace(result.found, leaks=[]))
    for figures in result.figures:
        for figure, value in figures.values.items():
            yield MetricRow(epoch, "train", figures.party, figures.layer, figures.message, "", figure, value)
    for phase, seconds in result.seconds.items():
        yield MetricRow(epoch, phase, metric="seconds", value=round(seconds, 3))


def traffic_rows(epoch: int, phase: str, links: Sequence[Link]) -> Iterator[MetricRow]:
    """What crossed, by party and kind of message: up from it, and of gradients and models down to it. Then by link."""
    totals: Counter[tuple[str, str, str]] = Counter()
    for link in links:
        party = link.receiver if link.message in (Kind.GRADIENT, Kind.MODEL) else link.sender
        totals[party, link.message, "messages_sent"] += link.messages
        totals[party, link.message, "bytes_sent"] += link.bytes
    totals.update({(link.sender, link.message, f"bytes_sent:{link.receiver}"): link.bytes for link in links})
    for (party, message, metric), value in totals.items():
        yield MetricRow(epoch, phase, party, message=message, metric=metric, value=value)


def links_of(traffic: Mapping[Route, Traffic]) -> list[Link]:
    """What crossed each link."""
    return [
        Link(sender=sender, receiver=receiver, message=str(kind), **asdict(count))
        for (sender, receiver, kind), count in traffic.items()
    ]


def finding_rows(epoch: int, found: Findings) -> Iterator[MetricRow]:
    """What attacks and measurements of an epoch came to: leaks, dependence and reconstructions."""
    measured: list[tuple[Any, str, str, Mapping[str, Interval]]]
    measured = [(leak, leak.message, leak.attack, _figures_of(leak)) for leak in found.leaks]
    measured += [(one, str(Kind.EMBEDDING), "", {"distance_correlation": one.dcor}) for one in found.dependence]
    measured += [(one, one.message, one.attack, one.figures) for one in found.reconstructions]
    for one, message, attack, figures in measured:
        for figure, v in figures.items():
            place = (one.party, one.layer, message, attack, figure)
            yield MetricRow(epoch, "train", *place, v.mean, v.low, v.high, one.visible)


def _figures_of(leak: Leak) -> dict[str, Interval]:
    """Its figures by their names in metrics.csv."""
    classes = {f"leak_{figure}": interval for figure, interval in leak.classes.items()}
    if leak.of_classes:
        return classes
    coin = Interval(leak.coin, leak.coin, leak.coin)
    sides = {"leak_auc": leak.raw, "leak_auc_two_sided": leak.two_sided, "leak_auc_oriented": leak.oriented}
    return sides | {"leak_auc_coin": coin, "leak_auc_net": leak.net} | classes


def run_facts(run: "Run") -> dict[str, Any]:
    """The data, cut layers, layers, threats, also of references, skipped attacks with reasons, and adversaries. Where
    every party holds the labels, each threat says so.
    """
    data, session, auditor, adversaries = run.data, run.session, run.auditor, run.experiment.adversaries
    cheats = [f"Party {a.party} cheats: {a.text()}" for a in adversaries.values()]
    threats = threats_of(auditor.attackers, run.experiment.attacks, cheats, probed=auditor.probes)
    for threat in threats.values() if session.labels_shared else ():
        threat.text = f"{threat.text} {_SHARED}"
    held = session.columns
    return {
        "data": {
            "fingerprint": data.fingerprint,
            "train_rows": len(data.train),
            "test_rows": len(data.test),
            "classes": data.train.classes,
            "train_positive_ratio": data.train.positive_ratio,
            "train_class_ratios": list(data.train.class_ratios),
            "ids": sum(sum(its.cardinalities) for its in held.values()),
            "parties": {
                party: {"numeric": list(its.numeric), "categorical": list(its.categorical)} for party, its in held.items()
            },
            **data.facts,
        },
        "cut_layers": {party: list(layers) for party, layers in session.cut_layers().items()},
        "layers": {party: list(layers) for party, layers in session.layers().items()},
        "threats": threats,
        "skipped": run.skipped,
        "adversary": {name: {"party": a.party, "text": a.text()} for name, a in adversaries.items()},
    }


def threats_of(
    attackers: Sequence[Attacker], attacks: Mapping[str, Attack], cheats: Sequence[str] = (), *, probed: bool = False
) -> dict[str, schema.Threat]:
    """Attack -> who attacks and what it does, also of attacks that are skipped, and of references. cheats: a sentence for
    each adversary, which belongs to the threat of active attacks.
    """
    seated = {one.name: one.threat for one in sorted(attackers, key=lambda one: one.threat.active)}
    does = {}
    for name, attack in attacks.items():
        kinds = type(attack).__mro__[: type(attack).__mro__.index(Attack)]  # the nearest that has a docstring
        docstring = inspect.cleandoc(next((cls.__doc__ for cls in kinds if cls.__doc__), ""))
        does[name] = " ".join(docstring.split("\n\n")[0].split()) or f"{kinds[0].__name__} has no docstring."
    for one in attackers:
        if one.on_columns:
            base = one.name.removesuffix(OWN_COLUMNS)
            does[one.name] = f"{base} with the party's own columns in place of messages: a reference."
    threats = {}
    for name, text in does.items():
        threat = seated[name] if name in seated else attacks[name].threat
        said = " ".join([threat.sentence(), *(cheats if threat.active and name in seated else ())])
        threats[name] = schema.Threat(**threat.record() | {"text": said, "does": text})
    if probed:
        threats[PROBE] = schema.Threat(**Threat().record() | dict.fromkeys(("does", "text"), _PROBE_TEXT))
    return threats


def introduce(data: TrainTest, columns: Mapping[str, Columns]) -> str:
    """One line on the data and the parties. columns: of each party."""
    facts = [f", {name.replace('_', ' ')} {value:.4f}" for name, value in data.facts.items() if isinstance(value, float)]
    rows = data.facts.get("class_rows", {})
    classes = f"; classes {listed_rows(rows)}" if rows else ""
    return (
        f"{len(data.train):,} training and {len(data.test):,} test rows, "
        f"positive ratio {data.train.positive_ratio:.4f}{''.join(facts)}{classes}; "
        + ", ".join(f"{party}: {len(its)} columns" for party, its in columns.items())
    )


def summarise(run: "Run", unscored: Mapping[str, str]) -> Summary:
    """The figures of the last epoch (never of the best one), the guarantees of the defenses, and the costs of the run.

    failed: why the run counts as failed though it is complete, or why training ended early, or None.
    """
    results, session, experiment = run.results, run.session, run.experiment
    last, epochs, crossing, defenses = results[-1], len(results), session.cut_layers(), experiment.defenses
    leaks, exposure = last.found.leaks, Exposure(epochs, epochs * session.messages_per_row)
    levels = {leak.attack: level_of(leak.attack, run.facts["threats"]) for leak in leaks}
    joining = [name for name, attack in experiment.attacks.items() if attack.follows]
    mixing = [name for name, attack in experiment.attacks.items() if attack.threat.mixes_messages]
    figures = [figures for result in results for figures in result.figures]
    promises = promised(defenses, exposure, leaks, levels, joining, figures, mixing, crossing)
    privacy = account(defenses, exposure, leaks, run.auditor.canaries)
    test_auc, changed = last.utility["test"]["auc"], messages_changed(defenses.values())
    crossed: dict[tuple[str, str, str], Counter[str]] = {}
    for link in (link for result in results for link in result.links["train"]):
        total = crossed.setdefault((link.sender, link.receiver, link.message), Counter())
        total.update(messages=link.messages, bytes=link.bytes)
    links = [Link(sender=by, receiver=to, message=message, **total) for (by, to, message), total in crossed.items()]
    return Summary(
        epochs=epochs,
        **last.measured,
        **tested(test_auc, test_rows(run.data)),
        loss=last.loss,
        first_epoch_loss={str(LOSS_EVERY * (i + 1)): loss for i, loss in enumerate(results[0].losses)},
        **what_attacks_read(last.found),
        verdict=verdict(leaks, levels, promises, test_auc, changed, crossing),
        skipped=dict(run.skipped),
        unscored=dict(unscored),
        guarantees=promises,
        claims_refused=dict(claims_of(defenses).refused),
        privacy=privacy,
        embedding_privacy=embedding_account(session.claims(), epochs) if defenses else [],
        failed=(failure(privacy) if privacy and privacy.violated else session.stopped) or None,
        figures=_over_epochs(figures),
        bytes_sent={str(kind): sum(link.bytes for link in links if link.message == kind) for kind in Kind},
        links=links,
        seconds=round(sum(sum(result.seconds.values()) for result in results), 3),
        facts=dict(run.data.facts),
    )


def what_attacks_read(found: Findings) -> dict[str, Any]:
    """The parts of the summary about leaks, a tree a figure and all of them as they are, and about rebuilt data."""
    return {
        **trees(found.leaks),
        "leaks": [asdict(leak) for leak in found.leaks],
        "distance_correlation": [asdict(one) for one in found.dependence],
        "reconstructions": [asdict(one) for one in found.reconstructions],
    }


def trees(leaks: Sequence[Leak]) -> dict[str, Tree]:
    """Figure -> attack -> message -> layer -> its mean; of several parties with such a layer, of the one that learns most.

    Layers that an attacker sees come before hidden ones, and those that are undefined (nan) come last.
    """

    def weight(leak: Leak) -> tuple[bool, float]:
        one = reading(leak)
        return leak.visible, strength(one.figure, one.value)

    made: dict[str, Tree] = {figure: {} for figure in _TREES}
    falling = sorted(leaks, key=weight, reverse=True)
    for leak in [*leaks, *falling[::-1]]:  # once for the order of the keys, once for the values, of which the last one stays
        for figure, interval in _figures_of(leak).items():
            if figure in made:
                made[figure].setdefault(leak.attack, {}).setdefault(leak.message, {})[leak.layer] = interval.mean
    return made


def test_rows(data: TrainTest) -> tuple[int, int] | None:
    """Rows of class 0 and of class 1 that a model is tested on; None for more classes."""
    if data.train.classes != 2:
        return None
    positives = round(data.test.positive_ratio * len(data.test))
    return len(data.test) - positives, positives


def tested(test_auc: float, rows: tuple[int, int] | None) -> dict[str, Any]:
    """What a summary says on how sure a test AUC is: its interval, and the rows of either class, where there are two."""
    if rows is None:
        return {}
    interval = auc_interval(test_auc, rows[1], rows[0])
    ends = {"test_auc_low": interval.low, "test_auc_high": interval.high}
    return ends | {"test_positives": rows[1], "test_negatives": rows[0]}


def _over_epochs(measured: Sequence[Figures]) -> list[Plain]:
    """Each figure of each party and layer: counts added up over the epochs, measurements of the last epoch."""
    total: dict[tuple[str, str, str, str], float] = {}
    for figures in measured:
        for name, value in figures.values.items():
            key = (figures.party, figures.layer, figures.message, name)
            total[key] = total.get(key, 0) + value if isinstance(value, int) else value
    return [
        {"party": party, "layer": layer, "message": message, "figure": figure, "value": value}
        for (party, layer, message, figure), value in total.items()
    ]
