"""What a command prints of a result: a sentence, and at most six lines of 80 columns; everything else is in table.txt."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vflbench.numerics.digits import apart
from vflbench.report.attack_line import above_label_privacy, attack_line, figure_text, own_lines
from vflbench.report.plain_numbers import auc_text
from vflbench.report.rebuilt_words import rebuilt_words
from vflbench.report.short_sentence import short_sentence
from vflbench.report.table import of_finished
from vflbench.report.verdict_lines import LABEL_PRIVACY
from vflbench.results import quantity
from vflbench.results.files import HONEST, TABLE
from vflbench.results.levels import PROBE
from vflbench.results.runs import AS_RECORDED, Run, mappings
from vflbench.results.wrapping import WIDTH, path_text, wrapped

MOST = 6
"""Lines after the sentence."""

BOLD, RED, GREEN, PLAIN = "\033[1m", "\033[1;31m", "\033[1;32m", "\033[0m"
_USUAL = {"norm", "spectral"}
"""The attacks of train.yaml."""
_NAME = 9
"""Columns of a line's name."""


def result_text(folder: Path, *, colour: bool = False, gates: Sequence[str] = (), page: Path | None = None) -> str:
    """`first_lines` of the finished run in a folder. Raises UserError for results that can't be shown."""
    return of_finished(
        folder,
        lambda run, honest: "\n".join(first_lines(run, colour=colour, gates=gates, honest=honest, page=page)),
    )


def first_lines(
    run: Run,
    *,
    colour: bool = False,
    gates: Sequence[str] = (),
    honest: Mapping[str, Any] | None = None,
    page: Path | None = None,
) -> list[str]:
    """The sentence, what thresholds came to, and at most six lines, the last of which says what to open next.

    Alarms come first; what finds no room is in table.txt. gates: outcomes of thresholds, a line each, all of them shown.
    honest: summary of the same run without its adversary. page: the run's page, where one was written.
    """
    lines = [_coloured(line, BOLD, colour) for line in wrapped(_sentence(run))]
    for gate in gates:
        lines += [_coloured(line, GREEN if gate.startswith("PASS") else RED, colour) for line in wrapped(gate)]
    last = [*_named("details", path_text(run.folder / TABLE), whole=True), *_next(run, page)]
    rows: list[str] = []
    for name, text, is_alarm in _told(run, honest):
        made = _shortened(_named(name, text), MOST - len(last) - len(rows))
        rows += [_coloured(line, RED, colour) for line in made] if is_alarm else made
    return [*lines, "", *rows, *last]


def _sentence(run: Run) -> str:
    """The result in one sentence, which names the defense."""
    text = short_sentence([run])
    defenses = "+".join(run.summary.get("guarantees") or {})
    if text and defenses:
        return f"With {defenses}: {text[:1].lower()}{text[1:]}"
    return text or _of_older(run)


def _told(run: Run, honest: Mapping[str, Any] | None) -> list[tuple[str, str, bool]]:
    """(name, text, whether it is an alarm) of what is to be told, the most important first."""
    verdict = run.summary.get("verdict") or {}
    rows: list[tuple[str, str, bool]] = [("FAILED", run.failed, True)] if run.failed else []
    if verdict.get("falls"):
        falls = verdict["falls"]
        who = "+".join(run.summary.get("guarantees") or {}) or AS_RECORDED
        rows.append(("defense", f"{who} falls to {falls['attack']} ({figure_text(falls)}): {falls['because']}", True))
    rows += _promises(run)
    worst = verdict.get("worst")
    if worst:
        rows.append(("attack", attack_line(worst, run), False))
        rows += [("ceiling", text, False) for text in above_label_privacy(worst, run)]
        rows += [("rebuilt", text, False) for text in rebuilt_words([run])]
    else:
        rows += [("attack", text, False) for text in _rebuilding(run)]
    name = "audited" if run.is_audit else "model"
    rows += [("own", text, False) for text in own_lines(run, worst)] if worst else []
    model = [(name, text, False) for text in (_model(run, honest),) if text]
    stronger = [("try", text, False) for text in _stronger(run)]
    rows += stronger + model if run.summary.get("guarantees") else model + stronger
    rows += _observed(run)
    rows += [("note", str(note), False) for note in (run.manifest.get("notes") or ()) if run.is_audit]
    missing = {**run.skipped, **run.unscored}
    text = f"{len(missing)} attack{'s' * (len(missing) != 1)} ({TABLE} says why): {', '.join(missing)}"
    return [*rows, ("not run", text, False)] if missing else rows


def _observed(run: Run) -> list[tuple[str, str, bool]]:
    """Of an audit: what the messages show against the label DP that the recording claims."""
    observed = run.summary.get("observed_privacy")
    if not isinstance(observed, Mapping):
        return []
    return [("privacy", str(observed.get("verdict", "")), observed.get("outcome") == "against")]


def _rebuilding(run: Run) -> list[str]:
    """Who rebuilt data, and from what."""
    names = dict.fromkeys(str(entry["attack"]) for entry in mappings(run.summary.get("reconstructions")))
    threats = {name: run.threats.get(name) or {} for name in names}
    return [
        f"{name} by {_who(threat)}, who knows {', '.join(map(str, threat.get('knows') or ['nothing but messages']))}"
        for name, threat in threats.items()
    ]


def _who(threat: Mapping[str, Any]) -> str:
    seat = str(threat.get("seat") or "a party")
    return {"participant": "a participant", "label party": "the label party"}.get(seat, "a non-label party")


def _stronger(run: Run) -> list[str]:
    """Of a run with the attacks of train.yaml: that others may read more, and a defense, where there was none."""
    if run.is_audit or run.adversaries or {*run.threats} - {PROBE} != _USUAL:
        return []
    if run.summary.get("guarantees"):
        return ["attack=strongest: the strongest known attacks"]
    return ["attack=strongest: stronger attacks; defense=label_gdp: noise on labels"]


def _promises(run: Run) -> list[tuple[str, str, bool]]:
    """What each defense promises, and whether a leak is above it; what was spent of label privacy."""
    rows = _privacy(run.summary.get("privacy") or {})
    for name, promise in (run.summary.get("guarantees") or {}).items():
        if not promise or promise.get("bounds") == LABEL_PRIVACY:
            continue
        ceiling = f"a leak AUC of at most {quantity.number(promise.get('leak_auc_all_messages')):.3f}"
        refused, tested = promise.get("assumption_holds") is False, promise.get("assumption_holds") is True
        if promise.get("exceeded"):
            worst = promise["exceeded"][0]
            height = apart(worst["value"], worst["ceiling"])[1]
            text = f"{worst['attack']} ({figure_text(worst)}) is above the ceiling of {name}, {height}"
            rows.insert(0, ("ALARM", text + "; the assumption of the ceiling does not hold here" * refused, True))
        elif refused:
            rows.append(("promise", f"{name} promises nothing here: a test refutes its assumption", False))
        else:
            rows.append(("promise", f"{name}: {ceiling}{'; what it assumes was tested, and not refused' * tested}", False))
    return rows


def _privacy(privacy: Mapping[str, Any]) -> list[tuple[str, str, bool]]:
    symbols = {"epsilon": "eps", "mu": "mu"}
    spent = [f"{name} = {privacy[key]:.4g}" for key, name in symbols.items() if privacy.get(key) is not None]
    if not spent:
        return []
    ends = {f"{key}_low": name for key, name in symbols.items()}
    proven = " and ".join(f"{name} at least {privacy[key]:.3g}" for key, name in ends.items() if privacy.get(key))
    measured = f"{privacy['canaries']:,} canaries prove {proven or 'none of it'}" if privacy["canaries"] else ""
    is_violated = bool(privacy.get("violated"))
    text = f"label DP with {' and '.join(spent)}; {measured or 'not checked, as there are no canaries'}"
    return [("privacy", f"{text}{': VIOLATED' * is_violated}", is_violated)]


def _model(run: Run, honest: Mapping[str, Any] | None) -> str:
    names = {"test_auc": "test AUC", "train_auc": "train AUC", "test_accuracy": "test accuracy"}
    values = {words: quantity.number(run.summary.get(name)) for name, words in names.items()}
    known = [f"{words} {value:.3f}" for words, value in values.items() if not math.isnan(value)]
    epochs = f"{run.summary.get('epochs')} epoch{'s' * (run.summary.get('epochs') != 1)}"
    if run.is_audit:
        rows = (run.manifest.get("data") or {}).get("train_rows") or 0
        return ", ".join([run.dataset, f"{rows:,} rows", epochs, *known[:1]])
    if honest is not None and known:
        known[0] += f" (without the adversary {quantity.number(honest.get('test_auc')):.3f})"
    elif run.adversaries:
        known.append(f"no honest run to compare ({HONEST})")
    return f"{', '.join(known)} after {epochs}" if known else ""


def _of_older(run: Run) -> str:
    """Of a run of an older version, which records no worst attack."""
    value = quantity.number(run.summary.get("test_auc"))
    return f"Test AUC {auc_text(value)}; the run is of an older version, which recorded no verdict."


def _next(run: Run, page: Path | None) -> list[str]:
    if page is not None:
        return _named("open", path_text(page), whole=True)
    return _named("next", f"vflbench report {path_text(run.folder)} --open", whole=True)


def _named(name: str, text: str, *, whole: bool = False) -> list[str]:
    """`name     text`; whole: in one line however long, as a path or a command is."""
    line = f"{name:<{_NAME}}{text}"
    return [line] if whole else wrapped(line, " " * _NAME)


def _shortened(lines: list[str], most: int) -> list[str]:
    """At most so many lines, and of one text at most two."""
    most = min(most, 2)
    if len(lines) <= most or most <= 0:
        return lines[: max(0, most)]
    last = lines[most - 1]
    return [*lines[: most - 1], f"{last[: WIDTH - 4].rpartition(' ')[0] if len(last) > WIDTH - 4 else last} ..."]


def _coloured(line: str, colour: str, wanted: bool) -> str:
    return f"{colour}{line}{PLAIN}" if wanted else line
