"""docs/experiments/matrix.csv, and its figures in the pages.

    vflbench train experiment=matrix ...         # docs/experiments/matrix.md has the whole command
    python scripts/pages/matrix.py outputs       # the table and its picture, of these runs, and then the pages
    python scripts/pages/matrix.py               # the pages alone

A figure stands between two comments, `<!-- matrix: max_norm; test AUC -->0.718<!-- -->`: a line and a column of the table.
Verdicts of all lines stand between `<!-- matrix -->` and `<!-- -->`.
"""

import io
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/experiments/findings.md", "docs/experiments/matrix.md", "docs/howto/choose_a_defense.md")
TABLE = ROOT / "docs" / "experiments" / "matrix.csv"
LEVELS = {"messages only": "without labels", "known labels": "with labels"}
_FIGURE = re.compile(r"(<!-- matrix: ([^;>]+); ([^>]+) -->)[^<]*(?=<!-- -->)")
_VERDICTS = re.compile(r"(?<=<!-- matrix -->\n\n).*?(?=\n\n<!-- -->)", re.DOTALL)


def measured(outputs: Path, picture: Path) -> pd.DataFrame:
    """The table of the runs of experiment=matrix in a folder: the cells of the report's figure, with three decimals."""
    import vl_convert

    from vflbench.report.charts import svg
    from vflbench.report.experiments import matrix
    from vflbench.report.group import sections
    from vflbench.results.runs import read_tree

    section = next(one for one in sections(read_tree([outputs]).runs) if one.experiment == "matrix")
    (figure,) = matrix(section)
    drawn = Image.open(io.BytesIO(vl_convert.svg_to_png(svg(figure), scale=1.25)))
    drawn.convert("P", palette=Image.Palette.ADAPTIVE, colors=64).save(picture, optimize=True)
    cells = pd.DataFrame(figure.spec["datasets"]["cells"])
    cells["shown"] = cells.value.map("{:.3f}".format).where(cells.value.notna(), cells.words)
    table = cells[cells.group != "strongest"].pivot(index="row", columns="column", values="shown").loc[cells.row.unique()]
    one_message = section.runs.groupby("setting")["ceiling.one_message"].max().dropna().map("{:.3f} (one message)".format)
    table["ceiling"] = table["ceiling"].replace("-", None).fillna(one_message)
    attacks = [name for name in read("experiment/matrix")["attack"] if name in table]
    table = table[["test AUC", "ceiling", *attacks, "probe", "own columns"]]
    for group, level in LEVELS.items():
        of = table[[name for name in attacks if name in set(cells.column[cells.group == group])]].astype(float)
        table[f"strongest {level}"], table[level] = of.idxmax(axis=1), of.max(axis=1).map("{:.3f}".format)
    defenses = section.runs.groupby("setting")["run"].first().map(lambda run: named(run.config["defense"]))
    return table.rename(index=defenses).rename_axis("defense")


def named(defense: Mapping[str, Mapping[str, Any]]) -> str:
    """The defenses of a run, with the options that are not the defaults."""
    usual = {name: read(f"defense/{name}")[name] for name in defense}
    others = {
        name: [f"{k} {v}".lower() for k, v in sorted(of.items()) if v != usual[name][k]] for name, of in defense.items()
    }
    return " + ".join(", ".join([name, *options]) for name, options in others.items()) or "none"


def read(config: str) -> Any:
    return yaml.safe_load((ROOT / "configs" / f"{config}.yaml").read_text("utf-8"))


def filled(text: str) -> str:
    """With the figures that the table has now."""
    table = pd.read_csv(TABLE, index_col="defense", dtype=str).fillna("")
    text = _FIGURE.sub(lambda found: found[1] + table.at[found[2], found[3]], text)
    for level in LEVELS.values():
        table[f"strongest {level}"] = "`" + table[f"strongest {level}"] + "` " + table[level]
    shown = table[["test AUC", "ceiling", "strongest without labels", "strongest with labels", "directions", "probe"]]
    return _VERDICTS.sub(shown.to_markdown(disable_numparse=True), text)


if __name__ == "__main__":
    for outputs in sys.argv[1:]:
        measured(Path(outputs), ROOT / "docs" / "images" / "matrix.png").to_csv(TABLE)
    for page in PAGES:
        (ROOT / page).write_text(filled((ROOT / page).read_text("utf-8")), encoding="utf-8")
