"""`hydra/launcher=submitit_slurm` and `submitit_local`: jobs that are killed, and sweeps that are stopped."""

import re
import signal

import pytest
import slurm_double
from hydra.core.utils import JobReturn
from sweep_processes import at_work, begin, ended, kill, stamps, training, wait_until

from vflbench.cli.hydra_internals import returned_value
from vflbench.cli.submitit_jobs import gather
from vflbench.cli.workers import LostRunError, distinct_words

SLURM = ("hydra/launcher=submitit_slurm", "hydra.launcher.cpus_per_task=1")


class Submitted:
    """A job of submitit's that ends after some looks, with a result or without."""

    job_id, state = "7_1", "OUT_OF_MEMORY"

    def __init__(self, result=None, looks=1):
        self.value, self.looks, self.cancelled = result, looks, False
        self.paths = type("Paths", (), {"stderr": "log"})

    def done(self):
        self.looks -= 1
        return self.looks < 0

    def results(self):
        from submitit.core.utils import UncompletedJobError

        if isinstance(self.value, BaseException):
            raise self.value
        if self.value is None:
            raise UncompletedJobError("no output")
        return [self.value]

    def cancel(self, check):
        self.cancelled = True


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    pytest.importorskip("submitit")
    monkeypatch.setattr("vflbench.cli.submitit_jobs._LOOK_SECONDS", 0)


def test_a_lost_job_is_submitted_once_more_while_the_others_go_on(capsys):
    right = [JobReturn(overrides=[str(number)]) for number in range(3)]
    jobs, again = [Submitted(right[0], looks=5), Submitted(), Submitted(right[2])], []
    returned = gather(
        jobs, [["a=1", "seed=0"], ["a=1", "seed=1"], ["a=1", "seed=2"]], lambda n: again.append(n) or Submitted(right[n])
    )
    assert returned == right
    assert again == [1]
    said = capsys.readouterr().out
    assert said == "seed=1: job 7_1 ended without a result (state: OUT_OF_MEMORY; its log is log); begun again, 1 of 1\n"


def test_a_job_that_is_lost_twice_has_failed_and_the_others_have_not():
    right = JobReturn()
    lost, other = gather([Submitted(), Submitted(right, looks=9)], [["seed=0"], ["seed=1"]], lambda _: Submitted())
    assert other is right
    assert isinstance(returned_value(lost), LostRunError)
    assert "OUT_OF_MEMORY" in str(returned_value(lost))


def test_an_error_in_a_job_is_its_result_and_no_reason_to_submit_it_again():
    from submitit.core.utils import FailedJobError

    trace = (
        "Job (task=0) failed during processing with trace:\n---\nTraceback\n  x\nModuleNotFoundError: no mypkg\n---\nlogs"
    )
    (returned,) = gather([Submitted(FailedJobError(trace))], [["seed=0"]], pytest.fail)
    assert str(returned_value(returned)) == "ModuleNotFoundError: no mypkg"


def test_when_the_sweep_is_stopped_all_jobs_that_have_not_ended_are_cancelled():
    jobs = [Submitted(JobReturn()), Submitted(KeyboardInterrupt(), looks=2), Submitted(JobReturn(), looks=99)]
    with pytest.raises(KeyboardInterrupt):
        gather(jobs, [["seed=0"], ["seed=1"], ["seed=2"]], pytest.fail)
    assert [job.cancelled for job in jobs] == [False, False, True]


def test_runs_are_named_by_what_not_all_have():
    assert distinct_words([["a=1", "seed=0"], ["a=1", "seed=1"]]) == ["seed=0", "seed=1"]
    assert distinct_words([["a=1", "seed=0"]]) == ["a=1 seed=0"]


@pytest.mark.slow
def test_a_sweep_on_slurm_asks_for_what_the_user_says_and_outlives_a_killed_job(tmp_path):
    environment = slurm_double.install(tmp_path)
    asked = ("partition=long", "mem_gb=2", "timeout_min=90", "array_parallelism=3", "account=me", "gpus_per_node=1")
    words = (*SLURM, *(f"hydra.launcher.{word}" for word in asked), "epochs=4", "seed=0,1,2,3")
    sweep = begin(tmp_path, *words, **environment)
    wait_until(lambda: len(stamps(tmp_path)) >= 1 and training(tmp_path), sweep)
    before, (number, name) = stamps(tmp_path), training(tmp_path).popitem()
    kill(number)
    said = ended(sweep)
    assert sweep.returncode == 0, said
    script = (tmp_path / "jobs" / "1.sh").read_text().splitlines()
    wanted = ("array=0-3%3", "partition=long", "mem=2GB", "time=90", "account=me", "gpus-per-node=1", "cpus-per-task=1")
    assert {f"#SBATCH --{word}" for word in wanted} <= set(script)
    lost = re.findall(r"seed=(\d): job 1_\d ended without a result \(state: FAILED; .*\); begun again, 1 of 1", said)
    assert lost == [re.search(r"seed(\d)_", name)[1]], said
    assert not (tmp_path / "jobs" / "3.sh").exists()  # the sweep, and that one run again
    assert len(stamps(tmp_path)) == 4
    assert {name: stamps(tmp_path)[name] for name in before} == before
    again = begin(tmp_path, *words, **environment)
    assert ended(again).count("finished before, so not computed again") == 4
    assert not (tmp_path / "jobs" / "3.sh").exists()


@pytest.mark.slow
def test_a_sweep_on_slurm_that_is_stopped_leaves_no_job_and_goes_on_later(tmp_path):
    environment = slurm_double.install(tmp_path)
    words = (*SLURM, "epochs=20", "seed=0,1,2")
    sweep = begin(tmp_path, *words, **environment)
    wait_until(lambda: training(tmp_path), sweep)
    sweep.send_signal(signal.SIGTERM)
    said = ended(sweep)
    assert sweep.returncode == 128 + signal.SIGTERM, said
    assert "sweep stopped: of 3 runs" in said
    states = [file.read_text().split()[0] for file in (tmp_path / "jobs").glob("*.state")]
    assert not {"PENDING", "RUNNING"} & set(states), states
    again = begin(tmp_path, *words, **environment)  # it waits for runs that are still saving what they have
    said = ended(again)
    assert again.returncode == 0, said
    assert len(stamps(tmp_path)) == 3
    assert at_work(tmp_path) == {}


@pytest.mark.slow
def test_a_local_job_that_is_killed_is_begun_again(tmp_path):
    words = ("hydra/launcher=submitit_local", "epochs=4", "seed=0,1")
    sweep = begin(tmp_path, *words)
    wait_until(lambda: training(tmp_path), sweep)
    kill(next(iter(training(tmp_path))))
    said = ended(sweep)
    assert sweep.returncode == 0, said
    assert said.count("; begun again, 1 of 1") == 1
    assert len(stamps(tmp_path)) == 2
