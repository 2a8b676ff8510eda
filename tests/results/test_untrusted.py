"""Files that others may have written are read as data, or refused in one line; files are written through no link."""

import io
import json
import math
import os
import re
import zipfile

import numpy as np
import pytest
from support.hostile_runs import BOMB, deep
from support.outputs_tree import write_run

from vflbench.errors import UserError
from vflbench.report.pictures import read_pictures
from vflbench.results.folder import MOST_BYTES, Unreadable, cleaned, leave_error, read_error, read_run_config, read_summary
from vflbench.results.recorder import Recorder
from vflbench.results.runs import entries, read_run
from vflbench.results.schema import FORMAT, MetricRow, Summary
from vflbench.results.table import load


def test_aliases_and_infinity_are_options_of_runs(tmp_path):
    (tmp_path / "config.yaml").write_text("a: &x [1, 2.5, .inf, null, true, yes]\nc: *x\n")
    assert read_run_config(tmp_path) == {key: [1, 2.5, math.inf, None, True, True] for key in "ac"}


FACTS = ("cut_layers", "layers", "threats", "skipped", "adversary")
BAD_FILES = {
    "a bomb": ("config.yaml", BOMB, "too many aliases"),
    "itself as a value": ("config.yaml", "a: &a {b: {c: *a}}", "Circular"),
    "itself as a key": ("config.yaml", "&a {*a : 1}", "unhashable key|recursive"),
    "mappings": ("config.yaml", "a: " + deep(9_000, "{a: ", "}"), "nested too deeply"),
    "merge": ("config.yaml", "a: &a {x: 1}\nb: &b {<<: [*a, *a]}\nc: {<<: &c [*b, *c]}\n", "merges mappings"),
    "base 60": ("config.yaml", "a: 1" + ":00" * 300_000, "at most 100,000 are read"),
    "a list": ("config.yaml", "[1]", "no options"),
    "a call": ("config.yaml", "a: !!python/object/apply:os.system [touch /tmp/called]", "constructor"),
    "a seed that is a list": ("config.yaml", "seed: [1, 2]\ndefense: {}", "no whole number"),
    "deep json": ("summary.json", deep(100_000), "recursion"),
    "5000 digits": ("summary.json", '{"test_auc": ' + "9" * 5000 + "}", "digits"),
    "a mapping for a list": ("summary.json", '{"leaks": {}}', "leaks is "),
    "utf-16": ("manifest.json", '{"kind": "audit"}'.encode("utf-16"), "another version"),
    "no mapping": ("manifest.json", "[1]", "valid dictionary"),
    "a newer version": ("manifest.json", f'{{"format": {FORMAT + 1}, "threats": "x"}}', "another version of vflbench made"),
    "no version": ("manifest.json", '{"threats": {}}', "another version of vflbench made"),
    **{f"numbers in {key}": ("manifest.json", f'{{"format": 1, "{key}": {{"x": 3}}}}', key) for key in FACTS},
}
"""What -> the file, its content, and why it isn't read."""


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_file_that_cannot_be_trusted_is_refused_in_one_line(tmp_path, case):
    name, content, reason = BAD_FILES[case]
    folder = write_run(tmp_path / "run")
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    odd = read_run(folder)
    assert (odd.kind, odd.path) == ("unreadable", folder)
    assert re.search(rf"^{name} can't be read: .*{reason}", odd.reason)
    assert odd.reason.isprintable()
    assert len(odd.reason) < 400


def test_a_file_of_more_bytes_than_the_limit_is_refused(tmp_path):
    (tmp_path / "summary.json").touch()
    os.truncate(tmp_path / "summary.json", MOST_BYTES + 1)
    with pytest.raises(Unreadable, match="at most 256,000,000 are read"):
        read_summary(tmp_path)


def test_texts_are_shown_in_one_printable_line():
    assert cleaned("a\nb\tc\x1b[31m\u202e\ud800é") == "a b c\\x1b[31m\\u202e\\ud800é"
    assert len(cleaned("x" * 300)) == 200
    assert "x ... x" in cleaned("x" * 300)


def test_error_txt_of_others_is_a_bounded_paragraph_and_a_link_is_none(tmp_path):
    (tmp_path / "error.txt").write_text("\x1b[31m" + "a" * 10**6 + "\n\nTraceback")
    assert 600 <= len(read_error(tmp_path)) < 650
    assert read_error(tmp_path).isprintable()
    (tmp_path / "error.txt").unlink()
    (tmp_path / "error.txt").symlink_to("/etc/passwd")
    with pytest.raises(Unreadable, match="is a link"):
        read_error(tmp_path)


def test_results_are_written_through_no_link(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    folder = write_run(tmp_path / "run")
    names = ("summary.json", "manifest.json", "config.yaml", "error.txt", "metrics.csv", "reconstructions.npz")
    for name in (*(f".{name}.tmp" for name in names), *names[:1], "error.txt"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(victim)
    leave_error(folder, "it failed", ValueError())
    recorder = Recorder(folder, "seed: 0\n", {}, quiet=True)
    recorder.begin()
    recorder.write([MetricRow(0, "test", metric="auc", value=0.5)])
    recorder.keep({"a": np.zeros(3)})
    recorder.finish(Summary(epochs=1))
    assert victim.read_text() == "mine"
    assert json.loads((folder / "summary.json").read_text()) == {"epochs": 1}
    for name, append in {"train.log": lambda: recorder.log(""), "metrics.csv": lambda: recorder.write([])}.items():
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(victim)
        with pytest.raises((UserError, OSError, ValueError)):
            append()
    assert victim.read_text() == "mine"


def zipped(content):
    """An archive of rebuilt data that is this."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x/a/f2/truth.npy", content)
    return file.getvalue()


def test_arrays_are_numbers_and_nothing_is_unpickled(tmp_path):
    path = tmp_path / "reconstructions.npz"
    good = np.arange(6.0).reshape(2, 3, order="F")
    np.savez_compressed(path, a=good, b=np.array([True]))
    assert np.array_equal(read_pictures(path)["a"], good)
    objects = io.BytesIO()
    np.savez(objects, a=np.array([{}], object))
    others = (zipped(bytes(1000))[:200], zipped(b"%!PS-Adobe-3.0"), zipped(bytes(300_000_000)), objects.getvalue())
    for content in (b"", b"GIF89a" + bytes(100), *others):
        path.write_bytes(content)
        with pytest.raises(Unreadable):
            read_pictures(path)


def test_a_run_with_numbers_that_no_table_holds_is_left_out(tmp_path):
    write_run(tmp_path / "a")
    summary = write_run(tmp_path / "endless", seed=1) / "summary.json"
    summary.write_text(summary.read_text().replace('"epochs": 2', f'"epochs": {10**19}'))
    with pytest.warns(UserWarning, match="is left out"):
        assert set(load(tmp_path)["run"].to_pylist()) == {"a"}


def test_folders_that_are_too_deep_are_left_out(tmp_path):
    """No chain of a thousand folders ends a report."""
    write_run(tmp_path / "run")
    write_run(tmp_path.joinpath(*"d" * 60, "deep"), seed=1)
    assert [entry.folder.name for entry in entries([tmp_path])] == ["run"]
