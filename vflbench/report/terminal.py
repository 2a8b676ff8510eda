"""What a command prints of a result: a sentence, and at most six lines of 80 columns. table.txt has the rest."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vflbench.plain_files import written_whole
from vflbench.report import words
from vflbench.report.words import NO_MESSAGE, between, figure_text, knowledge, number
from vflbench.results.folder import SUMMARY, TABLE, read_config, read_manifest, read_summary
from vflbench.results.gate import WORTH_FINDING
from vflbench.results.runs import AS_RECORDED, Run
from vflbench.results.schema import PROBE, Interval, Manifest, Reading, Rebuilt, Record, Summary, level_of
from vflbench.results.terminal import WIDTH, path_text, wrapped

MOST = 6
"""Lines after the sentence."""
BOLD, RED, GREEN, PLAIN = "\033[1m", "\033[1;31m", "\033[1;32m", "\033[0m"
_USUAL = {"norm", "spectral"}
"""The attacks of train.yaml."""
_NAME = 9
"""Columns of a line's name."""
_LEGEND = (
    "The worst of all attacks, layers and directions of the last epoch. AUC: the larger of max(a, 1 - a) of the mean over "
    "batches, and of what an attacker reads who knows in each batch which end is positive, less what a coin reaches in this "
    "way. Of more than two classes, the stronger of adjusted mutual information and macro AUC. Its interval: 95 % for the "
    "worst of all readings, whichever it is (Bonferroni). No leak is said to be absent where this interval reaches "
    f"AUC {WORTH_FINDING:.2f}."
)
_LEAKS_NOTE = (
    "AUC: the mean over audited batches with the 95 % interval of this reading alone; 0.5 is a coin. two-sided: "
    "max(a, 1 - a) of the mean. oriented: the mean over batches of max(a, 1 - a). coin: what a coin reaches there. net: "
    "oriented without the part of a coin. A leak counts as the larger of two-sided and net. AMI: adjusted mutual "
    "information of answer and classes, 0 is a coin, 1 the classes under any names. macro AUC: mean of one class "
    "against the rest. hidden: a layer of the label party, which no attacker sees."
)
_TITLES = {"ami": "AMI", "macro_auc": "macro AUC"}
_FIGURES_NOTE = "docs/reference/results.md says what each figure is."
_MOST_NOTES = 3


def finished(folder: Path) -> Run:
    """The finished run in a folder. Raises UserError for results of another version, or that can't be read."""
    return Run(folder, {}, read_summary(folder), read_manifest(folder))


def result_text(folder: Path, *, colour: bool = False, gates: Sequence[str] = (), page: Path | None = None) -> str:
    """`first_lines` of the finished run in a folder."""
    return "\n".join(first_lines(finished(folder), colour=colour, gates=gates, page=page))


def first_lines(run: Run, *, colour: bool = False, gates: Sequence[str] = (), page: Path | None = None) -> list[str]:
    """The sentence, what thresholds came to, and at most six lines, the last of which says what to open next.

    Alarms come first; what finds no room is in table.txt. gates: outcomes of thresholds, a line each, all of them shown.
    page: the run's page, where one was written.
    """
    lines = [_coloured(line, BOLD, colour) for line in wrapped(words.verdict([run], named=True))]
    for gate in gates:
        lines += [_coloured(line, GREEN if gate.startswith("PASS") else RED, colour) for line in wrapped(gate)]
    last = [f"{'details':<{_NAME}}{path_text(run.folder / TABLE)}"]  # paths and commands stay in one line, however long
    folder = path_text(run.folder)
    last += [f"{'open':<{_NAME}}{path_text(page)}" if page else f"{'next':<{_NAME}}vflbench report {folder} --open"]
    rows: list[str] = []
    for name, text, is_alarm in _rows(run):
        room = max(0, min(2, MOST - len(last) - len(rows)))
        made = wrapped(f"{name:<{_NAME}}{text}", " " * _NAME, most=room) if room else []
        rows += [_coloured(line, RED, colour and is_alarm) for line in made]
    return [*lines, "", *rows, *last]


def _rows(run: Run) -> list[tuple[str, str, bool]]:
    """(name, text, whether it is an alarm) of what may be said, the most important first."""
    verdict, worst = run.summary.verdict, run.summary.verdict.worst
    defended = bool(run.summary.guarantees)
    rows: list[tuple[str, str, bool]] = [("FAILED", run.failed, True)] if run.failed else []
    if falls := verdict.falls:
        who = "+".join(run.summary.guarantees) or AS_RECORDED
        rows.append(("defense", f"{who} falls to {falls.attack} ({figure_text(falls)}): {falls.because}", True))
    rows += words.promises(run)
    if worst:
        rows.append(("attack", words.attack(run, worst), False))
        rows += [("ceiling", text, False) for text in words.above_label_privacy(run, worst)]
        rows += [("rebuilt", text, False) for text in words.rebuilt([run])]
        rows += [("own", text, False) for text in _of_plugins(run, worst)]
    else:
        rows += [("attack", text, False) for text in _rebuilding(run)]
    model = [("audited" if run.is_audit else "model", _model(run), False)]
    usual = {*run.threats} - {PROBE} == _USUAL and not run.is_audit and not run.adversaries
    stronger = "the strongest known attacks" if defended else "stronger attacks; defense=label_gdp: noise on labels"
    more = [("try", f"attack=strongest: {stronger}", False)] if usual else []
    rows += more + model if defended else model + more
    if observed := run.summary.observed_privacy:
        rows.append(("privacy", observed.verdict, observed.outcome == "against"))
    rows += [("note", note, False) for note in run.manifest.notes if run.is_audit]
    if missing := {**run.skipped, **run.unscored}:
        noun = "attack" if len(missing) == 1 else "attacks"
        rows.append(("not run", f"{len(missing)} {noun} ({TABLE} says why): {', '.join(missing)}", False))
    return rows


def _rebuilding(run: Run) -> Iterator[str]:
    """Who rebuilt data, and from what."""
    for name in dict.fromkeys(one.attack for one in run.summary.reconstructions):
        threat = run.threats.get(name)
        if threat is not None:
            who = {"participant": "a participant", "label party": "the label party"}.get(threat.seat, "a non-label party")
            yield f"{name} by {who}, who knows {', '.join(threat.knows or ['nothing but messages'])}"


def _of_plugins(run: Run, worst: Reading) -> list[str]:
    """`loudest on gradients at the cut, AUC 0.874`: where each attack of a plug-in reads most, but for the worst of all."""
    attacks = (run.config or read_config(run.folder)).get("attack") or {} if run.manifest.plugins else {}
    best: dict[str, tuple[float, str]] = {}
    for leak in run.summary.leaks:
        value, target = (
            words.leak_value(leak, worst.figure),
            str((attacks.get(leak.attack) or {}).get("_target_", "vflbench.")),
        )
        if not target.startswith("vflbench.") and leak.attack != worst.attack and leak.visible and not math.isnan(value):
            where = f"{leak.attack} on {leak.message}s {words.place(leak, run)}, {worst.figure} {number(value, 3)}"
            best[leak.attack] = max(best.get(leak.attack, (0.0, "")), (value, where))
    return [where for _, where in best.values()]


def _model(run: Run) -> str:
    """What the model is worth, after how many epochs; of an audit, what was audited."""
    summary, epochs = run.summary, f"{run.summary.epochs} epoch{'s' * (run.summary.epochs != 1)}"
    test = [words.utility(summary)] if summary.test_auc is not None or not run.is_audit else []
    if run.is_audit:
        return ", ".join([run.dataset, f"{run.manifest.data.train_rows or 0:,} rows", epochs, *test])
    if summary.honest is not None:
        test[0] += f", without the adversary {number(summary.honest.test_auc, 3)}"
    names = {"train": summary.train_auc, "accuracy": summary.test_accuracy}
    known = test + [f"{name} {number(value, 3)}" for name, value in names.items() if value is not None]
    return f"{', '.join(known)}; {epochs}"


def _coloured(line: str, colour: str, wanted: bool) -> str:
    return f"{colour}{line}{PLAIN}" if wanted else line


# table.txt


def table_of(folder: Path, summary: Summary, manifest: Manifest) -> str:
    """The text of table.txt of a run that is about to be finished in that folder."""
    return table_text(Run(folder, {}, summary, manifest))


def final_table(folder: Path, *, gates: Sequence[str] = ()) -> str:
    """`table_text` of the finished run in a folder."""
    return table_text(finished(folder), gates)


def write_table(folder: Path, *, gates: Sequence[str] = ()) -> None:
    """Write table.txt of a finished run, in one piece."""
    with written_whole(folder / TABLE, "w", encoding="utf-8") as file:
        file.write(final_table(folder, gates=gates))


def table_text(run: Run, gates: Sequence[str] = ()) -> str:
    """The sentence, test and train AUC, the leaks of the last epoch, what was rebuilt, promises, and the worst attacks.

    `hidden` marks layers that no attacker sees. Attacks without a result are named with the reason. gates: outcomes of
    thresholds, a line each.
    """
    summary = run.summary
    lines = [*wrapped(words.verdict([run], named=True)), *gates]
    lines += [f"FAILED: {run.failed}"] if run.failed else []
    lines += [observed.verdict] if (observed := summary.observed_privacy) else []
    if summary.verdict.worst:
        lines += words.rebuilt([run])
    lines += [*_levels(run), "", f"model: {_model(run)}"]
    for name, adversary in run.adversaries.items():
        lines.append(f"adversary {name} at party {adversary.party}: {adversary.text}".strip(": "))
    if summary.honest is not None:
        lines.append(f"honest run, without the adversary: test AUC {number(summary.honest.test_auc, 4)}")
    lines += _leaks(run)
    for name in dict.fromkeys(one.attack for one in summary.reconstructions):
        lines += _rebuilt([one for one in summary.reconstructions if one.attack == name])
    if summary.distance_correlation:
        values = ", ".join(f"{one.party} {one.layer} {number(one.dcor.mean, 4)}" for one in summary.distance_correlation)
        lines.append(f"squared distance correlation of embeddings and labels: {values}")
    lines += words.not_run(run)
    lines += [f"note: {note}" for note in run.manifest.notes if run.is_audit]
    for name, promise in summary.guarantees.items():
        if promise is not None:
            lines += _record(f"what {name} promises", promise)
        elif name not in {noise.defense for noise in summary.embedding_privacy}:
            refused = summary.claims_refused.get(name)
            lines.append(f"{name} promises nothing{f' here: {refused}' if refused else ''}")
    for noise in summary.embedding_privacy:
        lines += _record(f"differential privacy of embeddings, given the network, by {noise.defense}", noise)
    if summary.privacy:
        lines += [*_record("label privacy of the whole run", summary.privacy), "", *wrapped(words.check(summary.privacy))]
    for one in summary.figures:
        if one.value and isinstance(one.value, int):
            where = " ".join(part for part in (one.party, one.layer) if part)
            lines.append(f"{one.figure.replace('_', ' ')} ({where}): {one.value}")
    widest = max(map(len, lines))
    scroll = ["", f"Lines have up to {widest} characters: less -S {TABLE} scrolls sideways."] if widest > WIDTH else []
    return "\n".join([*lines, *scroll, ""])


def _leaks(run: Run) -> list[str]:
    """A line a leak; beside a run with an adversary, the two-sided leak AUC of its honest run."""
    made = []
    for leak in run.summary.leaks:
        figures = {"AUC": leak.raw, "two-sided": leak.two_sided, "oriented": leak.oriented, "net": leak.net}
        figures |= {
            name.replace("_", " ").replace("auc", "AUC").replace("ami", "AMI"): one for name, one in leak.classes.items()
        }
        cells = {"attack": leak.attack, "message": leak.message, "party": leak.party, "layer": leak.layer}
        cells |= {"batches": str(leak.batches)} | {name: _figure(one) for name, one in figures.items()}
        cells["coin"] = number(leak.coin, 4)
        if run.summary.honest is not None:
            tree = run.summary.honest.leak_auc_two_sided
            cells["honest two-sided"] = number(tree.get(leak.attack, {}).get(leak.message, {}).get(leak.layer), 4)
        cells["level"] = level_of(leak.attack, run.threats) + ("" if leak.visible else ", hidden")
        made.append({name: cell for name, cell in cells.items() if cell not in ("-", "undefined")})
    if not made:
        return []
    names = [*dict.fromkeys(name for cells in made for name in cells if name != "level"), "level"]
    rows = [tuple(names), *(tuple(cells.get(name, "-") for name in names) for cells in made)]
    return ["", *lined_up(rows), "", *wrapped(_LEAKS_NOTE)]


def _rebuilt(answers: Sequence[Rebuilt]) -> list[str]:
    """A table of what an attack rebuilt: a line a figure, with its interval where it has one; then what the attack noted."""
    header = (answers[0].attack, *(f"{one.message} {one.party} {one.layer}" for one in answers))
    names = dict.fromkeys(name for one in answers for name in one.figures if ":" not in name)
    rows = [header, *((name.replace("_", " "), *(_figure(one.figures.get(name)) for one in answers)) for name in names)]
    if any(one.rows for one in answers):
        yes = {True: "yes", False: "no", None: "-"}
        rows.append(("beats every guess", *(yes[one.beats_every_guess] for one in answers)))
    rows.append(("batches", *(str(one.batches) for one in answers)))
    lines = ["", *lined_up(rows), "", _FIGURES_NOTE, ""]
    for one in answers:
        notes = list(one.notes.items())
        lines += [f"{one.attack}, {count} of {one.batches} batches: {note}" for note, count in notes[:_MOST_NOTES]]
        lines += [f"... and {len(notes) - _MOST_NOTES} more notes in {SUMMARY}"] * (len(notes) > _MOST_NOTES)
    return lines


def _record(title: str, record: Record) -> list[str]:
    """All that a record holds, a line each: `leak auc all messages  0.68`."""
    rows = [(key.replace("_", " "), _plain(value)) for key, value in record.items() if value not in (None, "", [], {})]
    return ["", f"{title}:", *lined_up(rows)]


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return "; ".join(map(_plain, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{key.replace('_', ' ')} {_plain(one)}" for key, one in value.items() if one is not None)
    return str(value)


def _figure(value: Interval | None) -> str:
    """`0.9123 (0.900 to 0.930)`."""
    if value is None or value.mean is None:
        return "-"
    ends = "" if value.low == value.high else between(value.low, value.high, 3)
    return f"{value.mean:.4g} ({ends})" if ends else f"{value.mean:.4g}"


def _levels(run: Run) -> list[str]:
    """Leaks above a ceiling, whether the defenses fall, and the worst attack at each level beside the references."""
    verdict, given = run.summary.verdict, run.summary.guarantees.items()
    lines = [f"ABOVE THE CEILING: {words.exceeded(name, one, run)}" for name, one in given if one and one.exceeded]
    if falls := verdict.falls:
        who = "+".join(run.summary.guarantees) or AS_RECORDED
        lines.append(f"{who} FALLS to {falls.attack}, which reads {figure_text(falls)}, {falls.because}")
    rows = [("knows", "worst attack", "reads", "the worst of all", "of", "own columns alone")]
    changed = ", of what the defense changes"
    named = [(knowledge(one.attack, run.threats), one) for one in verdict.levels.values()]
    named += [(knowledge(one.attack, run.threats) + changed, one) for one in verdict.on_changed.values()]
    named += [(f"reference: {name}", one) for name, one in verdict.references.items()]
    for knows, one in named:
        where = f"{one.message}s at {one.party} {one.layer}" if one.message != NO_MESSAGE else f"{one.party} {one.layer}"
        alone = "-" if one.own_columns is None else number(one.own_columns, 3)
        rows.append((knows, one.attack, figure_text(one), between(one.low, one.high, 3) or "no interval", where, alone))
    return lines + (["", *lined_up(rows), "", *wrapped(_LEGEND)] if len(rows) > 1 else [])


def lined_up(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows of cells as lines in which columns begin at one place."""
    widths = [max(len(row[j]) for row in rows) for j in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
