"""docs/experiments/matrix.csv and the pages with its figures agree."""

import re

import pandas as pd
import pytest
from pages.matrix import PAGES, ROOT, filled, named, read

FIGURE = re.compile(r"<!-- matrix: ([^>]*) -->([\d.]+)<!-- -->")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_the_figures_of_the_table(page):
    text = (ROOT / page).read_text("utf-8")
    assert FIGURE.search(text) or "<!-- matrix -->" in text
    assert len(FIGURE.findall(text)) == text.count("<!-- matrix: ")
    assert filled(text) == text, "python scripts/pages/matrix.py"


def test_another_figure_is_replaced():
    text = "`max_norm` <!-- matrix: max_norm; without labels -->0.1<!-- -->, none <!-- matrix: none; test AUC -->0.2<!-- -->"
    assert [value for _, value in FIGURE.findall(filled(text))] == ["0.945", "0.739"]


def test_the_strongest_attack_of_a_line_is_the_largest_of_its_cells():
    table = pd.read_csv(ROOT / "docs" / "experiments" / "matrix.csv", index_col="defense")
    assert len(table) == 24
    for level, first, last in (("without labels", "norm", "kmeans"), ("with labels", "cosine", "both_100")):
        cells = table.loc[:, first:last]
        assert (cells.max(axis=1) == table[level]).all()
        assert all(cells.at[name, attack] == table.at[name, level] for name, attack in table[f"strongest {level}"].items())


def test_a_line_is_named_by_the_options_that_are_not_the_defaults():
    label_dp, dcor = (read(f"defense/{name}")[name] for name in ("label_dp", "dcor"))
    assert named({"label_dp": label_dp | {"mechanism": "zero_sum", "eps": 0.5}, "dcor": dcor}) == (
        "label_dp, eps 0.5, mechanism zero_sum + dcor"
    )
    assert named({}) == "none"
