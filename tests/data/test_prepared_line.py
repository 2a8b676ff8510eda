"""What was said of a prepared table is said again only while nothing has changed."""

import json
import os

import pytest

from vflbench.data.prepared_line import keep, recall, sources_of

LINE = "already prepared: 3 rows"


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Options of a file whose table's line is kept, and the table's folder."""
    monkeypatch.setenv("VFLBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_1.csv").write_text("y\n1\n")
    table = tmp_path / "table"
    table.mkdir()
    (table / "ids").write_bytes(b"12")
    options = {"_target_": "vflbench.data.csv.Csv", "path": "a_*.csv", "label": "y", "rows": None}
    keep(options, "code", sources_of(options), LINE, table)
    return options, table


def test_a_line_is_said_again(kept):
    options, _ = kept
    assert recall(options, "code") == LINE
    assert recall(options, "other code") is None
    assert recall({**options, "rows": 3}, "code") is None


def test_a_changed_file_another_match_and_a_damaged_table_are_looked_at(kept, tmp_path):
    options, table = kept
    file, ids = tmp_path / "a_1.csv", table / "ids"
    state = file.stat()
    file.write_text("y\n0\n")  # the same size, and then the same time
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert recall(options, "code") is None
    keep(options, "code", sources_of(options), LINE, table)
    assert recall(options, "code") == LINE
    (tmp_path / "a_2.csv").write_text("y\n1\n")
    assert recall(options, "code") is None
    (tmp_path / "a_2.csv").unlink()
    assert recall(options, "code") == LINE
    ids.write_bytes(b"13")
    assert recall(options, "code") is None
    ids.unlink()
    assert recall(options, "code") is None


def test_nothing_is_kept_of_a_file_that_changed_meanwhile_or_where_other_options_name_files(kept, tmp_path):
    options, table = kept
    other = {**options, "rows": 2}
    before = sources_of(other)
    (tmp_path / "a_1.csv").write_text("y\n0\n1\n")
    keep(other, "code", before, LINE, table)
    assert recall(other, "code") is None
    for more in ({"parties": {"a": ["x"]}}, {"label": "a_1.csv"}, {"names": ["x", "table"]}):
        assert sources_of({**options, **more}) == []


def test_no_file_of_others_is_believed(kept, tmp_path):
    options, _ = kept
    (line,) = (tmp_path / "cache" / "lines").iterdir()
    content = json.loads(line.read_text())
    for text in ("", "[]", "{}", json.dumps({**content, "folder": 3}), json.dumps({**content, "table": []})):
        line.write_text(text)
        assert recall(options, "code") is None, text
    line.write_text(json.dumps(content))
    moved = line.with_name("elsewhere")
    line.rename(moved)
    line.symlink_to(moved)
    assert recall(options, "code") is None
