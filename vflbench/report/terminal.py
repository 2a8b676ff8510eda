"""What a command prints of a result: a sentence, and at most six lines of 80 columns. table.txt has the rest."""

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from tabulate import tabulate

from vflbench.files import written_whole
from vflbench.report import words
from vflbench.report.words import figure_text, number
from vflbench.results.folder import TABLE, read_manifest, read_run_config, read_summary
from vflbench.results.gate import WORTH_FINDING
from vflbench.results.runs import AS_RECORDED, Run
from vflbench.results.schema import PROBE, LeakRecord, Reading, level_of
from vflbench.results.terminal import path_text, wrapped

MOST = 6
"""Lines after the sentence."""
BOLD, RED, GREEN, PLAIN = "\033[1m", "\033[1;31m", "\033[1;32m", "\033[0m"
_OURS = "vflbench."
_USUAL = {"norm", "spectral"}
"""The attacks of train.yaml."""
_WIDEST = 120
"""Characters of a line of table.txt."""
_NARROWEST = 20
"""Of a column of answers."""
_NAME = 9
"""Columns of a line's name."""
_LEGEND = f"{words.WORST}. No leak is said to be absent where this interval reaches AUC {WORTH_FINDING:.2f}."
_LEAKS_NOTE = (
    "Leak: the larger of max(a, 1 - a), where a is the mean AUC over batches (raw), and what an attack reaches if it knows "
    "in each batch which end is positive, less what a coin reaches; with the 95 % interval of this reading alone. "
    "Ami: adjusted mutual information of answer and classes, 0 is a coin, 1 the classes under any names. "
    "Macro AUC: mean of one class against the rest. Surest tenth: max(a, 1 - a) among the rows of a batch with the highest "
    "and the lowest scores, a twentieth each. Hidden: a layer of the label party, which no attacker sees. "
    "metrics.csv has the parts."
)
_OF_ANSWERS = ("beats_every_guess", "batches")
_FIGURES_NOTE = "docs/reference/results.md says what each figure is."


def finished_text(folder: Path) -> Run:
    """The finished run in a folder. Raises UserError for results of another version, or that can't be read."""
    return Run(folder, {}, read_summary(folder), read_manifest(folder))


def result_text(folder: Path, *, colour: bool = False, gates: Sequence[str] = (), page: Path | None = None) -> str:
    """The sentence, what thresholds came to, and at most six lines, the last of which says what to open next.

    Alarms come first; what finds no room is in table.txt. gates: outcomes of thresholds, a line each, all of them shown.
    page: the run's page, where one was written.
    """
    run, then = finished_text(folder), f"vflbench report {path_text(folder)} --open"
    lines = [(BOLD, line) for line in wrapped(words.verdict_text([run], named=True))]
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
    if run.summary.failed:
        yield "FAILED", run.summary.failed, True
    if falls := summary.verdict.falls:
        yield "defense", f"{defenses or AS_RECORDED} falls to {falls.attack} ({figure_text(falls)}): {falls.because}", True
    yield from words.promises(run)
    given = {"attack": _rebuilding(run)}
    if worst:
        given = {"attack": [words.attack_text(run, worst)], "rebuilt": words.rebuilt([run]), "own": _of_plugins(run, worst)}
    stronger = "the strongest known attacks" if defenses else "stronger attacks; defense=label_gdp: noise on labels"
    usual = {*run.manifest.threats} - {PROBE} == _USUAL and not run.is_audit and not run.manifest.adversary
    last = {"audited" if run.is_audit else "model": [_model(run)]}
    more = {"try": [f"attack=strongest: {stronger}"] * usual}
    for name, texts in (given | (more | last if defenses else last | more)).items():
        for text in texts:
            yield name, text, False
    if observed := summary.observed_privacy:
        yield "privacy", observed.verdict, observed.outcome == "against"
    for note in run.manifest.notes if run.is_audit else ():
        yield "note", note, False
    if missing := {**run.summary.skipped, **run.summary.unscored}:
        yield "not run", f"{len(missing)} attack{'s' * (len(missing) > 1)} ({TABLE} says why): {', '.join(missing)}", False


def _rebuilding(run: Run) -> list[str]:
    """Who rebuilt data, and from what."""
    made, roles = [], {"participant": "a participant", "label party": "the label party"}
    for name in dict.fromkeys(one.attack for one in run.summary.reconstructions):
        if (threat := run.manifest.threats.get(name)) is not None:
            knows = ", ".join(threat.knows or ["nothing but messages"])
            made.append(f"{name} by {roles.get(threat.role, 'a non-label party')}, who knows {knows}")
    return made


def _of_plugins(run: Run, worst: Reading) -> list[str]:
    """`loudest on gradients at the cut, AUC 0.874`: where each attack of a plug-in reads most, but for the worst of all."""
    made, config = [], run.config or (read_run_config(run.folder) if run.manifest.plugins else {})
    for name, options in (config.get("attack") or {}).items():
        of = {words.leak_value(one, worst.figure): one for one in run.summary.leaks if one.attack == name and one.visible}
        value = max((value for value in of if value > 0), default=0.0)
        if value and name != worst.attack and not str((options or {}).get("_target_", _OURS)).startswith(_OURS):
            place = f"{name} on {of[value].message}s {words.place(of[value], run)}"
            made.append(f"{place}, {worst.figure} {number(value, 3)}")
    return made


def _model(run: Run) -> str:
    """What the model is worth, after how many epochs; of an audit, what was audited: its model is in the sentence."""
    summary, epochs = run.summary, f"{run.summary.epochs} epoch{'s' * (run.summary.epochs != 1)}"
    if run.is_audit:
        return f"{run.dataset.removeprefix('recording ')}, {run.manifest.data.train_rows or 0:,} rows, {epochs}"
    honest = summary.honest.test_auc if summary.honest else None
    numbers = {"without the adversary": honest, "train": summary.train_auc}
    numbers |= {"accuracy": summary.test_accuracy, "calibration": summary.test_calibration}
    known = [f"{name} {number(value, 3)}" for name, value in numbers.items() if value is not None]
    return f"{', '.join([words.utility_text(summary), *known])}; {epochs}"


# table.txt


def final_table(folder: Path, *, gates: Sequence[str] = ()) -> str:
    """`table_text` of the finished run in a folder."""
    return table_text(finished_text(folder), gates)


def write_table(folder: Path, *, gates: Sequence[str] = ()) -> None:
    """Write table.txt of a finished run, in one piece."""
    with written_whole(folder / TABLE, "w", encoding="utf-8") as file:
        file.write(final_table(folder, gates=gates))


def table_text(run: Run, gates: Sequence[str] = ()) -> str:
    """The sentence, test and train AUC, the worst attack of each level, the last epoch's leaks, what was rebuilt, promises.

    `hidden` marks layers that no attacker sees. Attacks without a result are named with the reason. gates: outcomes of
    thresholds, a line each.
    """
    summary = run.summary
    lines = [*wrapped(words.verdict_text([run], named=True)), *gates, ""]
    lines += [f"{name:<{_NAME}}{text}" for name, text, _ in _rows(run) if name not in ("try", "not run")]
    lines += [f"adversary {name} at party {c.party}: {c.text}".strip(": ") for name, c in run.manifest.adversary.items()]
    named = words.verdict_lines(summary.verdict)
    lines += _table([{"level": level} | one.model_dump(exclude={"level", "readings"}) for level, one in named], _LEGEND)
    leaks = sorted(summary.leaks, key=partial(_place, run=run))
    lines += _table([_leak(one, run) for one in leaks], _LEAKS_NOTE)
    for name in dict.fromkeys(one.attack for one in summary.reconstructions):
        answers = [one for one in summary.reconstructions if one.attack == name]
        kept = {"attack", "message", "party", "layer", *_OF_ANSWERS}
        rows = [one.model_dump(include=kept) | one.figures for one in answers]
        lines += _table(rows, _FIGURES_NOTE, down=True)
        lines += [f"{count} of {one.batches} batches: {note}" for one in answers for note, count in one.notes.items()]
    lines += _table(summary.distance_correlation, "Squared distance correlation with the labels.")
    lines += words.not_run(run)
    noisy = {one.get("defense") for one in summary.embedding_privacy}
    for name, promise in summary.guarantees.items():
        if promise:
            lines += _table([{"promise of": name} | promise.written()], down=True)
        elif name not in noisy:
            lines.append(f"{name} promises nothing{f': {why}' if (why := summary.claims_refused.get(name)) else ''}")
    for noise in summary.embedding_privacy:
        lines += _table([noise], "Differential privacy of embeddings, given the network.", down=True)
    if summary.privacy:
        lines += _table([summary.privacy.written()], "Label privacy of the whole run.", down=True)
        lines += ["", words.checked_text([summary.privacy])]
    lines += _table([one for one in summary.figures if one.get("value")], "What the defenses counted and measured.")
    spent, train = summary.cpu_seconds, summary.cpu_seconds.get("train")
    rows = [{"CPU seconds of": name, "seconds": cpu, "of training": train and cpu / train} for name, cpu in spent.items()]
    lines += _table(rows, "Of this process, over all epochs. Audit: all attacks, the lines audit/..., and their grades.")
    return "\n".join([*chain.from_iterable(wrapped(line, " " * _NAME, _WIDEST) or [""] for line in lines), ""])


def _place(leak: LeakRecord, run: Run) -> tuple[bool, bool, float]:
    """What comes first: what counts in the verdict, what an attacker sees, and what reads most."""
    worst = run.summary.verdict.worst
    value = words.leak_value(leak, worst.figure if worst else "AUC")
    return not words.counts(leak, run), not leak.visible, math.inf if math.isnan(value) else -value


def _leak(leak: LeakRecord, run: Run) -> dict[str, Any]:
    """Its line; beside a run with an adversary, with the two-sided leak AUC of its honest run."""
    row: dict[str, Any] = leak.model_dump(include={"attack", "message", "party", "layer"})
    row["leak"] = max(leak.two_sided, leak.net, key=lambda one: -1 if one.mean is None else one.mean)
    row |= {"raw": leak.raw.mean, **leak.classes, "batches": leak.batches}
    honest = run.summary.honest.leak_auc_two_sided if run.summary.honest else {}
    row["surest tenth"] = leak.surest.mean
    row["honest two-sided"] = honest.get(leak.attack, {}).get(leak.message, {}).get(leak.layer)
    return row | {"level": level_of(leak.attack, run.manifest.threats) + ", hidden" * (not leak.visible)}


def _table(rows: Sequence[Mapping[str, Any]], note: str = "", *, down: bool = False) -> list[str]:
    """A line a row, or with `down` a column; what no row has a value of is left out. Then the note."""
    texts = [{key.replace("_", " "): words.text_of(value) for key, value in row.items()} for row in rows]
    names = [n for n in dict.fromkeys(chain.from_iterable(texts)) if any(row.get(n, "-") not in ("-", "") for row in texts)]
    cells = [[row.get(name) or "-" for name in names] for row in texts]
    if not cells:
        return []
    most = max(1, (_WIDEST - max(map(len, names), default=0)) // (_NARROWEST + 2)) if down else len(cells)
    parts = [[names, *cells[start : start + most]] for start in range(0, len(cells), most)]
    made = [_columns([*zip(*part, strict=True)] if down else part) for part in parts]
    return ["", *chain.from_iterable(made), *([""] if note else []), *wrapped(note)]


def _columns(cells: Sequence[Sequence[str]]) -> list[str]:
    """Lines of cells. What is too wide is wrapped, the widest column first."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    while sum(widths) + 2 * len(widths) - 2 > _WIDEST and max(widths) > 1:
        widths[widths.index(max(widths))] -= 1
    wide = [["\n".join(textwrap.wrap(cell, width)) for cell, width in zip(row, widths, strict=True)] for row in cells]
    return tabulate(wide, tablefmt="plain", disable_numparse=True).splitlines()
