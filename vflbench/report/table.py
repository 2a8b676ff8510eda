"""One run as tables for a person: the text of table.txt."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vflbench.errors import UserError
from vflbench.plain_files import written_whole
from vflbench.report.privacy_lines import privacy_lines
from vflbench.report.rebuilt_tables import lined_up, rebuilt_lines
from vflbench.report.verdict_lines import verdict_lines
from vflbench.report.verdict_sentence import verdict_block
from vflbench.results import quantity
from vflbench.results.files import HONEST, METRICS, SUMMARY, TABLE
from vflbench.results.levels import REFERENCE, level_of
from vflbench.results.read import read_manifest, read_summary
from vflbench.results.runs import Run
from vflbench.results.untrusted import shown
from vflbench.results.wrapping import WIDTH

_PLACE = ("attack", "message", "party", "layer")
_HEADER = (*_PLACE, "leak AUC", "95 % interval", "two-sided", "oriented", "coin", "net", "level", "")
_CLASS_HEADER = (*_PLACE, "AMI", "95 % interval", "accuracy", "95 % interval", "macro AUC", "level", "")
_MOST_ROWS = 25  # of a table of leaks in full

Place = tuple[str, ...]


def final_table(folder: Path, *, gates: Sequence[str] = ()) -> str:
    """The verdict in a sentence, test and train AUC, the leaks of the last epoch with their intervals, promises.

    Of more than 25 leaks, references aside, of each attack at each party the worst layer and those that cross. `hidden`
    marks layers that no attacker sees. Beside a run with an adversary stand the figures of its honest run, and attacks
    without a result are named with the reason. gates: lines on thresholds, which follow the first.
    """
    return of_finished(folder, lambda run, honest: _table(run, honest, gates))


def table_of(folder: Path, summary: Mapping[str, Any], manifest: Mapping[str, Any]) -> str:
    """`final_table` of a run that is about to be finished in that folder, as the text of its file."""
    run = Run(folder, {}, summary, manifest)
    return _as_file(_table(run, _honest_summary(run), ()))


def write_table(folder: Path, *, gates: Sequence[str] = ()) -> None:
    """Write `final_table` to table.txt, in one piece."""
    text = _as_file(final_table(folder, gates=gates))
    with written_whole(folder / TABLE, "w", encoding="utf-8") as file:
        file.write(text)


def _as_file(text: str) -> str:
    """With a last line on how to read it, where it is wider than a terminal."""
    widest = max(map(len, text.splitlines()), default=0)
    note = f"\n\nLines have up to {widest} characters: less -S {TABLE} scrolls sideways." if widest > WIDTH else ""
    return f"{text}{note}\n"


def of_finished(folder: Path, words: Callable[[Run, Mapping[str, Any] | None], str]) -> str:
    """A text on the finished run in a folder and, of one with an adversary, on the summary of its honest run.

    Raises UserError for results that are of another version, or were made by another hand.
    """
    run = Run(folder, {}, read_summary(folder), _manifest(folder))
    try:
        return words(run, _honest_summary(run))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, ArithmeticError) as error:
        problem = f"its results can't be shown, as of another version or by another hand: {type(error).__name__} {error}"
        raise UserError(shown(problem, 300), key="folder", value=folder) from error


def _table(run: Run, honest: Mapping[str, Any] | None, gates: Sequence[str]) -> str:
    summary = run.summary
    lines = verdict_block(run, gates=gates)
    lines += [""] if lines else []
    lines.append(_utility(run))
    for name, adversary in run.adversaries.items():
        lines.append(f"adversary {name} at party {adversary.get('party', '?')}: {adversary.get('text', '')}".strip(": "))
    if honest is not None:
        lines.append(f"honest run, without the adversary: {_utility(replace(run, summary=honest)).partition(': ')[2]}")
    elif run.adversaries:
        lines.append(f"there is no honest run to compare ({HONEST})")
    lines += _leaks(run, honest)
    lines += _class_leaks(run, honest)
    lines += rebuilt_lines(summary.get("reconstructions", []))
    if summary["distance_correlation"]:
        values = ", ".join(f"{d['party']} {d['layer']} {number(d['dcor']['mean'])}" for d in summary["distance_correlation"])
        lines.append(f"squared distance correlation of embeddings and labels: {values}")
    if not run.is_audit:  # the first lines have them
        lines += [f"skipped {attack}: {reason}" for attack, reason in run.skipped.items()]
        lines += [f"not scored {attack}: {reason}" for attack, reason in run.unscored.items()]
    lines += privacy_lines(summary)
    lines += [_count(figure) for figure in summary["figures"] if figure["value"] and isinstance(figure["value"], int)]
    if run.failed:
        lines.append(f"FAILED: {run.failed}")
    return "\n".join([*lines, *verdict_lines(run)])


def number(value: float | None) -> str:
    return "undefined" if value is None or math.isnan(value) else f"{value:.4f}"


def _manifest(folder: Path) -> Mapping[str, Any]:
    try:
        return read_manifest(folder)
    except FileNotFoundError:
        return {}


def _honest_summary(run: Run) -> Mapping[str, Any] | None:
    if not run.adversaries or (run.folder / HONEST).is_symlink():
        return None
    try:
        return read_summary(run.folder / HONEST)
    except (OSError, ValueError):
        return None


def _utility(run: Run) -> str:
    """What is known of the model after the last epoch; of an audit, what was audited first."""
    summary, epochs = run.summary, run.summary["epochs"]
    names = {"test_auc": "test AUC", "train_auc": "train AUC", "test_log_loss": "test log loss"}
    names |= {"test_accuracy": "test accuracy"}
    known = [f"{words} {number(summary[name])}" for name, words in names.items() if name in summary]
    if not run.is_audit:
        return f"after {epochs} epoch{'s' * (epochs != 1)}: {', '.join(known)}"
    rows = (run.manifest.get("data") or {}).get("train_rows") or 0
    known = [text for text in known if not text.endswith(number(None))]
    return ", ".join([f"{run.dataset}: {epochs} epoch{'s' * (epochs != 1)}", f"{rows:,} training rows", *known])


def _leaks(run: Run, honest: Mapping[str, Any] | None) -> list[str]:
    everything = [leak for leak in run.summary["leaks"] if not _of_classes(leak)]
    leaks = _few(everything, run)
    if not leaks:
        return []
    rows = [
        (
            *(leak[name] for name in _PLACE),
            number(leak["raw"]["mean"]),
            _interval(leak["raw"]),
            number(leak["two_sided"]["mean"]),
            number(leak["oriented"]["mean"]),
            number(leak.get("coin")),
            number((leak.get("net") or {}).get("mean")),
            level_of(leak["attack"], run.threats),
            "" if leak["visible"] else "hidden",
        )
        for leak in leaks
    ]
    if honest is not None:
        values = {_place(leak): leak["raw"]["mean"] for leak in honest["leaks"]}
        header, rows = _beside(_HEADER, rows, [number(values.get(_place(leak))) for leak in leaks], "honest leak AUC")
    else:
        header = _HEADER
    note = (
        f"leak AUC: the mean over {_batches(leaks)} audited batches; 0.5 is a coin. 95 % interval: of this reading alone. "
        "two-sided: max(a, 1 - a) of the mean. "
        "oriented: the mean over batches of max(a, 1 - a). coin: what a coin reaches there. net: oriented without the part "
        "of a coin. A leak counts as the larger of two-sided and net. "
        f"hidden: a layer of the label party, which no attacker sees{_rest(everything, leaks)}"
    )
    return ["", *lined_up([header, *rows]), "", note]


def _few(leaks: Sequence[Mapping[str, Any]], run: Run) -> list[Mapping[str, Any]]:
    """All of a few leaks; of many, each attack's worst layer and those that cross, at each party."""
    if sum(level_of(str(leak["attack"]), run.threats) != REFERENCE for leak in leaks) <= _MOST_ROWS:
        return list(leaks)
    worst: dict[Place, float] = {}
    for leak in leaks:
        worst[_place(leak)[:3]] = max(worst.get(_place(leak)[:3], -math.inf), _reading(leak))
    return [
        leak
        for leak in leaks
        if leak["visible"]
        and (_reading(leak) == worst[_place(leak)[:3]] or run.layers.crosses(str(leak["party"]), str(leak["layer"])))
    ]


def _reading(leak: Mapping[str, Any]) -> float:
    value = quantity.leak_value(leak, "leak_ami" if _of_classes(leak) else "leak_auc")
    return -math.inf if math.isnan(value) else value


def _rest(everything: Sequence[Mapping[str, Any]], shown: Sequence[Mapping[str, Any]]) -> str:
    left = len(everything) - len(shown)
    return f"; {left} more rows, of other layers, are in {METRICS} and in {SUMMARY}" if left else ""


def _class_leaks(run: Run, honest: Mapping[str, Any] | None) -> list[str]:
    """Leaks about more than two classes."""
    everything = [leak for leak in run.summary["leaks"] if leak["classes"]]
    leaks = _few(everything, run)
    if not leaks:
        return []
    rows = [
        (
            *(leak[name] for name in _PLACE),
            number(leak["classes"]["ami"]["mean"]),
            _interval(leak["classes"]["ami"]),
            number(leak["classes"]["accuracy"]["mean"]),
            _interval(leak["classes"]["accuracy"]),
            number(leak["classes"]["macro_auc"]["mean"]),
            level_of(leak["attack"], run.threats),
            "" if leak["visible"] else "hidden",
        )
        for leak in leaks
    ]
    header: Place = _CLASS_HEADER
    if honest is not None:
        values = {_place(leak): leak["classes"]["ami"]["mean"] for leak in honest["leaks"] if leak["classes"]}
        header, rows = _beside(header, rows, [number(values.get(_place(leak))) for leak in leaks], "honest AMI")
    majority = max((run.manifest.get("data") or {}).get("train_class_ratios") or [math.nan])
    note = (
        f"AMI: adjusted mutual information of answer and classes, mean over {_batches(leaks)} audited batches; 0 is a coin, "
        "1 the classes under any names. accuracy: an attacker that always answers the most frequent class reaches "
        f"{number(majority)}. macro AUC: mean of one class against the rest, 0.5 is a coin{_rest(everything, leaks)}"
    )
    return ["", *lined_up([header, *rows]), "", note]


def _beside(header: Place, rows: list[Place], cells: list[str], title: str) -> tuple[Place, list[Place]]:
    """The same with one more column before the last."""
    wider = [(*row[:-1], cell, row[-1]) for row, cell in zip(rows, cells, strict=True)]
    return (*header[:-1], title, header[-1]), wider


def _place(leak: Mapping[str, Any]) -> Place:
    return tuple(str(leak[name]) for name in _PLACE)


def _of_classes(leak: Mapping[str, Any]) -> bool:
    """Whether it is about more than two classes, and has no leak AUC."""
    return bool(leak["classes"]) and leak["raw"]["mean"] is None


def _count(figure: Mapping[str, Any]) -> str:
    place = " ".join(part for part in (figure["party"], figure["layer"]) if part)
    return f"{figure['figure'].replace('_', ' ')} ({place}): {figure['value']}"


def _interval(value: Mapping[str, float | None]) -> str:
    return "-" if value["low"] is None else f"{value['low']:.3f} .. {value['high']:.3f}"


def _batches(leaks: Sequence[Mapping[str, Any]]) -> str:
    return " or ".join(map(str, sorted({leak["batches"] for leak in leaks})))
