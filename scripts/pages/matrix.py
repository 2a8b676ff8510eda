"""The figures of docs/experiments/matrix.csv in the pages: `python scripts/pages/matrix.py` writes them again.

A figure stands between two comments, `<!-- matrix: max_norm; test AUC -->0.718<!-- -->`: a line and a column of the table.
Verdicts of all lines stand between `<!-- matrix -->` and `<!-- -->`.
"""

import re
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/experiments/findings.md", "docs/experiments/matrix.md", "docs/howto/choose_a_defense.md")
_FIGURE = re.compile(r"(<!-- matrix: ([^;>]+); ([^>]+) -->)[^<]*(?=<!-- -->)")
_VERDICTS = re.compile(r"(?<=<!-- matrix -->\n\n).*?(?=\n\n<!-- -->)", re.DOTALL)


def filled(text: str) -> str:
    """With the figures that the table has now."""
    table = pd.read_csv(ROOT / "docs" / "experiments" / "matrix.csv", index_col="defense", dtype=str).fillna("")
    text = _FIGURE.sub(lambda found: found[1] + table.at[found[2], found[3]], text)
    for level in ("without labels", "with labels"):
        table[f"strongest {level}"] = "`" + table[f"strongest {level}"] + "` " + table[level]
    shown = table[["test AUC", "ceiling", "strongest without labels", "strongest with labels", "directions", "probe"]]
    return _VERDICTS.sub(shown.to_markdown(disable_numparse=True), text)


if __name__ == "__main__":
    for page in PAGES:
        (ROOT / page).write_text(filled((ROOT / page).read_text("utf-8")), encoding="utf-8")
