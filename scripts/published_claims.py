"""What this project computes or measures where a document makes a claim: for `scripts/published.py`.

ANSWERS: to claims, by the names of docs/experiments/published/*.json. FACTS: of settings. VIEWS: of tables and figures that
are shown in a way of their own. Nothing of it is typed: formulas are evaluated by the code that the runs use, times are
taken while the page is made, and the rest is read from the runs.
"""

import math
import platform
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from programme_size import SIZES, size_of
from published_formulas import FORMULAS, error_bounds_view, numbers, response, timing_view

from vflbench.numerics.figure_range import range_of
from vflbench.numerics.interval import OverRuns, interval_text, over_runs
from vflbench.report.comparison import lines
from vflbench.report.documents import Part
from vflbench.report.groups import Group, paired
from vflbench.report.inversion import STRONGEST, inversion_table, rebuilt
from vflbench.report.published import losses as losses_of
from vflbench.report.published import scale_of
from vflbench.report.published_page import Results, layers_view, settings_view
from vflbench.report.published_tables import table
from vflbench.report.sections import Section
from vflbench.report.solver_times import cells_of, cells_table, published_cells
from vflbench.results import quantity
from vflbench.results.identity import digest
from vflbench.results.origins import made_by
from vflbench.results.runs import Run

NO_RUNS = "not measured: no runs were given"
SPECTRAL = "leak_two_sided:spectral"
NORM = "leak_two_sided:norm"
TABLE = "quantification_table1"
DAYS = "bytedance_next_day"


# 000: sumKL


def published_name(group: Group) -> str:
    """`inf`, `3.6`, ..., `max_norm`."""
    sumkl = group.runs[0].option("defense.marvell.sumkl")
    return group.defense if sumkl is None else f"{float(sumkl):g}"


def in_sumkl(section: Section) -> dict[str, Group]:
    return {published_name(group): group for group in section.groups}


def over_days(section: Section) -> dict[str, list[Run]]:
    """Runs of one defense, whatever their day."""
    by_name: dict[str, list[Run]] = {}
    for group in section.groups:
        by_name.setdefault(published_name(group), []).extend(group.runs)
    return by_name


def agreement(order: Sequence[Sequence[str]], values: Mapping[str, float]) -> str:
    """Of the pairs that the published order separates, how many are in that order here."""
    pairs = [
        (a, b)
        for i, high in enumerate(order)
        for low in order[i + 1 :]
        for a in high
        for b in low
        if a in values and b in values
    ]
    right = sum(values[a] > values[b] for a, b in pairs)
    wrong = [f"{b} > {a}" if values[a] < values[b] else f"{a} and {b} are equal" for a, b in pairs if values[a] <= values[b]]
    ours = " > ".join(sorted(values, key=lambda name: -values[name]))
    text = f"Here: {ours}. {right} of the {len(pairs)} pairs that the document separates are in its order"
    return text + (f"; here {', '.join(wrong)}." if wrong else ".")


def order_view(part: Part, results: Results, name: str) -> str:
    """A line a setting with `name`, over seeds (or days), and whether the order is the published one."""
    blocks = []
    for section in results.sections((*part.experiments, *part.more)):
        of_days = section.experiment == DAYS
        runs = over_days(section) if of_days else {key: list(group.runs) for key, group in in_sumkl(section).items()}
        found = {key: over_runs((quantity.value(run, name) for run in of), range_of(name)) for key, of in runs.items()}
        cost = costs(section) if name == "test_auc" else {}
        rows = [[key, len(runs[key]), found[key], cost.get(key)] for key in sorted(runs, key=lambda k: -found[k].mean)]
        width = 4 if cost else 3
        head = ("sumKL or defense", "days" if of_days else "runs", quantity.title(name), "loss beside no noise")[:width]
        kind = "over days, as the bands of the document" if of_days else "over seeds"
        text = f"{table(head, [row[:width] for row in rows])}\n\nHere on {scale_of(section)}; intervals {kind}."
        if part.said.get("order"):
            text += " " + agreement(part.said["order"], {key: interval.mean for key, interval in found.items()})
        blocks.append(text)
    return "\n\n".join(blocks) or NO_RUNS


def costs(section: Section) -> dict[str, OverRuns]:
    """What each setting costs of the test AUC, paired with the run without noise of the same seed and day."""
    by_name: dict[str, list[Group]] = {}
    for group in section.groups:
        by_name.setdefault(published_name(group), []).append(group)
    found = {name: over_runs(losses_of(groups, section, "test_auc")) for name, groups in by_name.items()}
    return {name: loss for name, loss in found.items() if loss.runs}


def loss_order_view(part: Part, results: Results) -> str:
    return order_view(part, results, "test_auc")


def leak_range_view(part: Part, results: Results) -> str:
    return order_view(part, results, NORM)


def leak_order_view(part: Part, results: Results) -> str:
    return order_view(part, results, "leak_distance:norm")


def sumkl_groups(results: Results) -> tuple[Section, dict[str, Group]] | None:
    found = results.parts.get("bytedance_sumkl", ())
    return (found[0], in_sumkl(found[0])) if found else None


def losses(results: Results, names: Iterable[str]) -> dict[str, OverRuns]:
    found = sumkl_groups(results)
    cost = costs(found[0]) if found else {}
    return {name: cost[name] for name in names if name in cost}


def auc_loss(results: Results) -> str:
    found = losses(results, ("0.01", "0.16", "0.49"))
    return "; ".join(f"sumkl {name}: {interval_text(loss)}" for name, loss in found.items()) or NO_RUNS


RANGE = ("0.16", "0.49", "0.64")


def sensible_sumkl(results: Results) -> str:
    loss = losses(results, RANGE)
    if not loss:
        return NO_RUNS
    return "in that range: " + range_loss(results) + "; " + range_leak(results)


def range_loss(results: Results) -> str:
    loss = losses(results, RANGE)
    return f"test AUC falls by {spread(loss)}" if loss else NO_RUNS


def range_leak(results: Results) -> str:
    found = sumkl_groups(results)
    if found is None:
        return NO_RUNS
    leaks = {name: found[1][name].interval(NORM) for name in RANGE if name in found[1]}
    return f"leak AUC of the norm {spread(leaks)}"


def spread(by_name: Mapping[str, OverRuns]) -> str:
    return ", ".join(f"{interval_text(one)} at {name}" for name, one in by_name.items())


def positive_ratio(results: Results, dataset: str = "criteo") -> str:
    ratios = sorted(
        {
            round(float(ratio), 3)
            for run in results.runs
            if run.dataset == dataset and run.option("dataset.positive_ratio") is None
            if (ratio := (run.manifest.get("data") or {}).get("train_positive_ratio")) is not None
        }
    )
    return f"{numbers(ratios)} of the training rows" if ratios else NO_RUNS


# 001: batches


def rebuilt_by(results: Results, experiment: str, option: str) -> str:
    """Share of batches rebuilt exactly, and of those that are in the list, by an option."""
    found = results.parts.get(experiment, ())
    if not found:
        return NO_RUNS
    texts = []
    for group in found[0].groups:
        figures = {name: figure(group.runs, name) for name in ("exact", "contained", "unique")}
        batches = sum(entry["batches"] for run in group.runs for entry in run.summary["reconstructions"])
        value = group.runs[0].option(option)
        texts.append(
            f"{value}: {figures['exact'].mean:.0%} of {batches} batches exact, {figures['contained'].mean:.0%} in the list "
            f"of all that match, {figures['unique'].mean:.0%} unique"
        )
    return f"{'; '.join(texts)} ({scale_of(found[0])})"


def figure(runs: Sequence[Run], name: str) -> OverRuns:
    return over_runs((quantity.value(run, f"rebuilt.{name}") for run in runs), range_of(name))


def asynchronous_solved(results: Results) -> str:
    text = rebuilt_by(results, "quantification_asynchronous", "protocol.batches")
    return f"over the reals, yes; binary rows are found all the same. Local batches {text}"


def parties(results: Results) -> str:
    text = rebuilt_by(results, "quantification_parties", "protocol.parties")
    return f"all other participants' rows are rebuilt together, and their owner stays unknown. Participants {text}"


def exact_cells(results: Results) -> dict[tuple[int, int], dict[str, float]]:
    runs = [run for run in results.runs if run.experiment == TABLE]
    return {cell: of_cell["batch_reconstruction"] for cell, of_cell in cells_of(runs).items()}


def most_rows(results: Results) -> str:
    cells = exact_cells(results)
    whole = [cell for cell, figures in cells.items() if figures["exact"] == 1]
    if not whole:
        return NO_RUNS
    least = min(figures["contained"] for figures in cells.values())
    return (
        f"in {len(whole)} of {len(cells)} cells of table 1 every batch is rebuilt exactly, the largest {max(whole)[0]} x "
        f"{max(whole)[1]}; in the others another one may match, and the true batch is in the list of all that match in "
        f"{least:.0%} of batches at least"
    )


def twins(results: Results) -> str:
    cells = exact_cells(results)
    marked = [
        f"{m} x {d}: {1 - cells[m, d]['unique']:.0%} of batches have a twin" for m, d in ((9, 5), (11, 5)) if (m, d) in cells
    ]
    others = {cell: 1 - figures["unique"] for cell, figures in cells.items() if cell not in ((9, 5), (11, 5))}
    most = max(others, key=lambda cell: others[cell], default=None)
    if most is None:
        return NO_RUNS
    return "; ".join(marked) + f"; of the cells without a mark, {most[0]} x {most[1]} has most, {others[most]:.0%}"


def cells_view(part: Part, results: Results) -> str:
    names = (*part.experiments, *part.more)
    cells = cells_of([run for run in results.runs if run.experiment in names])
    sizes = {cell: size_of(cell) for cell in {*cells, *published_cells()}}
    text = cells_table(cells, sizes=sizes, size_names=SIZES)
    data = "; ".join(f"{name}: {scale_of(section)}" for name in names for section in results.parts.get(name, ()))
    return (
        f"{text}\n\n`batch_reconstruction` is the exact solver, which lists all batches that match; the others end at one. "
        f"{differences(cells)}{f' Here on {data}.' if data else ''}"
    )


def ratio_text(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def differences(cells: Mapping[tuple[int, int], Mapping[str, Mapping[str, float]]]) -> str:
    """Published seconds over ours."""
    published = {cell: value.number for cell, value in published_cells().items() if value.number is not None}
    texts = []
    for name in dict.fromkeys(attack for of_cell in cells.values() for attack in of_cell):
        ratios = [
            published[cell] / of_cell[name]["solver_seconds"]
            for cell, of_cell in cells.items()
            if cell in published and name in of_cell and of_cell[name].get("ended", of_cell[name].get("proved", 1)) == 1
        ]
        texts.append(
            f"{name} {ratio_text(min(ratios))} to {ratio_text(max(ratios))} ({len(ratios)} cells)" if ratios else ""
        )
    return f"Published seconds over ours: {'; '.join(filter(None, texts)) or NO_RUNS}."


# 002: pictures


def bias(results: Results) -> str:
    section = next(iter(results.parts.get("inversion_binomial", ())), None)
    if section is None:
        return NO_RUNS
    texts = []
    for line in lines(section.runs, ["defense.binomial.biased"]):
        for attack, attacker in (("total_variation", "does not know"), ("informed", "knows")):
            errors = over_runs((rebuilt(run, attack, "mse") for run in line.runs), range_of("mse"))
            noise = "biased" if line.options[0] else "unbiased"
            texts.append(f"{noise} noise, an attacker who {attacker} its mean: mse {interval_text(errors, '.3f')}")
    return "; ".join(texts)


INVERTED = {
    "total_variation": "`model_inversion` as published, which has the models and knows nothing of the compression",
    STRONGEST: "The one of four or five forms of `model_inversion` with the least error",
}
"""Attack of the experiments -> what it is."""


def inversion_view(part: Part, results: Results) -> str:
    blocks = []
    for section in results.sections(part.more):
        by = [key for key in results.experiments[section.experiment].sweep if key != "seed"]
        for attack, words in INVERTED.items():
            text = inversion_table(lines(section.runs, by), by, attack)
            blocks.append(f"{text}\n\n{words}, here on {scale_of(section)}; no published number to compare with.")
    return "\n\n".join(blocks) or f"Not measured here: no runs of {', '.join(part.more)} were given."


def swept(results: Results, name: str) -> str:
    """The values of an experiment's sweep."""
    sweep = results.experiments[name].sweep if name in results.experiments else {}
    kept = [f"{key.rpartition('.')[2]} {' '.join(str(value).split())}" for key, value in sweep.items() if key != "seed"]
    return f"`experiment={name}`: {'; '.join(kept)}" if kept else f"no experiment {name}"


# 003: embeddings
def group_with(results: Results, experiment: str, **options: Any) -> Group | None:
    """The one group of an experiment with these options, `__` for a dot."""
    wanted = {key.replace("__", "."): value for key, value in options.items()}
    for section in results.parts.get(experiment, ()):
        groups = [
            g
            for g in section.groups
            if all((g.defense if key == "defense" else g.runs[0].option(key)) == value for key, value in wanted.items())
        ]
        if len(groups) == 1:
            return groups[0]
    return None


def shown(group: Group | None, *names: str) -> str:
    if group is None:
        return NO_RUNS
    words = {SPECTRAL: "leak AUC", NORM: "leak AUC of the norm", "test_auc": "test AUC"}
    return ", ".join(f"{words[name]} {interval_text(group.interval(name))}" for name in names)


def gradients_undefended(results: Results) -> str:
    group = group_with(results, "forward_figure2", defense="none")
    both = group_with(results, "bytedance_max_norm", defense="none")
    direction = f"; cosine {interval_text(both.interval('leak_two_sided:cosine'))}" if both else ""
    return f"on gradients without protection: {shown(group, NORM)}{direction}"


def forward(results: Results, defense: str) -> str:
    group = group_with(results, "forward_figure2", defense=defense)
    if group is None:
        return NO_RUNS
    order = [layer for layer in group.runs[0].layers.order if layer not in ("h1", "h2", "h3")][-2:]
    return ", ".join(f"{interval_text(group.interval(SPECTRAL, layer))} at {layer}" for layer in order)


def distinct(runs: Iterable[Run]) -> list[Run]:
    """Each configuration once, in however many experiments it is."""
    return list({(digest(run.config), made_by(run)): run for run in runs}.values())


def leak_below_test(results: Results) -> str:
    runs = distinct(
        run for run in results.runs if run.experiment.startswith("forward_") and run.experiment != "forward_figure6"
    )
    both = [(quantity.value(run, SPECTRAL), quantity.value(run, "test_auc")) for run in runs]
    both = [pair for pair in both if not any(map(math.isnan, pair))]
    below = sum(leak < test for leak, test in both)
    return f"so in {below} of {len(both)} runs" if both else NO_RUNS


def alone(results: Results) -> dict[float, Group]:
    found = results.parts.get("forward_figure5_alone", ())
    return {float(g.runs[0].option("defense.dcor.alpha_d")): g for g in found[0].groups} if found else {}


def sensible(results: Results) -> str:
    groups = alone(results)
    texts = [f"alpha_d {a:g}: {shown(groups[a], SPECTRAL, 'test_auc')}" for a in (0.0, 0.002, 0.003, 0.005) if a in groups]
    return "; ".join(texts) or NO_RUNS


def alpha_0002(results: Results) -> str:
    groups = alone(results)
    if not {0.0, 0.002} <= set(groups):
        return NO_RUNS
    loss, _ = paired(groups[0.0], groups[0.002], "test_auc")
    return f"{shown(groups[0.002], SPECTRAL)}, loss of test AUC {interval_text(loss, '.4f')}"


def at_layer(results: Results, alpha: float) -> tuple[Group, list[str]] | None:
    group = group_with(results, "forward_figure7", defense="dcor", defense__dcor__alpha_d=alpha)
    return None if group is None else (group, list(group.runs[0].layers.order))


def layer_four(results: Results) -> str:
    found = at_layer(results, 0.0)
    if found is None:
        return NO_RUNS
    group, order = found
    return (
        f"leak AUC at layer 4 ({order[3]}) {interval_text(group.interval(SPECTRAL, order[3]))}, {shown(group, 'test_auc')}"
    )


def all_layers(results: Results) -> str:
    texts = []
    for alpha in (0.002, 0.003, 0.005):
        found = at_layer(results, alpha)
        if found is not None:
            group, order = found
            steps = ", ".join(f"{layer} {interval_text(group.interval(SPECTRAL, layer))}" for layer in order[-3:])
            texts.append(f"alpha_d {alpha}: {steps}; {shown(group, 'test_auc')}")
    return "; ".join(texts) or NO_RUNS


def table1(results: Results) -> dict[tuple[float, int], Group]:
    found = results.parts.get("forward_table1", ())
    options = ("defense.dcor.alpha_d", "model.top_layers")
    return {tuple(g.runs[0].option(key) for key in options): g for g in found[0].groups} if found else {}  # type: ignore[misc]


def small_large(results: Results) -> str:
    groups = table1(results)
    texts = []
    for alpha in (0.003, 0.005, 0.02, 0.03, 0.04):
        if (alpha, 1) in groups and (alpha, 3) in groups:
            gain, _ = paired(groups[alpha, 3], groups[alpha, 1], "test_auc")
            texts.append(f"{interval_text(gain, '+.4f')} at {alpha}")
    return f"test AUC with 3 layers - with 1: {', '.join(texts)}" if texts else NO_RUNS


def cells_of_table1(results: Results, *cells: tuple[float, int]) -> str:
    groups = table1(results)
    texts = [
        f"{'large' if top > 1 else 'small'}, {a}: {interval_text(groups[a, top].interval('test_auc'))}"
        for a, top in cells
        if (a, top) in groups
    ]
    return "; ".join(texts) or NO_RUNS


def defended(results: Results, experiment: str, **options: Any) -> str:
    both = [group_with(results, experiment, defense__dcor__alpha_d=alpha, **options) for alpha in (0.0, 0.03)]
    if None in both:
        return NO_RUNS
    loss, _ = paired(both[0], both[1], "test_auc")  # type: ignore[arg-type]
    leaks = " and ".join(interval_text(group.interval(SPECTRAL)) for group in both if group)
    return f"leak AUC {leaks} with alpha_d 0.03, loss of test AUC {interval_text(loss)}"


def hours(results: Results) -> str:
    texts = []
    for name in ("criteo", "avazu"):
        runs = distinct(run for run in results.runs if run.dataset == name and run.experiment.startswith("forward_"))
        rates = [
            run.manifest["data"]["train_rows"] * run.summary["epochs"] / run.summary["seconds"]
            for run in runs
            if run.summary.get("seconds") and run.summary.get("epochs")
        ]
        rows = 45_840_617 if name == "criteo" else 40_428_967
        if rates:
            rate = statistics.median(rates)
            texts.append(
                f"{name}: {rate:,.0f} rows a second with attacks and evaluation (median of {len(rates)} runs), which would "
                f"be {rows / rate / 3600:.1f} hours for an epoch of all {rows:,} rows, were it as fast there"
            )
    return "; ".join(texts) + f"; {machine(results)}" if texts else NO_RUNS


# 004: label DP


def by_eps(results: Results) -> dict[float, Group]:
    found = results.parts.get("forward_figure3_label_dp", ())
    return {float(g.runs[0].option("defense.label_dp.eps")): g for g in found[0].groups} if found else {}


def privacy(results: Results, below: bool) -> str:
    groups = {eps: group for eps, group in by_eps(results).items() if (eps <= 1 if below else eps >= 5)}
    chance = ", ".join(
        f"{response(eps, 2)[1]:.1%} of labels change at eps {eps:g}" for eps in ((0.5, 1.0) if below else (5.0, 8.0))
    )
    runs = "; ".join(f"eps {eps:g}: {shown(group, 'test_auc')}" for eps, group in sorted(groups.items()))
    return f"{chance}; {runs or NO_RUNS}"


def log_runs(results: Results) -> list[Run]:
    return [run for run in results.runs if run.experiment == "label_dp_log"]


# settings
def machine(results: Results) -> str:
    cores = {int(run.manifest.get("threads") or 1) for run in results.runs}
    if not cores:
        return NO_RUNS
    return f"{platform.machine()} CPU, {numbers(sorted(cores))} thread a run, no GPU"


def facts_of(results: Results, read: Callable[[Run], Any], dataset: str | None = None) -> list[Any]:
    runs = [
        run
        for run in results.runs
        if run.experiment.startswith(("forward_", "bytedance_")) and dataset in (None, run.dataset)
    ]
    return sorted({value for run in runs if (value := read(run)) is not None}, key=str)


def listed(values: Sequence[Any]) -> str:
    plain = [f"{value:,}" if isinstance(value, int) else str(value) for value in values]
    return ", ".join(plain) if plain else NO_RUNS


def datasets(results: Results, prefix: str) -> str:
    return listed(sorted({run.dataset for run in results.runs if run.experiment.startswith(prefix)}))


def train_rows(run: Run) -> Any:
    return (run.manifest.get("data") or {}).get("train_rows")


def batch_size(run: Run) -> Any:
    return run.manifest.get("batch_size")


def updates(results: Results, dataset: str) -> str:
    counts = [
        math.ceil(train_rows(run) / batch_size(run)) * run.summary["epochs"]
        for run in results.runs
        if run.dataset == dataset and run.experiment.startswith("forward_") and batch_size(run)
    ]
    return f"{numbers(sorted({min(counts), max(counts)}))}" if counts else NO_RUNS


def steps_per_epoch(results: Results) -> str:
    runs = log_runs(results)
    return listed(sorted({math.ceil(train_rows(run) / batch_size(run)) for run in runs})) if runs else NO_RUNS


def optimizer(run: Run) -> Any:
    return str((run.config.get("optimizer") or {}).get("_target_", "")).rpartition(".")[2] or None


computed: Mapping[str, Callable[[Results], str]] = {name: lambda _, call=call: call() for name, call in FORMULAS.items()}
ANSWERS: Mapping[str, Callable[[Results], str]] = {
    **computed,
    "auc_loss": auc_loss,
    "range": sensible_sumkl,
    "range_loss": range_loss,
    "range_leak": range_leak,
    "positive_ratio": positive_ratio,
    "asynchronous_solved": asynchronous_solved,
    "parties": parties,
    "most_rows": most_rows,
    "twins": twins,
    "bias": bias,
    "gradients_undefended": gradients_undefended,
    "leak_below_test": leak_below_test,
    "sensible": sensible,
    "alpha_0002": alpha_0002,
    "layer_four": layer_four,
    "all_layers": all_layers,
    "small_large": small_large,
    "table1_003": lambda results: cells_of_table1(results, (0.03, 1), (0.03, 3)),
    "table1_002": lambda results: cells_of_table1(results, (0.02, 1), (0.03, 3)),
    "avazu": lambda results: defended(results, "forward_table2"),
    "balanced": lambda results: defended(results, "forward_tables3to5", dataset__positive_ratio=0.5),
    "hours": hours,
    "privacy_below": lambda results: privacy(results, below=True),
    "privacy_above": lambda results: privacy(results, below=False),
    **{f"forward:{name}": lambda results, name=name: forward(results, name) for name in ("none", "marvell", "label_dp")},
    **{
        f"sweep:{name}": lambda results, name=name: swept(results, name)
        for name in ("inversion_depth", "inversion_top_k", "inversion_quantize")
    },
}
FACTS: Mapping[str, Callable[[Results], str]] = {
    **computed,
    "data": lambda results: listed(facts_of(results, lambda run: run.dataset)),
    "data:bytedance": lambda results: datasets(results, "bytedance_"),
    "data:label_dp_log": lambda results: datasets(results, "label_dp_log"),
    "rows:criteo": lambda results: listed(facts_of(results, train_rows, "criteo")) + " training rows, by experiment",
    "rows:avazu": lambda results: listed(facts_of(results, train_rows, "avazu")) + " training rows, by experiment",
    "positive": positive_ratio,
    "positive:criteo": positive_ratio,
    "positive:avazu": lambda results: positive_ratio(results, "avazu"),
    "batch": lambda results: listed(facts_of(results, batch_size)),
    "epochs": lambda results: listed(facts_of(results, lambda run: run.summary.get("epochs"), "criteo")),
    "epochs:avazu": lambda results: listed(facts_of(results, lambda run: run.summary.get("epochs"), "avazu")),
    "optimizer": lambda results: listed(facts_of(results, optimizer)),
    "rate": lambda results: listed(facts_of(results, lambda run: run.option("optimizer.lr"))),
    "updates:criteo": lambda results: updates(results, "criteo"),
    "updates:avazu": lambda results: updates(results, "avazu"),
    "machine": machine,
    "steps": steps_per_epoch,
    "option:model.embedding_dim": lambda results: listed(facts_of(results, lambda run: run.option("model.embedding_dim"))),
    "option:model.width": lambda results: listed(facts_of(results, lambda run: run.option("model.width"))),
    "layers:bottom": lambda results: (
        listed(facts_of(results, lambda run: run.option("model.bottom_layers"))) + " ReLU layers"
    ),
    "layers:top": lambda results: (
        listed(facts_of(results, lambda run: run.option("model.top_layers"))) + " layers, by experiment"
    ),
    "cells:0": lambda results: listed(sorted({cell[0] for cell in exact_cells(results)})),
    "cells:1": lambda results: listed(sorted({cell[1] for cell in exact_cells(results)})),
    **{
        f"sweep:{name}": lambda results, name=name: swept(results, name)
        for name in (
            *("bytedance_sumkl", "inversion_depth", "inversion_top_k", "inversion_quantize", "forward_table1"),
            *("forward_figure3_marvell", "forward_figure3_label_dp"),
        )
    },
}
VIEWS: Mapping[str, Callable[[Part, Results], str]] = {
    "settings": settings_view,
    "layers": layers_view,
    "cells": cells_view,
    "timing": timing_view,
    "error_bounds": error_bounds_view,
    "loss_order": loss_order_view,
    "leak_order": leak_order_view,
    "leak_range": leak_range_view,
    "inversion": inversion_view,
}
