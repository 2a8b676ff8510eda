"""A table in CSV, LaTeX and on the page: exact numbers, caption and label, and what a reader has no use for."""

import math
import re

import pytest

from vflbench.numerics.interval import Interval, OverRuns
from vflbench.report.page_tables import Reading, on_page
from vflbench.results.table_formats import Table, exact

NOTE = "Leaks at the cut layer: mean (95 % t-interval). Fewer than three runs have no interval."


def table(rows, columns=("setting", "leak AUC", "nothing"), note=NOTE):
    return Table("runs_settings", "Settings", columns, rows, note)


def test_latex_has_a_caption_with_the_first_sentence_and_a_label():
    rows = [["dcor, alpha_d 1 & 2", OverRuns(0.76, 0.75, 0.77, 3), None]]
    assert table(rows).latex().splitlines() == [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        r"\caption{Settings. Leaks at the cut layer: mean (95 \% t-interval).}",
        r"\label{tab:runs_settings}",
        r"\begin{tabular}{lrl}",
        r"\toprule",
        r"setting & leak AUC & nothing \\",
        r"\midrule",
        r"dcor, alpha\_d 1 \& 2 & 0.760 (0.750 to 0.770) & - \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    assert table(rows, note="").caption == "Settings."


def test_a_wide_table_has_the_width_of_a_line_in_latex():
    """Of seven columns with intervals, half lay beyond the page."""
    columns = tuple(f"a column with a long name {i}" for i in range(7))
    rows = [["marvell, sumkl 0.04", *[OverRuns(0.76, 0.75, 0.77, 3)] * 6]]
    head, *lines = table(rows, columns).latex().splitlines()
    assert head == r"% needs \usepackage{array,booktabs}"
    (begin,) = [line for line in lines if "{tabular}{" in line]
    widths = [float(width) for width in re.findall(r"p\{\\dimexpr ([\d.]+)\\linewidth-2\\tabcolsep\\relax\}", begin)]
    assert len(widths) == 7
    assert sum(widths) == pytest.approx(1, abs=0.004)
    assert begin.count(r">{\raggedleft\arraybackslash}") == 6


CMR10 = {"a": 500, "b": 556, "c": 444, "d": 556, "e": 444, "f": 306, "g": 500, "h": 556, "i": 278, "j": 306, "k": 528}
CMR10 |= {"l": 278, "m": 833, "n": 556, "o": 500, "p": 556, "q": 528, "r": 392, "s": 394, "t": 389, "u": 556, "v": 528}
CMR10 |= {"w": 722, "x": 528, "y": 528, "z": 444, "A": 750, "B": 708, "C": 722, "D": 764, "E": 681, "F": 653, "G": 785}
CMR10 |= {"H": 750, "I": 361, "J": 514, "K": 778, "L": 625, "M": 917, "N": 750, "O": 778, "P": 681, "Q": 778, "R": 736}
CMR10 |= {"S": 556, "T": 722, "U": 750, "V": 750, "W": 1028, "X": 750, "Y": 750, "Z": 611, "_": 360, ".": 278, ",": 278}
CMR10 |= {"-": 333, "(": 389, ")": 389, "/": 500, "+": 778, "=": 778, ":": 278, "'": 278, "%": 833, "<": 778, ">": 778}
CMR10 |= {"|": 278, "^": 500} | dict.fromkeys("0123456789", 500)
"""Thousandths of 10 pt of a letter in Computer Modern Roman, as in its metrics; an underscore is a rule of TeX."""
POINTS = {"footnotesize": 8 * 1.0625, "scriptsize": 7 * 1.139}
"""What these thousands are at 8 and at 7 pt, of which digits are 0.531 and 0.569 em wide."""
HEADS = ("setting", "defense.label_gdp.mu", "runs", "test AUC", "leak AUC at the cut", "worst attack", "|leak AUC - 0.5|")
LONG = (
    "label_gdp, audit.epochs last, columns of a opened+score+balance, attacked by norm+completion_both+7 more",
    "hidden_subset_sum on gradients_and_embeddings",
    "messages only",
)


def columns_in_points(text):
    """Of the table in a .tex file: points that each column leaves for words, and of a letter."""
    size = re.search(r"\\(footnotesize|scriptsize)", text)[1]
    share = [345 * float(width) - 6 for width in re.findall(r"p\{\\dimexpr ([\d.]+)\\linewidth", text)]
    return share or [float(width) for width in re.findall(r"p\{([\d.]+)pt\}", text)], POINTS[size]


def words_of(text):
    """Of each column the words in which TeX breaks no line."""
    body = text.split(r"\toprule")[1].split(r"\bottomrule")[0].replace(r"\midrule", "")
    rows = [line.removesuffix(r" \\").split(" & ") for line in body.strip().splitlines() if line.strip()]
    for sign in ("textless", "textgreater", "textbar"):
        rows = [[cell.replace(rf"\{sign}{{}}", {"l": "<", "g": ">", "b": "|"}[sign[4]]) for cell in row] for row in rows]
    cells = [[cell.replace(r"\allowbreak{}", " ").replace("\\", "") for cell in row] for row in rows]
    return [[word for cell in column for word in cell.split()] for column in zip(*cells, strict=True)]


def too_wide(text):
    points, size = columns_in_points(text)
    width = {word: sum(CMR10[letter] for letter in word) / 1000 * size for of in words_of(text) for word in of}
    return [
        (word, round(width[word], 1), room)
        for room, of in zip(points, words_of(text), strict=True)
        for word in of
        if width[word] > room
    ]


@pytest.mark.parametrize("more", [0, 2, 4, 8, 14])
def test_no_word_is_wider_than_its_column_in_latex(more):
    """`label_gdp` had 24 pt for its 31, and `runs` 7 for 15: words lay over each other."""
    names = (("norm", "direct", "completion_both") * 5)[:more]
    columns = (*HEADS, *(f"{name}, messages only" for name in names))
    values = [None, 10, OverRuns(0.76, 0.75, 0.77, 3), OverRuns(-0.101, -0.27, 0.069, 3)]
    rows = [[*LONG, *values, *[OverRuns(0.76, 0.75, 0.77, 3)] * more] for _ in range(2)]
    text = table(rows, columns).latex()
    assert too_wide(text) == []
    points, _ = columns_in_points(text)
    is_resized = r"\resizebox{\linewidth}{!}{%" in text
    assert text.count("graphicx") == is_resized == text.count(r"\end{tabular}}")
    if not is_resized:
        assert sum(points) + 6 * len(points) == pytest.approx(345, abs=0.5)
    assert is_resized == (more >= 4)


def test_the_widths_of_before_are_found_too_narrow():
    text = table([[*LONG, 1, 0.5, 0.5, 0.5]], HEADS).latex()
    before = re.sub(r"dimexpr [\d.]+", "dimexpr 0.07", text)
    assert {"setting", "messages"} <= {word for word, _, _ in too_wide(before)}


def test_long_words_break_after_the_signs_of_names_in_wide_tables_alone():
    text = table([[*LONG, 1, 0.5, 0.5, 0.5]], HEADS).latex()
    assert r"hidden\_\allowbreak{}subset\_\allowbreak{}sum" in text
    assert r"defense.\allowbreak{}label\_\allowbreak{}gdp.\allowbreak{}mu" in text
    assert r"label\_gdp," in text
    assert "allowbreak" not in table([["hidden_subset_sum", 0.5, 1]]).latex()


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (OverRuns(1 / 3, 0.25, 0.5, 3), "0.3333333333333333 0.25 0.5"),
        (Interval(0.5, math.nan, math.nan), "0.5"),
        (Interval(math.nan, math.nan, math.nan), ""),
        (1234, "1234"),
        (math.nan, ""),
        (math.inf, "inf"),
        (None, ""),
        ("0.5", None),
        (True, None),
    ],
)
def test_the_exact_number_behind_a_cell(cell, text):
    assert exact(cell) == text


def test_truth_is_a_word_in_every_format():
    assert table([[True, 0.5, False]], note="").csv().splitlines()[1] == "yes,0.5,no"


def test_the_page_leaves_out_columns_without_a_value_and_keeps_texts():
    shown = on_page(table([["a", None, "x"], ["b", math.nan, "-"]]), Reading())
    assert [column["text"] for column in shown["columns"]] == ["setting", "nothing"]
    assert [[cell["text"] for cell in row] for row in shown["rows"]] == [["a", "x"], ["b", "-"]]
    assert shown["cut"] == ""


def test_the_page_says_what_it_cuts():
    shown = on_page(table([[f"{i}", *[0.5] * 120] for i in range(1500)], tuple(map(str, range(121)))), Reading())
    assert (len(shown["rows"]), len(shown["columns"]), shown["count"]) == (400, 100, 1500)
    assert shown["cut"] == "1,100 more lines are in tables/runs_settings.csv. 21 more columns are there."


def test_each_way_to_read_a_table_stands_once_at_the_end():
    reading = Reading()
    places = [on_page(table([["a", 1, 2]], note=note), reading)["note"] for note in (NOTE, "Another.", NOTE, "")]
    assert places == ["reading_1", "reading_2", "reading_1", ""]
    assert reading.notes() == [("reading_1", "Settings", NOTE), ("reading_2", "Settings", "Another.")]
