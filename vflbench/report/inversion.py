"""Runs that rebuilt data side by side: how well, for how many bits sent, and how useful the model is."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vflbench.numerics.figure_range import range_of
from vflbench.numerics.interval import ANY, UNIT, OverRuns, Range, interval_text, over_runs
from vflbench.report.comparison import Line
from vflbench.results.arrays import read_arrays
from vflbench.results.files import RECONSTRUCTIONS
from vflbench.results.read import read_metrics
from vflbench.results.runs import Run

FIGURES = (
    *("mse", "psnr", "ssim", "recognised", "identified", "feature_distance"),
    *("r2", "error_over_spread", "within_tolerance", "id_accuracy", "rows_right"),
)
_TO_LABEL = "bytes_sent:label"  # not in the results of older versions
GUESSES = (
    "mean",
    "class_mean",
    "random_row",
    "class_row",
    "best_draw",
    "own_columns",
    "own_linear",
    "chance",
    "nearest_row",
    "true",
)
STRONGEST = "strongest"
"""In place of an attack: of each line the one with the least error."""
_GUESSED = {"true": "the true rows", "nearest_row": "the held-out row nearest to the true one"}


def rebuilt(run: Run, attack: str, figure: str, guess: str | None = None) -> float:
    """A figure of the last epoch: of what the attack rebuilt from messages, or of one of `GUESSES`; nan if there is none.

    Of several parties: the figure of whole pictures, else the mean over the parties.
    """
    entries = [
        entry
        for entry in run.summary.get("reconstructions", [])
        if entry["attack"] == attack and (entry["layer"] == guess if guess else entry["message"] != "none")
    ]
    entries = [entry for entry in entries if entry["party"].split(" by ")[0] == "all"] or entries
    values = [entry["figures"][figure]["mean"] for entry in entries if figure in entry["figures"]]
    values = [value for value in values if value is not None]
    return math.fsum(values) / len(values) if values else math.nan


def bits_per_row(run: Run) -> float:
    """Bits of embeddings per training row of the last epoch, of all parties together: each once, to the label party."""
    rows = [row for row in read_metrics(run.folder) if row.split == "train" and row.message == "embedding"]
    last = max((row.epoch for row in rows), default=0)
    once = _TO_LABEL if any(row.metric == _TO_LABEL for row in rows) else "bytes_sent"
    return 8 * sum(row.value for row in rows if row.metric == once and row.epoch == last) / _rows_trained(run)


def _rows_trained(run: Run) -> float:
    """The rows of an epoch's full batches; nan where the run doesn't record them."""
    rows, size = (run.manifest.get("data") or {}).get("train_rows") or 0, run.manifest.get("batch_size") or 0
    return rows // size * size if rows >= size > 0 else math.nan


def attacks_that_rebuild(runs: Sequence[Run]) -> list[str]:
    return list(dict.fromkeys(entry["attack"] for run in runs for entry in run.summary.get("reconstructions", [])))


def inversion_table(table: Sequence[Line], by: Sequence[str], attack: str) -> str:
    """A Markdown table: means over seeds with Student's 95 % intervals; guesses without a message at the end.

    attack: `strongest` takes for each line the attack with the least error, which a column names. As it is chosen by the
    figures that are shown, they are slightly too good; of runs that were given to no choice there would be no such gain.
    """
    runs = [run for line in table for run in line.runs]
    chosen = [strongest(line.runs) if attack == STRONGEST else attack for line in table]
    of_run = {id(run): name for line, name in zip(table, chosen, strict=True) for run in line.runs}
    figures = [f for f in FIGURES if any(not math.isnan(rebuilt(run, of_run[id(run)], f)) for run in runs)]
    named = ["attack"] if attack == STRONGEST else []
    is_compared = any(beats_every_guess(run, of_run[id(run)]) is not None for run in runs)
    header = ["defense", *by, *named, "runs", "bits a row", utility_name(runs)]
    header += [*(name.replace("_", " ") for name in figures), *(["beats every guess"] if is_compared else [])]
    rows = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for line, name in zip(table, chosen, strict=True):
        cells = [line.defense, *("" if v is None else str(v) for v in line.options)]
        cells += [*([name.replace("_", " ")] if named else []), str(len(line.runs))]
        cells += [f"{over(line, bits_per_row).mean:.0f}", interval_text(over(line, utility, UNIT), ".3g")]
        cells += [interval_text(over(line, partial(rebuilt, attack=name, figure=f), range_of(f)), ".3g") for f in figures]
        beats = [beats_every_guess(run, name) for run in line.runs]
        cells += [f"{beats.count(True)} of {len(beats)}"] if is_compared else []
        rows.append("| " + " | ".join(cells) + " |")
    of_one_data = len({str(run.config.get("dataset")) for run in runs}) == 1  # else guesses of several would be averaged
    for guess in GUESSES if of_one_data else ():
        values = {f: over_runs((rebuilt(run, of_run[id(run)], f, guess) for run in runs), range_of(f)) for f in figures}
        if not any(value.runs for value in values.values()):
            continue
        cells = [_GUESSED.get(guess, f"no message: {guess.replace('_', ' ')}"), *[""] * (len(by) + len(named) + 3)]
        cells += [interval_text(values[f], ".3g") for f in figures]
        rows.append("| " + " | ".join([*cells, *([""] if is_compared else [])]) + " |")
    return "\n".join(rows)


def strongest(runs: Sequence[Run]) -> str:
    """The attack with the least error over these runs: by mse, or else by error_over_spread, or by wrong ids."""
    attacks = attacks_that_rebuild(runs)
    for figure, sign in (("mse", 1), ("error_over_spread", 1), ("id_accuracy", -1)):
        means = {a: over_runs(rebuilt(run, a, figure) for run in runs).mean for a in attacks}
        known = {a: sign * mean for a, mean in means.items() if not math.isnan(mean)}
        if known:
            return min(known, key=lambda a: known[a])
    return attacks[0]


def beats_every_guess(run: Run, attack: str) -> bool | None:
    """Whether what it rebuilt of any party beats every guess without messages; None if that was not compared."""
    answers = [entry.get("beats_every_guess") for entry in _of(run, attack)]
    known = [answer for answer in answers if answer is not None]
    return any(known) if known else None


def _of(run: Run, attack: str) -> list[Mapping[str, Any]]:
    return [entry for entry in run.summary.get("reconstructions", []) if entry["attack"] == attack]


def pictures_of(folder: Path, attack: str) -> tuple[np.ndarray, np.ndarray] | None:
    """The true and the rebuilt pictures of a run, of whole pictures if there are any; None if there are none."""
    try:
        arrays = read_arrays(folder / RECONSTRUCTIONS)
    except FileNotFoundError:
        return None
    names = [n for n in arrays if n.startswith(f"{attack}/") and n.endswith("/truth") and arrays[n].ndim > 2]
    return (arrays[names[-1]], arrays[names[-1].replace("/truth", "/answer")]) if names else None


def utility(run: Run) -> float:
    return run.summary.get("test_accuracy", run.summary["test_auc"])


def utility_name(runs: Sequence[Run]) -> str:
    return "test accuracy" if any("test_accuracy" in run.summary for run in runs) else "test AUC"


def over(line: Line, quantity: Callable[[Run], float], limits: Range = ANY) -> OverRuns:
    return over_runs(map(quantity, line.runs), limits)
