import json
import math
import time

from vflbench.cli.sweep import Job, JobOutcome, Status, Sweep, outcome_in
from vflbench.results.folder import leave_error


def finish(folder, **summary):
    folder.mkdir(exist_ok=True)
    (folder / "summary.json").write_text(json.dumps({"test_auc": 0.75, "failed": None, **summary}))


def test_a_folder_tells_what_became_of_its_run(tmp_path):
    assert outcome_in(tmp_path) is None
    finish(tmp_path)
    assert outcome_in(tmp_path) == JobOutcome(Status.DONE, 0.75, words="test AUC 0.750")
    finish(tmp_path, failed="the promise is broken")
    assert outcome_in(tmp_path) == JobOutcome(Status.FAILED, 0.75, "the promise is broken", words="test AUC 0.750")
    finish(tmp_path, test_auc=None)
    assert math.isnan(outcome_in(tmp_path).test_auc)
    leave_error(tmp_path, "no such\nfile", ValueError("x"))
    assert outcome_in(tmp_path).reason == "no such file"


def test_error_txt_holds_the_message_and_then_the_traceback(tmp_path):
    try:
        raise ZeroDivisionError("by nought")
    except ZeroDivisionError as error:
        leave_error(tmp_path / "run", "divide by something", error)
    message, _, traceback = (tmp_path / "run" / "error.txt").read_text().partition("\n\n")
    assert message == "divide by something"
    assert traceback.startswith("Traceback")
    assert traceback.endswith("ZeroDivisionError: by nought\n")


def test_what_ends_while_it_is_watched_is_told_of_once_and_what_was_there_before_is_not(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)  # paths below the current folder are printed relative to it
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    finish(tmp_path / "old")
    jobs = [Job(("seed=0", "x=1"), tmp_path / "old", 0), Job(("seed=1", "x=1"), tmp_path / "new", 1)]
    sweep = Sweep()
    sweep.add(jobs)
    with sweep.watched():
        finish(tmp_path / "new")
        deadline = time.monotonic() + 30
        while jobs[1].outcome is None and time.monotonic() < deadline:
            time.sleep(0.01)
        sweep.report(jobs[1], JobOutcome(Status.SKIPPED, 0.75))  # its process knows that it was another's work
    sweep.close()
    assert [job.outcome and job.outcome.status for job in jobs] == [None, Status.SKIPPED]
    assert capsys.readouterr().out == "done (1/2): test AUC 0.750; seed=1\n  new\n"


def test_the_table_counts_and_names_each_failure_by_what_is_its_own(tmp_path, capsys):
    sweep = Sweep()
    jobs = [Job((f"seed={i}", "epochs=1"), tmp_path / str(i), i) for i in range(4)]
    sweep.add(jobs)
    outcomes = (JobOutcome(Status.DONE, 0.5), JobOutcome(Status.SKIPPED), JobOutcome(Status.FAILED, reason="no"))
    for job, outcome in zip(jobs[:3], outcomes, strict=True):
        sweep.report(job, outcome)
    sweep.close()
    words = [line.split() for line in sweep.table().splitlines()]
    for counted in (["done", "1"], ["skipped", "1"], ["failed", "1"], ["to", "do", "1"]):
        assert any(line[: len(counted)] == counted for line in words), counted
    assert sweep.failures() == f"\nfailed: seed=2\n  no\n  {tmp_path / '2'}"
    assert "of 4 runs 2 are finished, 1 failed" in sweep.stop_message()
    assert capsys.readouterr().err == "failed: seed=2: no\n"


def test_a_reason_that_runs_share_is_printed_once_while_they_run_and_once_at_the_end(tmp_path, capsys):
    sweep = Sweep()
    jobs = [Job((f"seed={i}", "epochs=1"), tmp_path / str(i), i) for i in range(14)]
    sweep.add(jobs)
    for job in jobs:
        sweep.report(job, JobOutcome(Status.FAILED, reason="other" if job.number == 13 else "no"))
    sweep.close()
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.splitlines()
    assert lines[:2] == ["failed: seed=0: no", "failed: seed=1: for the same reason as seed=0"]
    assert lines[-1] == "failed: seed=13: other"
    assert "no" not in sweep.table()
    blank, title, reason, first, *others = sweep.failures().splitlines()
    assert (blank, title, reason, first) == ("", "failed: 13 runs", "  no", f"  seed=0: {tmp_path / '0'}")
    assert others[9:] == ["  and 3 more", "", "failed: seed=13", "  other", f"  {tmp_path / '13'}"]
