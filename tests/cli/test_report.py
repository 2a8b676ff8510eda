"""`vflbench report` from outside: what it prints, and when it refuses."""

import re

import pytest
from support.outputs_tree import sweep, write_run

from vflbench.cli.report import report
from vflbench.errors import UserError


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_it_says_how_many_runs_it_took_and_what_it_left_out(here, capsys):
    sweep(here / "outputs", seeds=1)
    write_run(here / "outputs" / "broken", seed=7, failed="it broke")
    write_run(here / "outputs" / "stopped", seed=8).joinpath("summary.json").unlink()
    (write_run(here / "outputs" / "odd", seed=9) / "summary.json").write_text('{"epochs": "x"}')
    (here / "outputs" / "none0").rename(here / "outputs" / "a")
    write_run(here / "outputs" / "again", seed=0, norm=0.9)
    report(["outputs", "--figures", "none"])
    first, *named, tables, last = capsys.readouterr().out.splitlines()
    assert tables == "each table as CSV, Markdown and LaTeX: outputs/report/tables"
    assert first == "3 runs taken; left out: 1 failed, 1 unfinished, 1 unreadable, 1 repeated"
    assert named[:2] == ["  outputs/broken (failed)", "  outputs/stopped (unfinished)"]
    assert named[2:] == ["  outputs/odd (unreadable)", "  and 1 more"]
    assert last == "outputs/report/report.html"


@pytest.mark.slow
def test_a_recording_is_no_run_and_the_command_that_reads_it_is_named(here, capsys):
    (here / "w" / "recorded").mkdir(parents=True)
    manifest = '{"format": "vflbench-messages/1", "classes": 2, "parties": {}}'
    (here / "w" / "recorded" / "manifest.json").write_text(manifest)
    for folder in ("w", "w/recorded"):
        with pytest.raises(UserError, match="vflbench audit w/recorded$"):
            report([folder])
    assert [path.name for path in here.rglob("*")] == ["w", "recorded", "manifest.json"]  # nothing is written
    write_run(here / "w" / "run")
    report(["w", "--figures", "none"])
    assert capsys.readouterr().out.startswith("1 run taken; left out: 1 recording\n  w/recorded (recording)\n")
    assert "recorded messages, which vflbench audit reads" in (here / "w" / "report" / "report.html").read_text()


def test_runs_none_of_which_finished_are_an_error_after_the_page_that_says_why(here, capsys):
    write_run(here / "outputs" / "broken", failed="it broke")
    with pytest.raises(UserError, match="no run in it has finished; the page says why"):
        report(["outputs"])
    assert capsys.readouterr().out.splitlines()[0] == "0 runs taken; left out: 1 failed"
    assert "it broke" in (here / "outputs" / "report" / "report.html").read_text()


@pytest.mark.parametrize("words", [["--by", "sumkl"], ["--export", "r.jsonl"], []])
def test_an_empty_folder_is_an_error_and_leaves_nothing(here, words):
    (here / "outputs").mkdir()
    with pytest.raises(UserError, match=r"there is no (finished )?run in or under it"):
        report(["outputs", *words])
    assert [path.name for path in here.rglob("*")] == ["outputs"]


@pytest.mark.slow
def test_the_table_along_a_key_is_printed_and_on_the_page(here, capsys):
    sweep(here / "outputs", seeds=1)
    report(["outputs", "--by", "sumkl", "--figures", "none"])
    printed = capsys.readouterr().out
    assert re.search(r"^ *0\.04 +marvell, sumkl 0\.04 +1 +0\.710 +0\.530", printed, re.MULTILINE)
    assert all(len(line) <= 80 for line in printed.splitlines())
    assert (here / "outputs/report/tables/runs_criteo_by.csv").read_text().startswith("defense.marvell.sumkl,setting,runs")
    assert "By sumkl" in (here / "outputs/report/report.html").read_text()


def test_an_export_makes_no_page(here, capsys):
    sweep(here / "outputs", seeds=1)
    report(["outputs", "--export", "results.jsonl"])
    count = len((here / "results.jsonl").read_text().splitlines())
    assert capsys.readouterr().out == f"3 runs taken; {count} measurements\nresults.jsonl\n"
    assert not (here / "outputs" / "report").exists()


@pytest.mark.slow
@pytest.mark.parametrize("shown", [True, False])
def test_open_says_where_there_is_no_browser(here, capsys, monkeypatch, shown):
    write_run(here / "outputs" / "run")
    monkeypatch.setattr("webbrowser.open", lambda _: shown)
    report(["outputs", "--figures", "none", "--open"])
    assert ("there is no browser here" in capsys.readouterr().err) is not shown
