"""What a command prints of a result: a sentence, and at most six lines of 80 columns. table.txt has the rest."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

from vflbench.plain_files import written_whole
from vflbench.report import words
from vflbench.report.words import NO_MESSAGE, between, figure_text, knowledge, number
from vflbench.results.folder import SUMMARY, TABLE, read_config, read_manifest, read_summary
from vflbench.results.gate import WORTH_FINDING
from vflbench.results.runs import AS_RECORDED, Run
from vflbench.results.schema import PROBE, Interval, Reading, Rebuilt, Record, level_of
from vflbench.results.terminal import WIDTH, path_text, wrapped

MOST = 6
"""Lines after the sentence."""
BOLD, RED, GREEN, PLAIN = "\033[1m", "\033[1;31m", "\033[1;32m", "\033[0m"
_OURS = "vflbench."
_USUAL = {"norm", "spectral"}
"""The attacks of train.yaml."""
_NAME = 9
"""Columns of a line's name."""
_LEGEND = f"{words.WORST}. No leak is said to be absent where this interval reaches AUC {WORTH_FINDING:.2f}."
_LEAKS_NOTE = (
    "AUC: the mean over audited batches with the 95 % interval of this reading alone; 0.5 is a coin. "
    f"{words.LEAKS} AMI: adjusted mutual information of answer and classes, 0 is a coin, 1 the classes under any names. "
    "Macro AUC: mean of one class against the rest. Hidden: a layer of the label party, which no attacker sees."
)
_CLASSES = {"ami": "AMI", "macro_auc": "macro AUC"}
_FIGURES_NOTE = "docs/reference/results.md says what each figure is."
_MOST_NOTES = 3


def finished(folder: Path) -> Run:
    """The finished run in a folder. Raises UserError for results of another version, or that can't be read."""
    return Run(folder, {}, read_summary(folder), read_manifest(folder))


def result_text(folder: Path, *, colour: bool = False, gates: Sequence[str] = (), page: Path | None = None) -> str:
    """The sentence, what thresholds came to, and at most six lines, the last of which says what to open next.

    Alarms come first; what finds no room is in table.txt. gates: outcomes of thresholds, a line each, all of them shown.
    page: the run's page, where one was written.
    """
    run, then = finished(folder), f"vflbench report {path_text(folder)} --open"
    lines = [(BOLD, line) for line in wrapped(words.verdict([run], named=True))]
    lines += [(GREEN if gate.startswith("PASS") else RED, line) for gate in gates for line in wrapped(gate)]
    rows: list[tuple[str, str]] = []
    for name, text, is_alarm in _rows(run):
        if room := min(2, MOST - 2 - len(rows)):
            made = wrapped(f"{name:<{_NAME}}{text}", " " * _NAME, most=room)
            rows += [(RED if is_alarm else "", line) for line in made]
    last = {"details": path_text(folder / TABLE)} | ({"open": path_text(page)} if page else {"next": then})
    rows += [("", f"{name:<{_NAME}}{text}") for name, text in last.items()]  # in one line, however long
    return "\n".join(f"{code}{line}{PLAIN}" if colour and code else line for code, line in [*lines, ("", ""), *rows])


def _rows(run: Run) -> Iterator[tuple[str, str, bool]]:
    """(name, text, whether it is an alarm) of what may be said, the most important first."""
    summary, worst, defenses = run.summary, run.summary.verdict.worst, "+".join(run.summary.guarantees)
    if run.failed:
        yield "FAILED", run.failed, True
    if falls := summary.verdict.falls:
        yield "defense", f"{defenses or AS_RECORDED} falls to {falls.attack} ({figure_text(falls)}): {falls.because}", True
    yield from words.promises(run)
    given = {"attack": _rebuilding(run)}
    if worst:
        given = {"attack": [words.attack(run, worst)], "ceiling": words.above_label_privacy(run, worst)}
        given |= {"rebuilt": words.rebuilt([run]), "own": _of_plugins(run, worst)}
    stronger = "the strongest known attacks" if defenses else "stronger attacks; defense=label_gdp: noise on labels"
    usual = {*run.threats} - {PROBE} == _USUAL and not run.is_audit and not run.adversaries
    last = {"audited" if run.is_audit else "model": [_model(run)]}
    more = {"try": [f"attack=strongest: {stronger}"] * usual}
    for name, texts in (given | (more | last if defenses else last | more)).items():
        for text in texts:
            yield name, text, False
    if observed := summary.observed_privacy:
        yield "privacy", observed.verdict, observed.outcome == "against"
    for note in run.manifest.notes if run.is_audit else ():
        yield "note", note, False
    if missing := {**run.skipped, **run.unscored}:
        yield "not run", f"{len(missing)} attack{'s' * (len(missing) > 1)} ({TABLE} says why): {', '.join(missing)}", False


def _rebuilding(run: Run) -> list[str]:
    """Who rebuilt data, and from what."""
    made, seats = [], {"participant": "a participant", "label party": "the label party"}
    for name in dict.fromkeys(one.attack for one in run.summary.reconstructions):
        if (threat := run.threats.get(name)) is not None:
            knows = ", ".join(threat.knows or ["nothing but messages"])
            made.append(f"{name} by {seats.get(threat.seat, 'a non-label party')}, who knows {knows}")
    return made


def _of_plugins(run: Run, worst: Reading) -> list[str]:
    """`loudest on gradients at the cut, AUC 0.874`: where each attack of a plug-in reads most, but for the worst of all."""
    attacks = (run.config or read_config(run.folder)).get("attack") or {} if run.manifest.plugins else {}
    targets = {name: str((options or {}).get("_target_", _OURS)) for name, options in attacks.items()}
    own = [name for name, target in targets.items() if not target.startswith(_OURS) and name != worst.attack]
    best: dict[str, tuple[float, str]] = {}
    for leak in run.summary.leaks:
        value = words.leak_value(leak, worst.figure)
        if leak.attack in own and leak.visible and value > best.get(leak.attack, (0.0, ""))[0]:
            where = f"{leak.attack} on {leak.message}s {words.place(leak, run)}, {worst.figure} {number(value, 3)}"
            best[leak.attack] = value, where
    return [where for _, where in best.values()]


def _model(run: Run) -> str:
    """What the model is worth, after how many epochs; of an audit, what was audited: its model is in the sentence."""
    summary, epochs = run.summary, f"{run.summary.epochs} epoch{'s' * (run.summary.epochs != 1)}"
    if run.is_audit:
        return f"{run.dataset.removeprefix('recording ')}, {run.manifest.data.train_rows or 0:,} rows, {epochs}"
    test = [words.utility(summary)]
    if summary.honest is not None:
        test[0] += f", without the adversary {number(summary.honest.test_auc, 3)}"
    names = {"train": summary.train_auc, "accuracy": summary.test_accuracy}
    known = test + [f"{name} {number(value, 3)}" for name, value in names.items() if value is not None]
    return f"{', '.join(known)}; {epochs}"


# table.txt


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
    summary, refused = run.summary, run.summary.claims_refused
    above = [(name, one) for name, one in summary.guarantees.items() if one and one.exceeded]
    lines = [*wrapped(words.verdict([run], named=True)), *gates, ""]
    lines += [f"{name:<{_NAME}}{text}" for name, text, _ in _rows(run) if name not in ("try", "not run")]
    lines += [words.exceeded(name, one, run) for name, one in above if one.bounds == words.LABEL_PRIVACY]
    lines += [f"adversary {name} at party {one.party}: {one.text}".strip(": ") for name, one in run.adversaries.items()]
    lines += _levels(run)
    lines += _leaks(run)
    for name in dict.fromkeys(one.attack for one in summary.reconstructions):
        lines += _rebuilt([one for one in summary.reconstructions if one.attack == name])
    if summary.distance_correlation:
        values = ", ".join(f"{one.party} {one.layer} {number(one.dcor.mean, 4)}" for one in summary.distance_correlation)
        lines.append(f"squared distance correlation of embeddings and labels: {values}")
    lines += words.not_run(run)
    noisy = {noise.defense: noise for noise in summary.embedding_privacy}
    for name, promise in summary.guarantees.items():
        if promise is not None:
            lines += _record(f"what {name} promises", promise)
        elif name not in noisy:
            lines.append(f"{name} promises nothing{f' here: {refused[name]}' if name in refused else ''}")
    for noise in summary.embedding_privacy:
        lines += _record(f"differential privacy of embeddings, given the network, by {noise.defense}", noise)
    if summary.privacy:
        lines += [*_record("label privacy of the whole run", summary.privacy), "", words.checked([summary.privacy])]
    for one in summary.figures:
        if one.value and isinstance(one.value, int):
            where = " ".join(part for part in (one.party, one.layer) if part)
            lines.append(f"{one.figure.replace('_', ' ')} ({where}): {one.value}")
    widest = max(map(len, lines))
    scroll = ["", f"Lines have up to {widest} characters: less -S {TABLE} scrolls sideways."] if widest > WIDTH else []
    return "\n".join([*lines, *scroll, ""])


def _leaks(run: Run) -> list[str]:
    """A line a leak; beside a run with an adversary, the two-sided leak AUC of its honest run."""
    rows = []
    for leak in run.summary.leaks:
        row = {"attack": leak.attack, "message": leak.message, "party": leak.party, "layer": leak.layer}
        figures = {"AUC": leak.raw, "two-sided": leak.two_sided, "oriented": leak.oriented, "net": leak.net}
        figures |= {_CLASSES.get(name, name): one for name, one in leak.classes.items()}
        row |= {"batches": str(leak.batches)} | {name: _figure(one) for name, one in figures.items()}
        row["coin"] = number(leak.coin, 4)
        if run.summary.honest is not None:
            tree = run.summary.honest.leak_auc_two_sided
            row["honest two-sided"] = number(tree.get(leak.attack, {}).get(leak.message, {}).get(leak.layer), 4)
        level = level_of(leak.attack, run.threats) + ("" if leak.visible else ", hidden")
        rows.append({name: text for name, text in row.items() if text not in ("-", "undefined")} | {"level": level})
    names = [*dict.fromkeys(name for row in rows for name in row if name != "level"), "level"]
    table = _lined_up([names, *([row.get(name) for name in names] for row in rows)])
    return ["", *table, "", *wrapped(_LEAKS_NOTE)] if rows else []


def _rebuilt(answers: Sequence[Rebuilt]) -> list[str]:
    """A table of what an attack rebuilt: a line a figure, with its interval where it has one; then what the attack noted."""
    names = [name for name in dict.fromkeys(name for one in answers for name in one.figures) if ":" not in name]
    beats = ["beats every guess"] if any(one.rows for one in answers) else []
    columns = [[answers[0].attack, *(name.replace("_", " ") for name in names), *beats, "batches"]]
    for one in answers:
        cells = [_figure(one.figures.get(name)) for name in names]
        cells += [{True: "yes", False: "no", None: "-"}[one.beats_every_guess] for _ in beats]
        columns.append([f"{one.message} {one.party} {one.layer}", *cells, str(one.batches)])
    lines = ["", *_lined_up(zip(*columns, strict=True)), "", _FIGURES_NOTE, ""]
    for one in answers:
        notes = list(one.notes.items())
        lines += [f"{one.attack}, {count} of {one.batches} batches: {note}" for note, count in notes[:_MOST_NOTES]]
        lines += [f"... and {len(notes) - _MOST_NOTES} more notes in {SUMMARY}"] * (len(notes) > _MOST_NOTES)
    return lines


def _record(title: str, record: Record) -> list[str]:
    """All that a record holds, a line each: `leak auc all messages  0.68`."""
    rows = [(key.replace("_", " "), _plain(value)) for key, value in record.written().items() if value or value == 0]
    return ["", f"{title}:", *_lined_up(rows)]


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
    """The worst attack at each level of knowledge, beside the references."""
    verdict, changed = run.summary.verdict, ", of what the defense changes"
    named = [(knowledge(one.attack, run.threats), one) for one in verdict.levels.values()]
    named += [(knowledge(one.attack, run.threats) + changed, one) for one in verdict.on_changed.values()]
    named += [(f"reference: {name}", one) for name, one in verdict.references.items()]
    rows = [["knows", "worst attack", "reads", "the worst of all", "of", "own columns alone"]]
    for knows, one in named:
        ends, alone = between(one.low, one.high, 3) or "no interval", number(one.own_columns, 3)
        where = (f"{one.message}s at " if one.message != NO_MESSAGE else "") + f"{one.party} {one.layer}"
        rows.append([knows, one.attack, figure_text(one), ends, where, "-" if one.own_columns is None else alone])
    return ["", *_lined_up(rows), "", *wrapped(_LEGEND)] if named else []


def _lined_up(rows: Iterable[Sequence[str | None]]) -> list[str]:
    return tabulate(rows, tablefmt="plain", disable_numparse=True, missingval="-").splitlines()
