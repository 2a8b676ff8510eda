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
from pathlib import Path

import pandas as pd
import yaml
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/experiments/findings.md", "docs/experiments/matrix.md", "docs/howto/choose_a_defense.md")
TABLE = ROOT / "docs" / "experiments" / "matrix.csv"
LEVELS = {"messages only": "without labels", "known labels": "with labels"}
_FIGURE = re.compile(r"(<!-- matrix: ([^;>]+); ([^>]+) -->)[^<]*(?=<!-- -->)")
_VERDICTS = re.compile(r"(?<=<!-- matrix -->\n\n).*?(?=\n\n<!-- -->)", re.DOTALL)


def measured(outputs: Path, picture: Path | None = None) -> pd.DataFrame:
    """The table of the runs of experiment=matrix in a folder: the cells of the report's figure, with three decimals."""
    from vflbench.report.charts import files
    from vflbench.report.experiments import matrix
    from vflbench.report.group import sections
    from vflbench.results.runs import read_tree

    section = next(one for one in sections(read_tree([outputs]).runs) if one.experiment == "matrix")
    (figure,) = matrix(section)
    if picture:
        ((_, drawn),) = files(figure, ["png"])
        Image.open(io.BytesIO(drawn)).convert("P", palette=Image.Palette.ADAPTIVE, colors=64).save(picture, optimize=True)
    cells = pd.DataFrame(figure.spec["datasets"]["cells"])
    cells["shown"] = cells.value.map("{:.3f}".format).where(cells.value.notna(), cells.words)
    table = cells[cells.group != "strongest"].pivot(index="row", columns="column", values="shown")
    attacks = yaml.safe_load((ROOT / "configs" / "experiment" / "matrix.yaml").read_text("utf-8"))["attack"]
    names = ["test AUC", "ceiling", *attacks, "probe", "own columns"]
    table = table.reindex(index=cells.row.unique(), columns=[name for name in names if name in table])
    for group, level in LEVELS.items():
        of = table[[name for name in attacks if name in set(cells.column[cells.group == group])]].astype(float)
        table[f"strongest {level}"], table[level] = of.idxmax(axis=1), of.max(axis=1).map("{:.3f}".format)
    return table.rename_axis("defense")


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
