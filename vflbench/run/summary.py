"""What a run writes: the rows of metrics.csv, the facts of manifest.json, and summary.json; and an epoch in a line.

In the summary: what the defenses promise, whether leaks and canaries keep to that, and the worst attack at each level.
"""

import inspect
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from vflbench.attacks.base import Attack
from vflbench.data.readings import listed_rows
from vflbench.data.rows import TrainTest
from vflbench.data.table import Columns
from vflbench.defenses.base import Defense, LabelDefense, NonLabelDefense, ParticipantDefense, changes
from vflbench.defenses.chain import Figures, claims_of
from vflbench.messages.threat import Threat
from vflbench.messages.wire import Kind, Route, Traffic
from vflbench.metrics.canary import POWER, TOO_WEAK, CanaryRead, canaries_needed, power, reader_of
from vflbench.metrics.leak import CLASS_FIGURES, NO_MESSAGE, Leak, above, at_levels, reading, strength, worst
from vflbench.metrics.privacy import THE_LEAK, Exposure, Ledger, Release, Sent, holds
from vflbench.numerics.interval import Interval, auc_interval
from vflbench.results import schema
from vflbench.results.gate import distinct_rounding
from vflbench.results.schema import FigureTree, Link, MetricRow, PlainValues, Promise, Reading, Summary
from vflbench.run.attackers import Attacker, Canaries
from vflbench.run.grade_scores import Findings

if TYPE_CHECKING:
    from vflbench.run.setup import BuiltRun

LOSS_EVERY = 100
"""Steps between lines of loss.log."""

_REBUILT = ("entries_right", "recognised", "identified", "r2")
"""The figure of rebuilt data in an epoch's line is the first of these that there is."""
_TREES = ("leak_auc", "leak_auc_two_sided", *(f"leak_{figure}" for figure in CLASS_FIGURES))
"""Figures of leaks that the summary has a tree of, attack -> message -> layer."""
_PROBE_TEXT = (
    "No attacker: a reference that is given the labels of half of the audited rows, all messages that cross and the scores "
    "of every attack, and is graded on the other half. An attack may read more."
)
_SHARED = "In this protocol every party holds the labels."


@dataclass
class EpochResult:
    """One epoch. findings: by attacks. utility: train and test -> metric -> value. links: by phase. seconds: as of `Meter`.

    figures: what the defenses counted and measured. steps: of the epoch. losses: the mean loss of each LOSS_EVERY steps.
    """

    epoch: int
    loss: float
    penalty: float
    seconds: dict[str, list[float]]
    findings: Findings = field(default_factory=Findings)
    utility: dict[str, dict[str, float]] = field(default_factory=dict)
    links: dict[str, list[Link]] = field(default_factory=dict)
    figures: list[Figures] = field(default_factory=list)
    steps: int = 0
    losses: list[float] = field(default_factory=list)

    @property
    def wall(self) -> float:
        """Seconds of all phases."""
        return sum(wall for name, (wall, _) in self.seconds.items() if "/" not in name)

    def note_traffic(self, phase: str, traffic: Mapping[Route, Traffic]) -> None:
        """What crossed each link."""
        self.links[phase] = [
            Link(sender=sender, receiver=receiver, message=str(kind), **asdict(count))
            for (sender, receiver, kind), count in traffic.items()
        ]

    def loss_lines(self) -> list[str]:
        """`epoch 0 step 100/2582 loss: 0.588637`: the mean loss of the 100 steps that end there, for step 100, 200, ..."""
        return [f"epoch {self.epoch} step {LOSS_EVERY * i}/{self.steps} loss: {x:.6f}" for i, x in enumerate(self.losses, 1)]

    def line(self, epochs: int) -> str:
        """`epoch 1 of 2: loss 0.5123, train AUC 0.833, test AUC 0.788, worst leak AUC 0.912 (norm), 3.2 s`."""
        parts = [f"loss {self.loss:.4f}", *(f"{split} AUC {self.utility[split]['auc']:.3f}" for split in ("train", "test"))]
        leaks = [leak for leak in self.findings.leaks if leak.visible and leak.message != "none"]
        if one := worst(leaks):
            parts.append(f"worst leak {one.figure} {one.value:.3f} ({one.attack})")
        elif leaks:
            parts.append("worst leak undefined")
        rebuilt = [one for one in self.findings.reconstructions if one.visible and one.message != "none" and one.figures]
        for entry in rebuilt[:1]:
            first = next(name for name in (*_REBUILT, *entry.figures) if name in entry.figures)
            parts.append(f"{first.replace('_', ' ')} {entry.figures[first].mean:.3g} ({entry.attack})")
        return f"epoch {self.epoch + 1} of {epochs}: {', '.join(parts)}, {self.wall:.1f} s"


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
    yield from finding_rows(epoch, Findings(result.findings.leaks))
    for phase, links in result.links.items():
        yield from traffic_rows(epoch, phase, links)
    yield from finding_rows(epoch, replace(result.findings, leaks=[]))
    for figures in result.figures:
        for figure, value in figures.values.items():
            yield MetricRow(epoch, "train", figures.party, figures.layer, figures.message, "", figure, value)
    for name, spent in result.seconds.items():
        phase, _, attack = name.partition("/")
        for metric, value in zip(("seconds", "cpu_seconds"), spent, strict=True):
            yield MetricRow(epoch, phase, attack=attack, metric=metric, value=round(value, 3))


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


def finding_rows(epoch: int, findings: Findings) -> Iterator[MetricRow]:
    """What attacks and measurements of an epoch came to: leaks, dependence and reconstructions."""
    measured: list[tuple[Any, str, str, Mapping[str, Interval]]]
    measured = [(leak, leak.message, leak.attack, _figures_of(leak)) for leak in findings.leaks]
    measured += [(one, str(Kind.EMBEDDING), "", {"distance_correlation": one.dcor}) for one in findings.dependence]
    measured += [(one, one.message, one.attack, one.figures) for one in findings.reconstructions]
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
    return sides | {"leak_auc_coin": coin, "leak_auc_net": leak.net, "leak_auc_surest": leak.surest} | classes


def run_facts(run: "BuiltRun") -> dict[str, Any]:
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
) -> dict[str, schema.ThreatRecord]:
    """Attack -> who attacks and what it does, also of attacks that are skipped, and of references. cheats: a sentence for
    each adversary, which belongs to the threat of active attacks.
    """
    running = {one.name: one.threat for one in sorted(attackers, key=lambda one: one.threat.active)}
    does = {}
    for name, attack in attacks.items():
        kinds = type(attack).__mro__[: type(attack).__mro__.index(Attack)]  # the nearest that has a docstring
        docstring = inspect.cleandoc(next((cls.__doc__ for cls in kinds if cls.__doc__), ""))
        does[name] = " ".join(docstring.split("\n\n")[0].split()) or f"{kinds[0].__name__} has no docstring."
    for one in attackers:
        if one.on_columns:
            base = one.name.removesuffix(schema.FEATURES_ONLY)
            does[one.name] = f"{base} with the party's own columns in place of messages: a reference."
    threats = {}
    for name, text in does.items():
        threat = running[name] if name in running else attacks[name].threat
        said = " ".join([threat.sentence(), *(cheats if threat.active and name in running else ())])
        threats[name] = schema.ThreatRecord(**threat.record() | {"text": said, "does": text})
    if probed:
        threats[schema.PROBE] = schema.ThreatRecord(**Threat().record() | dict.fromkeys(("does", "text"), _PROBE_TEXT))
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


def summarise(run: "BuiltRun", unscored: Mapping[str, str]) -> Summary:
    """The figures of the last epoch (never of the best one), the guarantees of the defenses, and the costs of the run.

    failed: why the run counts as failed though it is complete, or why training ended early, or None.
    """
    results, session, experiment = run.results, run.session, run.experiment
    last, epochs, crossing, defenses = results[-1], len(results), session.cut_layers(), experiment.defenses
    leaks, exposure = last.findings.leaks, Exposure(epochs, epochs * session.messages_per_row)
    levels = {leak.attack: schema.level_of(leak.attack, run.facts["threats"]) for leak in leaks}
    joining = [name for name, attack in experiment.attacks.items() if attack.follows]
    mixing = [name for name, attack in experiment.attacks.items() if attack.threat.mixes_messages]
    figures = [figures for result in results for figures in result.figures]
    promises = promised(defenses, exposure, leaks, levels, joining, figures, mixing, crossing)
    privacy = account(defenses, exposure, leaks, run.auditor.canaries)
    test_auc, changed = last.utility["test"]["auc"], messages_changed(defenses.values()) if defenses else set()
    crossed: dict[tuple[str, str, str], Counter[str]] = {}
    for link in (link for result in results for link in result.links["train"]):
        total = crossed.setdefault((link.sender, link.receiver, link.message), Counter())
        total.update(messages=link.messages, bytes=link.bytes)
    links = [Link(sender=by, receiver=to, message=message, **total) for (by, to, message), total in crossed.items()]
    measured: dict[str, Any] = {f"{split}_{name}": v for split, of in last.utility.items() for name, v in of.items()}
    return Summary(
        epochs=epochs,
        **measured,
        **tested(test_auc, test_rows(run.data)),
        loss=last.loss,
        first_epoch_loss={str(LOSS_EVERY * (i + 1)): loss for i, loss in enumerate(results[0].losses)},
        **what_attacks_read(last.findings),
        verdict=verdict(leaks, levels, promises, test_auc, changed, crossing),
        skipped=dict(run.skipped),
        unscored=dict(unscored),
        guarantees=promises,
        claims_refused=dict(claims_of(defenses).refused),
        privacy=privacy,
        embedding_privacy=embedding_account(session.claims(), epochs) if defenses else [],
        failed=(_failure(privacy) if privacy and privacy.violated else session.stopped) or None,
        figures=_over_epochs(figures),
        bytes_sent={str(kind): sum(link.bytes for link in links if link.message == kind) for kind in Kind},
        links=links,
        seconds=round(sum(result.wall for result in results), 3),
        cpu_seconds=cpu_seconds([result.seconds for result in results]),
        facts=dict(run.data.facts),
    )


def cpu_seconds(measured: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, float]:
    """Phase or attack -> its CPU seconds, phases first, then the most. measured: in each epoch, as of `Meter`."""
    names = dict.fromkeys(name for seconds in measured for name in seconds)
    total = {name: round(sum(seconds[name][1] for seconds in measured if name in seconds), 3) for name in names}
    return dict(sorted(total.items(), key=lambda spent: ("/" in spent[0], -spent[1])))


def what_attacks_read(findings: Findings) -> dict[str, Any]:
    """The parts of the summary about leaks, a tree a figure and all of them as they are, and about rebuilt data."""
    return {
        **trees(findings.leaks),
        "leaks": [asdict(leak) for leak in findings.leaks],
        "distance_correlation": [asdict(one) for one in findings.dependence],
        "reconstructions": [asdict(one) for one in findings.reconstructions],
    }


def trees(leaks: Sequence[Leak]) -> dict[str, FigureTree]:
    """Figure -> attack -> message -> layer -> its mean; of several parties with such a layer, of the one that learns most.

    Layers that an attacker sees come before hidden ones, and those that are undefined (nan) come last.
    """

    def weight(leak: Leak) -> tuple[bool, float]:
        one = reading(leak)
        return leak.visible, strength(one.figure, one.value)

    made: dict[str, FigureTree] = {figure: {} for figure in _TREES}
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


def _over_epochs(measured: Sequence[Figures]) -> list[PlainValues]:
    """Each figure of each party and layer: counts added up over the epochs, measurements of the last epoch."""
    total: dict[tuple[str, str, str, str], float] = {}
    for figures in measured:
        for name, value in figures.values.items():
            key = (figures.party, figures.layer, figures.message, name)
            total[key] = total.get(key, 0) + value if isinstance(value, int) else value
    names = ("party", "layer", "message", "figure", "value")
    return [dict(zip(names, (*key, value), strict=True)) for key, value in total.items()]


TOLERABLE = 0.55
"""The leak AUC up to which no defense falls."""
NEAR = 0.05
"""So far below the model's test AUC, an attack is as good as the model."""
MESSAGES_PER_EPOCH = 2
"""Embeddings of one row that cross in an epoch at most, per layer: in training, and where train AUC is measured."""
DELTA = 1e-6
_CONFIDENCE = 0.999
"""Probability that no attack of a run seems to break a guarantee that holds."""


def promised(
    defenses: Mapping[str, Defense],
    exposure: Exposure,
    leaks: Sequence[Leak],
    levels: Mapping[str, str],
    joining: Collection[str],
    figures: Sequence[Figures],
    mixing: Collection[str] = (),
    crossing: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> dict[str, Promise | None]:
    """The guarantees part of summary.json: what holds for one message about a row, and for all messages of the run.

    exposure: of the run. levels: attack -> level. joining: attacks whose leaks are compared with the ceiling of all
    messages, as they join what they see of a row over the epochs. figures: of the defenses, in all epochs. mixing: attacks
    that read other kinds of messages as well. crossing: party -> layers that cross.

    A ceiling on one kind of message is about that message alone. It doesn't bound what is read of it and of others together,
    nor of layers below the cut, whose gradients depend on the party's own columns as well. One message is one of the last
    epoch: networks remember what earlier ones told of the labels, so label privacy counts all that was released.

    tested: for each party, layer and epoch the figures by which the assumption was tested. assumption_holds: None where
    nothing was tested, or where there is nothing to assume. exceeded: visible leaks that are surely above the ceiling, the
    strongest first, with the low end of their simultaneous interval (`metrics.leak.above`).
    """
    made: dict[str, Promise | None] = {}
    counted = at_levels(leaks, levels, *schema.LEVELS)
    for name, guarantee in claims_of(defenses).of.items():
        if guarantee is None:
            made[name] = None
            continue
        bounded = [
            leak
            for leak in counted
            if not guarantee.message  # it is about all that is sent, else about the message as it crosses
            or (schema.base_name(leak.attack) not in mixing and leak.layer in crossing.get(leak.party, (leak.layer,)))
        ]
        one = Exposure() if guarantee.release is None else exposure  # weights remember what was learned from a label
        ceiling, of_all = guarantee.leak_auc_after(one), guarantee.leak_auc_after(exposure)
        heights = [
            (of_all if schema.base_name(leak.attack) in joining else ceiling)
            if guarantee.message in ("", leak.message)
            else math.nan
            for leak in bounded
        ]
        tested: list[dict[str, Any]] = [
            {"party": of.party, "layer": of.layer}
            | {figure: of.values.get(f"{name}.{figure}") for figure in guarantee.tested_by}
            for of in figures
            if guarantee.tested_by and f"{name}.{guarantee.tested_by[0]}" in of.values
        ]
        made[name] = Promise(
            **{key: getattr(guarantee, key) for key in ("claim", "bounds", "message", "assumption")},
            messages=exposure.messages,
            leak_auc_one_message=ceiling,
            leak_auc_all_messages=of_all,
            error_one_message=guarantee.error_after(one),
            error_all_messages=guarantee.error_after(exposure),
            tested=tested,
            assumption_holds=holds([measured[guarantee.tested_by[0]] for measured in tested]),
            exceeded=[
                Reading(**vars(it), level=levels[it.attack], ceiling=height) for it, height in above(bounded, heights)
            ],
        )
    return made


def exceeded_ceilings(promises: Mapping[str, Promise | None]) -> dict[str, list[Reading]]:
    """Defense -> the leaks above its ceiling, of those that bound the leak. A ceiling of label privacy is no bound on it."""
    return {name: one.exceeded for name, one in promises.items() if one and one.bounds == THE_LEAK and one.exceeded}


def verdict(
    leaks: Sequence[Leak],
    levels: Mapping[str, str],
    promises: Mapping[str, Promise | None],
    test_auc: float,
    changed: Collection[str],
    crossing: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> schema.Verdict:
    """The verdict part of summary.json.

    changed: kinds of messages that the defenses change (`messages_changed`). crossing: party -> layers that cross.
    worst: the worst attack of all levels, None without a score. Of equal readings it is one that knows less, at a layer that
    crosses. Its interval allows for having picked it among all.
    levels: level -> the worst attack with its interval, and `features_only`, the value of the same attack on the party's own
    columns; levels without a score are left out. on_changed: the same among attacks on messages that the defenses change,
    where the worst of all is on another. references: what the probe reads, and the best on own columns. falls: the
    attack to which the defenses fall, with the reason; None if they stand, or there are none.

    They fall where a leak is surely above a ceiling on the leak. Where no ceiling says anything, they fall where the worst
    attack of a level on messages that they change is as good as the model, surely: the low end of its interval is above
    TOLERABLE, above test AUC - NEAR, and above what the same attack reads on the party's own columns. Label privacy doesn't
    fall by a leak.
    """
    at_all: dict[str, Reading] = {}
    on_changed: dict[str, Reading] = {}
    for level in schema.LEVELS:
        counted = at_levels(leaks, levels, level)
        one, other = worst(counted), worst(leak for leak in counted if leak.message in changed)
        if one is not None:
            at_all[level] = Reading(**vars(one), features_only=_features_only(leaks, one.attack))
            if other is not None and one.message not in changed:
                on_changed[level] = Reading(**vars(other), features_only=_features_only(leaks, other.attack))
    references: dict[str, list[Leak]] = {"probe": [], "own columns": []}
    for leak in (leak for leak in leaks if leak.visible and levels[leak.attack] == schema.REFERENCE):
        references["probe" if schema.base_name(leak.attack) == schema.PROBE else "own columns"].append(leak)

    def demand(leak: Leak) -> tuple[int, bool]:
        return schema.LEVELS.index(levels[leak.attack]), leak.layer not in crossing.get(leak.party, (leak.layer,))

    def falls() -> Reading | None:
        listed = [entry for entries in exceeded_ceilings(promises).values() for entry in entries]
        if listed:
            entry = max(listed, key=lambda entry: entry.value or 0.0)
            because = f"above the ceiling of {distinct_rounding(entry.value or 0.0, entry.ceiling or 0.0)[1]}"
            return entry.model_copy(update={"because": because})
        given = [promise for promise in promises.values() if promise is not None]
        if any(promise.bounds != THE_LEAK for promise in given):
            return None
        covered = [promise.message for promise in given if (promise.leak_auc_all_messages or 0.0) < 1]
        bar = max(TOLERABLE, test_auc - NEAR)
        for level in schema.LEVELS:
            counted = [leak for leak in at_levels(leaks, levels, level) if leak.message in changed]
            one = worst(leak for leak in counted if "" not in covered and leak.message not in covered)
            if one is None or one.figure != "AUC" or math.isnan(one.low):
                continue
            if one.low > max(bar, _features_only(leaks, one.attack) or 0.0):
                because = f"as good as the model, whose test AUC is {test_auc:.3f}"
                return Reading(**vars(one), level=level, because=because)
        return None

    first = worst(sorted(at_levels(leaks, levels, *schema.LEVELS), key=demand))
    return schema.Verdict(
        worst=None if first is None else Reading(**vars(first)),
        levels=at_all,
        on_changed=on_changed,
        references={name: Reading(**vars(one)) for name, of in references.items() if (one := worst(of))},
        falls=falls() if promises or changed else None,
        changed=sorted(changed),
    )


def messages_changed(defenses: Collection[Defense]) -> set[str]:
    """The kinds of messages that they change: of a penalty embeddings, of what is learned from labels all."""
    learning = (LabelDefense.labels, LabelDefense.loss, LabelDefense.outputs, LabelDefense.entrance)
    hooks = {
        "embedding": (NonLabelDefense.embedding, LabelDefense.penalty, *learning),
        "gradient": (LabelDefense.gradient, *learning),
        "update": (ParticipantDefense.update, ParticipantDefense.order),
    }
    return {kind for kind, originals in hooks.items() if any(changes(d, hook) for d in defenses for hook in originals)}


def _features_only(leaks: Sequence[Leak], attack: str) -> float | None:
    """What the same attack reads on the party's own columns; None if that was not tried."""
    twin = f"{schema.base_name(attack)}{schema.FEATURES_ONLY}"
    one = worst(leak for leak in leaks if leak.visible and leak.attack.startswith(twin))
    return None if one is None else one.value


def account(
    defenses: Mapping[str, Defense], exposure: Exposure, leaks: Sequence[Leak], canaries: Canaries
) -> schema.Privacy | None:
    """The privacy part of summary.json; None where no label DP is guaranteed and there are no canaries.

    epsilon: the sum over releases, None if nothing is guaranteed, or no pure eps. mu: of Gaussian noise alone, else None.
    epsilon_at_delta: the least eps known to hold with delta. tried: lower bounds from the readers of what was trained on
    (`Canaries`), and from each attack on each layer that its party sees, in the last epoch. epsilon_low, mu_low: the largest
    of them, at CONFIDENCE for all together (Bonferroni); mu_low where mu is claimed, else epsilon_low. violated: whether it
    is more than the claim. power: for mechanisms 1.5 and 2 times weaker than claimed, the probability that the bound of the
    better of these readers exceeds the claim, if each row is visited once an epoch, and how many canaries have a probability
    of POWER, None if a million have not; not violated is not verified. Of several releases, and of `lp_2st`, whose answers
    depend on the model, no power is known.
    """
    made = {name: g.release for name, g in claims_of(defenses).of.items() if g is not None and g.release is not None}
    if not made and not len(canaries):
        return None
    ledger, pure = Ledger(), {name: release for name, release in made.items() if isinstance(release, Release)}
    for name, release in (pure or made).items():  # either covers all that is sent
        ledger.add(name, release, exposure)
    seen = [leak for leak in leaks if leak.visible and leak.guesses.total]
    names = ["the labels trained on"] * bool(len(canaries)) + ["the noise on labels"] * bool(canaries.votes[1].any())
    alpha, is_gaussian = (1 - _CONFIDENCE) / max(1, len(names) + len(seen)), ledger.mu is not None
    claimed = ledger.epsilon if pure else None
    limit = ledger.mu if is_gaussian else claimed
    tried, read, bound = {}, dict[float, CanaryRead](), 0.0
    single = next(iter(made.values())) if len(made) == 1 else None
    for place, name in enumerate(names):
        if limit and single is not None:
            visits = single.count(exposure)
            bound, read = reader_of(single, limit, visits, len(canaries), alpha, 0 if place else canaries.classes)
            bound *= exposure.epochs / visits
        tried[name] = canaries.guesses(place, bound, every=is_gaussian)
    for leak in seen:
        on = "" if leak.message == NO_MESSAGE else f" on {leak.message}s"
        tried[f"{leak.attack}{on} of {leak.party} {leak.layer}"] = leak.guesses
    bounds = {
        name: guesses.mu_low(alpha, len(canaries)) if is_gaussian else guesses.epsilon_low(alpha)
        for name, guesses in tried.items()
    }
    best = max(bounds, key=bounds.__getitem__, default=None)
    low, proven = None if best is None else bounds[best], "mu_low" if is_gaussian else "epsilon_low"
    given = [
        schema.ReleaseRecord(defense=by, mechanism=it.mechanism, epsilon=it.epsilon, times=n) for by, it, n in ledger.entries
    ]
    given += [schema.ReleaseRecord(defense=by, mechanism=it.mechanism, mu=mu) for by, it, mu in ledger.gaussian]
    return schema.Privacy(
        epsilon=claimed,
        mu=ledger.mu,
        delta=DELTA,
        epsilon_at_delta=None if not made else ledger.epsilon_at(DELTA),
        releases=given,
        canaries=len(canaries),
        confidence=_CONFIDENCE,
        tried={name: {"guesses": tried[name].total, proven: bound} for name, bound in bounds.items()},
        **dict.fromkeys(("epsilon_low", "epsilon_low_by", "mu_low", "mu_low_by")) | {proven: low, f"{proven}_by": best},
        violated=low is not None and limit is not None and low > limit,
        power=[
            schema.Power(
                times=times,
                probability=power(limit, times, len(canaries), alpha, gaussian=is_gaussian, read=read.get(times)),
                wanted=POWER,
                canaries_needed=canaries_needed(limit, times, alpha, gaussian=is_gaussian, read=read.get(times)),
            )
            for times in TOO_WEAK
            if limit is not None and 0 < limit < math.inf and single is not None and single.mechanism != "lp_2st"
        ],
    )


def _failure(privacy: schema.Privacy) -> str:
    """Why a run that broke its promise counts as failed."""
    names = ", ".join(dict.fromkeys(release.defense for release in privacy.releases))
    symbol, figure = ("eps", "epsilon") if privacy.mu is None else ("mu", "mu")
    claimed, low, by = (getattr(privacy, f"{figure}{end}") for end in ("", "_low", "_low_by"))
    return (
        f"{names}: the promise of {symbol} = {claimed:.4g} is broken: {by} guessed the labels of {privacy.canaries} "
        f"canaries so well that {symbol} is at least {low:.4g} ({privacy.confidence:.1%} sure)"
    )


def embedding_account(claims: Mapping[tuple[str, str], Sent], epochs: int) -> list[schema.PlainValues]:
    """The embedding_privacy part of summary.json: a row for each party, layer and defense that puts noise on embeddings.

    epsilon, delta: of one message about a row's embedding; None if nothing is claimed. reason: why not, or what is unusual.
    assumes: of arithmetic and random numbers.
    epsilon_all, delta_all: of all `messages` about it, each with fresh noise. epsilon_exact, epsilon_exact_all: at the same
    deltas, from the distribution of the noise rather than from a theorem; None where no eps is enough, or where there is no
    such figure (`exact` is False).
    """
    accounts = []
    for (party, layer), sent in claims.items():
        for name, release in sent.releases:
            known = {"party": party, "layer": layer, "defense": name, "width": sent.width}
            known |= {key: getattr(release, key) for key in ("mechanism", "epsilon", "delta", "reason", "assumes")}
            messages = release.messages(epochs, (MESSAGES_PER_EPOCH - 1) * epochs)
            total, exact = release.delta_after(messages), release.exact_after or (lambda *_: math.inf)
            known |= {"epsilon_all": release.after(messages, total), "epsilon_exact": exact(1, release.delta)}
            known |= {"epsilon_exact_all": exact(messages, total), "messages": messages, "delta_all": total}
            known["exact"] = release.exact_after is not None
            accounts.append({key: None if value == math.inf else value for key, value in known.items()})
    return accounts


def refusals(claims: Mapping[tuple[str, str], Sent]) -> list[str]:
    """A line for each defense whose noise on embeddings claims nothing; layers with the same reason share a line."""
    places: dict[tuple[str, str], list[str]] = {}
    for (party, layer), sent in claims.items():
        for name, release in sent.releases:
            if release.epsilon is None:
                places.setdefault((name, release.reason), []).append(f"{party} {layer}")
    return [
        f"{name} claims no differential privacy for {', '.join(sorted(its))}: {reason}"
        for (name, reason), its in sorted(places.items())
    ]
