"""The launcher around another one, with one that runs nothing."""

import threading
from contextlib import contextmanager

import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.utils import JobReturn, JobStatus
from hydra.types import HydraContext, RunMode

import vflbench.cli.resolvers  # noqa: F401
from vflbench.cli.launch import SurvivingLauncher
from vflbench.cli.sweep import JobOutcome, Status, Sweep
from vflbench.errors import UserError
from vflbench.places import config_folder
from vflbench.results.folder import alone_in, error_in


class Scripted:
    """Returns the answers for a seed one after the other; a ConnectionError among them ends the launch."""

    def __init__(self, answers):
        self.answers, self.launched = answers, []

    def launch(self, job_overrides, initial_job_idx):
        self.launched.append((initial_job_idx, [words[0] for words in job_overrides]))
        returned = []
        for words in job_overrides:
            answer = self.answers[words[0]].pop(0)
            if isinstance(answer, ConnectionError):
                raise answer
            failed = isinstance(answer, Exception)
            returned.append(JobReturn(status=JobStatus.FAILED if failed else JobStatus.COMPLETED, _return_value=answer))
        return returned


@pytest.fixture(scope="module")
def loader():
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        yield GlobalHydra.instance().config_loader()


@pytest.fixture
def launcher(loader, tmp_path):
    @contextmanager
    def around(answers, *overrides):
        words = [f"hydra.sweep.dir={tmp_path}", *overrides]
        config = loader.load_configuration("train", words, run_mode=RunMode.MULTIRUN)
        inner, sweep = Scripted(answers), Sweep()
        yield inner, sweep, SurvivingLauncher(inner, HydraContext(loader, None), config, sweep)
        sweep.close()

    return around


def done(auc=0.5):
    return JobOutcome(Status.DONE, auc)


@pytest.mark.slow
def test_failures_of_runs_are_noted_and_no_sweeper_sees_an_exception(launcher, tmp_path):
    answers = {"seed=0": [JobOutcome(Status.FAILED, reason="no")], "seed=1": [done(0.75)], "seed=2": [KeyError("x")]}
    with launcher(answers) as (_, sweep, outer):
        returned = outer.launch([["seed=0"], ["seed=1"], ["seed=2"]], 0)
        assert [str(one.return_value) for one in returned] == ["nan", "0.75", "nan"]
        assert [job.outcome.reason for job in sweep.jobs] == ["no", "", "KeyError: 'x'"]
        assert [job.folder.parent for job in sweep.jobs] == [tmp_path] * 3


SHARED = {
    "a missing path": (["dataset=criteo"], "dataset.path: it must be given"),
    "an absent file": (
        ["dataset=csv", "dataset.path=nothere.csv", "dataset.label=y"],
        "nothere.csv: there is no such file",
    ),
    "an absent file of a party": (
        ["dataset=csv", "dataset.party_files={a: nothere.csv, label: [no.csv]}", "dataset.label=y", "dataset.id=k"],
        "dataset.party_files.a=nothere.csv: there is no such file",
    ),
    "an option out of range": (["batch_size=-1"], "batch_size=-1: it must be"),
}


@pytest.mark.parametrize(("words", "problem"), SHARED.values(), ids=SHARED)
def test_a_mistake_that_all_runs_share_ends_the_sweep_before_the_first(words, problem, launcher, tmp_path, capsys):
    (tmp_path / "multirun.yaml").touch()
    with launcher({}) as (inner, sweep, outer), pytest.raises(UserError, match=problem):
        outer.launch([["seed=0", *words], ["seed=1", *words]], 0)
    assert (inner.launched, sweep.jobs, tmp_path.exists()) == ([], [], False)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("values", [("-1", "0"), ("-1", "64")])
def test_where_mistakes_differ_or_a_run_has_none_all_are_launched(values, launcher):
    words = [f"batch_size={value}" for value in values]
    with launcher({word: [done()] for word in words}) as (inner, _, outer):
        outer.launch([[word] for word in words], 0)
    assert inner.launched == [(0, words)]


def test_files_of_parties_on_other_hosts_are_not_looked_for_here(launcher):
    words = ["dataset=csv", "dataset.party_files={a: /far/a.csv, label: /far/b.csv}", "dataset.label=y", "dataset.id=k"]
    words += ["engine=nvflare", "engine.mode=provisioned"]
    with launcher({"seed=0": [done()]}) as (inner, _, outer):
        outer.launch([["seed=0", *words]], 0)
    assert inner.launched


def test_finished_runs_are_shown_though_their_file_has_gone(launcher, tmp_path):
    words = ["dataset=csv", "dataset.path=gone.csv", "dataset.label=y"]
    (tmp_path / "seed_0").mkdir()
    (tmp_path / "seed_0" / "summary.json").write_text("{}")
    with launcher({"seed=0": [done()], "seed=1": [done()]}, "hydra.sweep.subdir=seed_${seed}") as (inner, _, outer):
        outer.launch([["seed=0", *words], ["seed=1", *words]], 0)
    assert inner.launched


def test_a_launcher_that_breaks_down_is_called_again_and_what_brings_it_down_twice_has_failed(launcher):
    answers = {"seed=0": [done()], "seed=1": [ConnectionError("killed"), ConnectionError("killed")]}
    with launcher(answers) as (inner, sweep, outer):
        real = inner.launch

        def launch(job_overrides, first):  # as joblib: what was done before the breakdown is in its folder
            if len(inner.launched) == 0:
                sweep.report(sweep.jobs[0], done())
            return real([words for words in job_overrides if words != ["seed=0"]], first)

        inner.launch = launch
        outer.launch([["seed=0"], ["seed=1"]], 0)
        assert [job.outcome.status for job in sweep.jobs] == [Status.DONE, Status.FAILED]
        assert len(inner.launched) == 2
        assert "killed" in error_in(sweep.jobs[1].folder)


def test_a_run_that_another_process_is_at_work_on_is_waited_for_and_then_tried_again(launcher, capsys):
    answers = {"seed=0": [JobOutcome(Status.BUSY), JobOutcome(Status.SKIPPED, 0.5)], "seed=1": [done()]}
    with launcher(answers) as (inner, sweep, outer):
        real, released = inner.launch, threading.Event()

        def hold(folder):
            folder.mkdir()
            with alone_in(folder):
                held.set()
                released.wait(30)

        def launch(job_overrides, first):
            if inner.launched:
                assert released.is_set()
            else:
                threading.Thread(target=hold, args=(sweep.jobs[0].folder,)).start()
                held.wait(30)
                threading.Timer(0.3, released.set).start()
            return real(job_overrides, first)

        held, inner.launch = threading.Event(), launch
        outer.launch([["seed=0"], ["seed=1"]], 0)
        assert inner.launched == [(0, ["seed=0", "seed=1"]), (0, ["seed=0"])]
        assert [job.outcome.status for job in sweep.jobs] == [Status.SKIPPED, Status.DONE]
        assert "waiting for another process" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(("subdir", "numbered"), [("${name}", False), ("x${hydra.job.num}", True)])
def test_numbered_folders_keep_their_numbers_when_a_run_is_tried_again(launcher, subdir, numbered):
    answers = {f"seed={i}": [done()] for i in range(3)}
    answers["seed=0"].insert(0, JobOutcome(Status.BUSY))
    answers["seed=2"].insert(0, JobOutcome(Status.BUSY))
    with launcher(answers, f"hydra.sweep.subdir={subdir}") as (inner, _, outer):
        outer.launch([["seed=0"], ["seed=1"], ["seed=2"]], 4)
        again = [(4, ["seed=0"]), (6, ["seed=2"])] if numbered else [(4, ["seed=0", "seed=2"])]
        assert inner.launched == [(4, ["seed=0", "seed=1", "seed=2"]), *again]
