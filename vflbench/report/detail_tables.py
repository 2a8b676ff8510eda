"""The folded tables of a section: layers, reconstructions, guarantees, cost, attacks without a result."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vflbench.numerics.figure_range import range_of
from vflbench.numerics.interval import over_runs
from vflbench.report.other_tables import other_lists
from vflbench.report.sections import Section
from vflbench.report.words import checked
from vflbench.results import quantity
from vflbench.results.runs import mappings
from vflbench.results.table_formats import Table

_FIGURES = ("leak_raw", "leak_two_sided", "leak_oriented", "leak_coin", "leak_net", "leak_ami", "leak_accuracy")
_ANSWERS = {True: "tested: not refused", False: "tested: does not hold", None: "not tested"}


def details(section: Section) -> list[Table]:
    first, last = (layers, reconstructions), (guarantees, ledgers, counts, cost, links, without_result)
    return [*(table(section) for table in first), *other_lists(section), *(table(section) for table in last)]


def layers(section: Section) -> Table:
    """One line per setting, attack, party and layer."""
    cells: dict[tuple[str, ...], dict[str, list[float]]] = {}
    for g in section.groups:
        for run in g.runs:
            for leak in quantity.leaks(run):
                seen = "yes" if leak.get("visible") else "no"
                attack = (quantity.label(leak), quantity.level(leak, run))
                key = (g.name, *attack, str(leak.get("party", "")), str(leak["layer"]), seen)
                values = cells.setdefault(key, {})
                for name in _FIGURES:
                    value = quantity.leak_value(leak, name)
                    if not math.isnan(value):
                        values.setdefault(name, []).append(value)
    names = [n for n in _FIGURES if any(n in v for v in cells.values())]
    rows = []
    for place, values in cells.items():
        count = max(map(len, values.values()), default=0)
        rows.append([*place, count, *(over_runs(values.get(n, []), range_of(n)) for n in names)])
    titles = [quantity.plain_title(n) for n in names]
    columns = ("setting", "attack", "level", "party", "layer", "seen by an attacker", "runs", *titles)
    note = (
        "Values of the last epoch. Two-sided: max(a, 1 - a) of the mean over batches. Oriented: the mean over batches of "
        "max(a, 1 - a). Beside it are the value that a coin reaches there, and oriented without the part of a coin (net). A "
        "leak counts as the larger of two-sided and net."
    )
    return Table(f"{section.slug}_layers", "Leak at every layer", columns, rows, note)


def reconstructions(section: Section) -> Table:
    """What attacks on data, not on labels, rebuilt; a column per figure."""
    cells: dict[tuple[str, ...], dict[str, list[float]]] = {}
    beats: dict[tuple[str, ...], list[bool]] = {}
    for g in section.groups:
        for run in g.runs:
            for entry in mappings(run.summary.get("reconstructions")):
                place = tuple(str(entry.get(k, "")) for k in ("attack", "message", "party", "layer"))
                values = cells.setdefault((g.name, *place), {})
                if entry.get("beats_every_guess") is not None:
                    beats.setdefault((g.name, *place), []).append(entry["beats_every_guess"])
                for name, figure in (entry.get("figures") or {}).items():
                    number = quantity.number(figure.get("mean") if isinstance(figure, Mapping) else figure)
                    if not math.isnan(number):
                        values.setdefault(name, []).append(number)
    names = list(dict.fromkeys(name for values in cells.values() for name in values))
    rows = [
        [
            *key,
            max(map(len, values.values()), default=0),
            *(over_runs(values.get(name, []), range_of(name)) for name in names),
        ]
        for key, values in cells.items()
    ]
    columns = ("setting", "attack", "message", "party", "layer", "runs", *(name.replace("_", " ") for name in names))
    note = "Means over runs (95 % t-interval)."
    if beats:
        columns = (*columns, "beats every guess")
        counts = [f"{sum(of)} of {len(of)} runs" if (of := beats.get(key)) else None for key in cells]
        rows = [[*row, count] for row, count in zip(rows, counts, strict=True)]
        note += (
            " Answers under message none are guesses without messages. A run beats them if its error is smaller by the "
            "interval over rows, for each of them, and more rows than by chance are identified among rows of their class."
        )
    return Table(f"{section.slug}_reconstructions", "Reconstructions", columns, rows, note)


def guarantees(section: Section) -> Table:
    rows = []
    for g in section.groups:
        for defense in dict.fromkeys(name for run in g.runs for name in run.summary.get("guarantees") or {}):
            promises = [(run.summary.get("guarantees") or {}).get(defense) for run in g.runs]
            given = [p for p in promises if p]
            if not given:
                rows.append([g.name, defense, "nothing", *[None] * 7])
                continue
            numbers = [
                max((quantity.number(p.get(name)) for p in given), default=math.nan)
                for name in ("leak_auc_one_message", "leak_auc_all_messages")
            ]
            floors = [
                min(quantity.number(p.get(name)) for p in given) for name in ("error_one_message", "error_all_messages")
            ]
            assumed = "; ".join(dict.fromkeys(map(_assumption, given)))
            bounds = str(given[0].get("bounds") or "the leak")
            place = [g.name, defense, str(given[0].get("claim", "")), bounds, assumed, given[0].get("messages")]
            rows.append([*place, *numbers, *floors])
    columns = (
        *("setting", "defense", "promises", "bounds", "assumes", "messages a run", "leak AUC at most, one message"),
        *("leak AUC at most, all messages", "error at least, one message", "error at least, all messages"),
    )
    note = (
        "A guarantee holds for one run. Somebody who sees several runs on the same rows, such as the seeds of a sweep, sees "
        "their releases together, for which no single guarantee holds."
    )
    return Table(f"{section.slug}_guarantees", "Guarantees", columns, rows, note)


def _assumption(promise: Mapping[str, Any]) -> str:
    if not promise.get("assumption"):
        return "nothing"
    return f"{promise['assumption']} ({_ANSWERS[promise.get('assumption_holds')]})"


def ledgers(section: Section) -> Table:
    """Label differential privacy: what the runs of each setting spent, and the lower bound that canaries prove."""
    rows = []
    for g in section.groups:
        privacy = [run.summary["privacy"] for run in g.runs if isinstance(run.summary.get("privacy"), Mapping)]
        if not privacy:
            continue
        spent = " + ".join(
            f"{r.get('times')} x {r.get('epsilon')} ({r.get('defense')}, {r.get('mechanism')})"
            if r.get("mu") is None
            else f"mu {r.get('mu')} ({r.get('defense')}, {r.get('mechanism')})"
            for r in mappings(privacy[0].get("releases"))
        )
        numbers = [[quantity.number(p.get(k)) for p in privacy] for k in ("epsilon", "epsilon_at_delta", "epsilon_low")]
        spent_most, at_delta, proven = (max(finite(values), default=None) for values in numbers)
        delta = privacy[0].get("delta")
        delta = None if delta is None else f"{delta:g}"
        together = sum(finite(numbers[0])) or None
        mus = [[quantity.number(p.get(k)) for p in privacy] for k in ("mu", "mu_low")]
        mu, mu_low = (max(finite(values), default=None) for values in mus)
        least = [g.name, len(privacy), spent or None, spent_most, mu, at_delta, delta, proven, mu_low, together]
        rows.append([*least, checked(privacy)])
    columns = (
        *("setting", "runs", "releases of a run", "eps of a run", "mu of a run", "eps at delta", "delta"),
        *("eps proven by canaries", "mu proven by canaries", "eps of all seeds together", "violated, and what is caught"),
    )
    note = (
        "Pure eps of releases about the same label adds up: over the epochs in which the label is randomized anew, over "
        "defenses, and over runs that are seen together. A promise that is not violated is not verified: the last column "
        "says how probably the canaries of a run would catch one that is 1.5 or 2 times too weak, at best."
    )
    return Table(f"{section.slug}_ledger", "Label differential privacy", columns, rows, note)


def counts(section: Section) -> Table:
    """The figures that the defenses counted and measured."""
    cells: dict[tuple[str, ...], list[float]] = {}
    for g in section.groups:
        for run in g.runs:
            for f in mappings(run.summary.get("figures")):
                value = quantity.number(f.get("value"))
                if not math.isnan(value):
                    place = (str(f.get(k, "")) for k in ("party", "layer", "message"))
                    cells.setdefault((g.name, str(f.get("figure", "")).replace("_", " "), *place), []).append(value)
    rows = [[*key, len(values), over_runs(values, range_of(key[1].replace(" ", "_")))] for key, values in cells.items()]
    columns = ("setting", "figure", "party", "layer", "message", "runs", "value")
    return Table(f"{section.slug}_figures", "What the defenses counted and measured", columns, rows)


def cost(section: Section) -> Table:
    rows = []
    for g in section.groups:
        kinds = dict.fromkeys(k for run in g.runs for k in run.summary.get("bytes_sent") or {})
        sent = {kind: over_runs(quantity.value(r, f"bytes_sent.{kind}") for r in g.runs).mean / 1e6 for kind in kinds}
        by_kind = ", ".join(f"{kind} {megabytes:.3g}" for kind, megabytes in sent.items())
        total = over_runs(quantity.value(r, "bytes_sent") for r in g.runs).mean / 1e6
        seconds = over_runs((quantity.value(r, "seconds") for r in g.runs), range_of("seconds"))
        epochs = quantity.number(g.runs[0].summary.get("epochs"))
        count = None if math.isnan(epochs) else int(epochs)
        rows.append([g.name, len(g.runs), count, seconds, total, by_kind or None])
    columns = ("setting", "runs", "epochs", "seconds a run", "MB sent in training", "of which")
    note = "Seconds of one run with evaluation and attacks, on the machines named above; megabytes between the parties."
    return Table(f"{section.slug}_cost", "Cost", columns, rows, note)


def links(section: Section) -> Table:
    """What crossed each link, where embeddings go to more than one party."""
    cells: dict[tuple[str, ...], list[float]] = {}
    for g in section.groups:
        for run in g.runs:
            of_run = list(mappings(run.summary.get("links")))
            if len({str(one.get("receiver")) for one in of_run if one.get("message") == "embedding"}) > 1:
                for one in of_run:
                    place = (g.name, *(str(one.get(k, "")) for k in ("sender", "receiver", "message")))
                    cells.setdefault(place, []).append(quantity.number(one.get("bytes")) / 1e6)
    rows = [[*place, len(values), over_runs(values).mean] for place, values in cells.items()]
    columns = ("setting", "from", "to", "message", "runs", "MB sent in training")
    return Table(f"{section.slug}_links", "Traffic by link", columns, rows)


def without_result(section: Section) -> Table:
    """Attacks that did not run (skipped), and attacks none of whose answers could be scored."""
    settings: dict[tuple[str, str, str], list[str]] = {}
    for g in section.groups:
        for run in g.runs:
            for outcome, reasons in (("skipped", run.skipped), ("not scored", run.unscored)):
                for attack, reason in reasons.items():
                    names = settings.setdefault((attack, outcome, reason), [])
                    names += [g.name] if g.name not in names else []
    rows = [[*key, len(names), "; ".join(names[:3]) + (" ..." if len(names) > 3 else "")] for key, names in settings.items()]
    columns = ("attack", "outcome", "why", "settings", "such as")
    note = "Skipped: the attack did not run. Not scored: it ran, but none of its answers could be scored."
    return Table(f"{section.slug}_skipped", "Attacks without a result", columns, rows, note)


def finite(values: Sequence[float]) -> list[float]:
    return [value for value in values if not math.isnan(value)]
