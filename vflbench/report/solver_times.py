"""Seconds that solvers take by the size of a batch, as a table; `solver_figures` draws them."""

from collections.abc import Mapping, Sequence

from vflbench.places import config_folder
from vflbench.report.reproductions import Value, read_experiment
from vflbench.results.runs import Run, mappings

Cell = tuple[int, int]
"""Rows and columns of a batch."""

EXPERIMENT = "quantification_table1"
_ROWS, _COLUMNS = "dataset.rows", "dataset.features"


def published_cells() -> dict[Cell, Value]:
    """The published seconds of the integer programme by rows and columns; `*` where several batches match."""
    values = read_experiment(config_folder() / "experiment" / f"{EXPERIMENT}.yaml").values
    return {(value.options[_ROWS], value.options[_COLUMNS]): value for value in values}


def cells_of(runs: Sequence[Run]) -> dict[Cell, dict[str, dict[str, float]]]:
    """Rows and columns -> attack -> figure -> mean over that cell's batches, each with the same weight.

    runs: those that did not rebuild a batch from the updates of federated training are left out.
    """
    cells: dict[Cell, dict[str, dict[str, list[tuple[float, int]]]]] = {}
    for run in runs:
        for entry in mappings(run.summary.get("reconstructions")):
            rows, columns = run.option(_ROWS), run.option(_COLUMNS)
            if entry.get("message") != "update" or not isinstance(rows, int) or not isinstance(columns, int):
                continue
            figures = cells.setdefault((rows, columns), {}).setdefault(entry["attack"], {})
            for name, value in entry["figures"].items():
                if value["mean"] is not None:
                    figures.setdefault(name, []).append((value["mean"], entry["batches"]))
    return {
        cell: {attack: {name: _mean(values) for name, values in figures.items()} for attack, figures in attacks.items()}
        for cell, attacks in sorted(cells.items())
    }


def cells_table(
    cells: Mapping[Cell, Mapping[str, Mapping[str, float]]],
    figure: str = "solver_seconds",
    sizes: Mapping[Cell, Sequence[str]] | None = None,
    size_names: Sequence[str] = (),
) -> str:
    """Markdown: a line per published or measured cell with the seconds of each solver, and the share of searches that ended
    if not all did. With a twin: the share of batches for which another batch matches. sizes: cell -> more columns.
    """
    attacks = list(dict.fromkeys(attack for of_cell in cells.values() for attack in of_cell))
    published = published_cells()
    head = ["m, d", "published", *attacks, "batches that fit", "with a twin", *size_names]
    lines = [head, ["---"] * len(head)]
    for cell in sorted({*cells, *published}):
        of_cell = cells.get(cell, {})
        times = [_seconds(of_cell.get(attack), figure) for attack in attacks]
        lines.append([f"{cell[0]}, {cell[1]}", _published(published.get(cell)), *times, *_counts(of_cell)])
        lines[-1] += (sizes or {}).get(cell, [""] * len(size_names))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _published(value: Value | None) -> str:
    """`*` alone is a sign of Markdown's."""
    if value is None:
        return "not in the table"
    return f"\\{value.mark}" if value.number is None else f"{value.number} s"


def _counts(of_cell: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Mean number of batches that match, and the share of batches with another one; of searches that all ended."""
    ended = [figures for figures in of_cell.values() if "unique" in figures and share_ended(figures) == 1]
    if not ended:
        return ["-", "-"]
    matches = max(figures.get("matches", 0.0) for figures in ended)
    return [f"{matches:.3g}", f"{1 - max(figures['unique'] for figures in ended):.0%}"]


def _mean(values: Sequence[tuple[float, int]]) -> float:
    return sum(value * weight for value, weight in values) / sum(weight for _, weight in values)


def share_ended(figures: Mapping[str, float]) -> float:
    """The share of searches that ended. Runs without this figure called them `proved`."""
    return figures.get("ended", figures.get("proved", 1.0))


def _seconds(figures: Mapping[str, float] | None, name: str) -> str:
    if not figures or name not in figures:
        return "not run"
    share = share_ended(figures)
    time = f"{figures[name] * 1000:.3g} ms" if figures[name] < 1 else f"{figures[name]:.3g} s"
    return time if share == 1 else f"> {time} ({share:.0%} ended)"
