"""metrics.csv is written and read by one type."""

import io
import math
from dataclasses import astuple
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from vflbench.results.gate import leak_rows
from vflbench.results.recorder import write_metric_rows
from vflbench.results.runs import read_metrics
from vflbench.results.schema import HEADER, MetricRow

NUMBERS = st.floats() | st.integers(-(2**53), 2**53)
WORDS = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=8)
NAMES = st.text("abc_", min_size=1, max_size=8)
ROWS = st.builds(
    MetricRow,
    *(st.integers(0, 10**6), NAMES, WORDS, WORDS, WORDS, WORDS, NAMES),
    *(NUMBERS, NUMBERS, NUMBERS, st.none() | st.booleans()),
)


def written(rows):
    file = io.StringIO(newline="")
    file.write(HEADER)
    write_metric_rows(file, rows)
    return file.getvalue()


def test_the_bytes_are_as_documented():
    rows = [
        MetricRow(0, "train", metric="loss", value=0.1 + 0.2),
        MetricRow(1, "test", metric="auc", value=math.nan),
        MetricRow(1, "train", "a", "f5", "gradient", "norm", "leak_auc", 0.9, 0.8, 1.0, True),
        MetricRow(1, "train", "my, bank", "h1", "embedding", "", "bytes_sent", 12, visible=False),
    ]
    assert written(rows) == (
        "epoch,split,party,layer,message,attack,metric,value,ci_low,ci_high,visible\n"
        "0,train,,,,,loss,0.30000000000000004,,,\n"
        "1,test,,,,,auc,,,,\n"
        "1,train,a,f5,gradient,norm,leak_auc,0.9,0.8,1.0,true\n"
        '1,train,"my, bank",h1,embedding,,bytes_sent,12,,,false\n'
    )


@settings(max_examples=25)
@given(st.lists(ROWS, min_size=1, max_size=4))
def test_what_is_written_is_read_back(rows):
    with TemporaryDirectory() as folder:
        Path(folder, "metrics.csv").write_text(written(rows), encoding="utf8", newline="")
        read = read_metrics(Path(folder))
    assert [_comparable(row) for row in read] == [_comparable(row) for row in rows]


def _comparable(row):
    """nan is not equal to itself."""
    return [None if value != value else value for value in astuple(row)]


def test_a_leak_counts_as_two_sided_or_net_whichever_is_larger():
    def row(metric, layer, value):
        return MetricRow(1, "train", "a", layer, "gradient", "norm", metric, value, value - 0.1, value + 0.1, True)

    rows = [row("leak_auc_two_sided", "f1", 0.51), row("leak_auc_net", "f1", 0.59), row("leak_auc", "f1", 0.49)]
    rows += [row("leak_auc_two_sided", "f2", 0.8), row("leak_auc_net", "f2", 0.79), row("leak_auc_two_sided", "f3", 0.6)]
    assert [(one.layer, one.value) for one in leak_rows(rows)] == [("f1", 0.59), ("f2", 0.8), ("f3", 0.6)]
