"""The contract with Hydra and OmegaConf: what vflbench/cli/hydra_internals.py relies on, piece by piece."""

import inspect

import hydra
import omegaconf
import pytest
from hydra import initialize_config_dir
from hydra._internal.config_repository import ConfigRepository
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, RunMode

import vflbench.cli.resolvers  # noqa: F401
from vflbench.cli import hydra_internals
from vflbench.places import config_folder

CHANGED = f"hydra-core {hydra.__version__} or omegaconf {omegaconf.__version__} changed"
ADAPT = "; adapt vflbench/cli/hydra_internals.py"
OVERRIDES = ["hydra/launcher=basic", "seed=1", "name=b", "hydra.job.config.override_dirname.kv_sep=:"]


@pytest.fixture(scope="module")
def loader():
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        yield GlobalHydra.instance().config_loader()


@pytest.fixture(scope="module")
def config(loader):
    return loader.load_configuration("train", OVERRIDES, run_mode=RunMode.RUN)


def test_a_sweeper_takes_the_wrapped_launcher(loader, config):
    class Wrapper(Launcher):
        def __init__(self, inner):
            self.inner = inner

        def setup(self, **_):
            raise AssertionError("the inner launcher is set up already")

        def launch(self, job_overrides, initial_job_idx):
            raise NotImplementedError

    before = Plugins.instantiate_launcher
    parameters = list(inspect.signature(before).parameters)
    assert parameters == ["self", "hydra_context", "task_function", "config"], (
        f"{CHANGED} the parameters of Plugins.instantiate_launcher to {parameters}{ADAPT}"
    )
    context = HydraContext(config_loader=loader, callbacks=None)
    with hydra_internals.wrapped_launchers(lambda launcher, of, _: Wrapper((launcher, of)), {}):
        sweeper = Plugins.instance().instantiate_sweeper(hydra_context=context, task_function=print, config=config)
    launcher = getattr(sweeper, "launcher", None)
    assert isinstance(launcher, Wrapper), f"{CHANGED} how a sweeper gets its launcher: it has {launcher}{ADAPT}"
    assert type(launcher.inner[0]).__name__ == "BasicLauncher"
    assert launcher.inner[1] is context
    assert Plugins.instantiate_launcher is before


def test_the_value_of_a_job_is_read_without_raising_it(capsys):
    done, failed = JobReturn(status=JobStatus.COMPLETED), JobReturn(overrides=["x=1"], status=JobStatus.FAILED)
    done.return_value, failed.return_value = 3, KeyError("x")
    for returned, value in ((done, 3), (failed, failed._return_value)):
        assert hydra_internals.returned_value(returned) is value, f"{CHANGED} where JobReturn has its value{ADAPT}"
    assert isinstance(hydra_internals.returned_value(failed), KeyError)
    assert capsys.readouterr() == ("", "")


def test_the_name_of_overrides_is_hydras(config):
    task = OverridesParser.create().parse_overrides(["seed=1", "name=b"])
    assert hydra_internals.override_dirname(config, task) == config.hydra.job.override_dirname == "name:b,seed:1", (
        f"{CHANGED} hydra.job.override_dirname{ADAPT}"
    )


def test_a_config_is_the_current_one_for_a_while(loader, config):
    other = loader.load_configuration("train", ["seed=2"], run_mode=RunMode.RUN)
    assert not HydraConfig.initialized()
    with hydra_internals.current_config(config):
        with hydra_internals.current_config(other):
            assert HydraConfig.get().overrides.task == ["seed=2"], f"{CHANGED} HydraConfig.set_config{ADAPT}"
        assert HydraConfig.get().overrides.task == ["seed=1", "name=b"], f"{CHANGED} HydraConfig.instance().cfg{ADAPT}"
        assert config.name == "b"
        assert other.name.startswith("synthetic_none_norm+spectral")
    assert not HydraConfig.initialized(), f"{CHANGED} HydraConfig.initialized{ADAPT}"


def test_the_basic_launcher_has_no_workers(loader, config):
    context = HydraContext(config_loader=loader, callbacks=None)
    launcher = Plugins.instance().instantiate_launcher(hydra_context=context, task_function=print, config=config)
    assert hydra_internals.joblib_options(launcher) is None
    assert not hydra_internals.starts_all_at_once(launcher)


def test_joblibs_launcher_has_its_options_in_a_dict():
    core = pytest.importorskip("hydra_plugins.hydra_joblib_launcher.joblib_launcher")
    options = hydra_internals.joblib_options(core.JoblibLauncher(n_jobs=3))
    assert options is not None, f"hydra-joblib-launcher changed where it has n_jobs{ADAPT}"
    options["n_jobs"] = 2
    launch = inspect.getsource(pytest.importorskip("hydra_plugins.hydra_joblib_launcher._core").launch)
    assert "launcher.joblib" in launch, f"hydra-joblib-launcher changed where it reads n_jobs{ADAPT}"


def test_submitits_local_launcher_is_known_by_its_name():
    module = pytest.importorskip("hydra_plugins.hydra_submitit_launcher.submitit_launcher")
    launchers = [getattr(module, name, None) for name in ("LocalLauncher", "SlurmLauncher")]
    assert None not in launchers, f"hydra-submitit-launcher changed the names of its launchers{ADAPT}"
    local, slurm = (launcher.__new__(launcher) for launcher in launchers)
    assert (hydra_internals.starts_all_at_once(local), hydra_internals.starts_all_at_once(slurm)) == (True, False)


def test_submitits_launchers_submit_by_the_executor_that_can_be_replaced():
    module = pytest.importorskip("hydra_plugins.hydra_submitit_launcher.submitit_launcher")
    assert hydra_internals.is_submitits(module.SlurmLauncher.__new__(module.SlurmLauncher))
    launch = inspect.getsource(module.BaseSubmititLauncher.launch)
    for used in ("submitit.AutoExecutor(", "executor.map_array(self, *zip(*job_params))", "j.results()[0]"):
        assert used in launch, f"hydra-submitit-launcher changed how it submits{ADAPT}"
    import submitit

    before = submitit.AutoExecutor
    with hydra_internals.executor_of_submitit(dict):
        assert submitit.AutoExecutor is dict
    assert submitit.AutoExecutor is before


def test_the_guard_stands_where_hydra_reads_places_and_composes_configs(loader, tmp_path):
    seen = []
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "x.yaml").write_text("# @package _global_\nepochs: 5\n")
    rules = hydra_internals.Rules(
        words=lambda words: seen.append(("words", tuple(words))),
        file=lambda _, file: seen.append(("file", file.name)),
        is_ours=lambda file: not file.is_relative_to(tmp_path),
        shared=lambda _, config: seen.append(("shared", dict(config))),
        composed=lambda config: seen.append(("composed", config.epochs)),
    )
    words = [f"hydra.searchpath=[file://{tmp_path}]", "experiment=x"]
    before = ConfigRepository.load_config
    with hydra_internals.guarded_composition(rules):
        with hydra_internals.guarded_composition(rules):  # a second time changes nothing
            loader.load_configuration("train", words, run_mode=RunMode.RUN)
        assert ConfigRepository.load_config is not before
    assert ConfigRepository.load_config is before
    assert seen[0] == ("words", tuple(words)), f"{CHANGED} where overrides are parsed{ADAPT}"
    assert {("file", "train.yaml"), ("file", "x.yaml")} <= {one for one in seen if one[0] == "file"}, (
        f"{CHANGED} ConfigRepository.load_config{ADAPT}"
    )
    assert ("shared", {"epochs": 5}) in seen, f"{CHANGED} ConfigLoaderImpl._load_single_config{ADAPT}"
    assert [one for one in seen if one[0] == "composed"] == [("composed", 5)], f"{CHANGED} load_configuration{ADAPT}"


def test_flags_are_read_as_hydra_reads_them():
    flags = hydra_internals.flags_of(["--exp", "a", "--config-pa=b", "-cd", "c", "seed=1", "--nothing"])
    assert (flags.experimental_rerun, flags.config_path, flags.config_dir) == ("a", "b", "c"), f"{CHANGED} its flags{ADAPT}"


def test_submitits_jobs_are_kept_in_a_folder_of_a_new_name():
    module = pytest.importorskip("hydra_plugins.hydra_submitit_launcher.submitit_launcher")
    names = set()
    for _ in range(2):
        launcher = module.LocalLauncher(submitit_folder="outputs/.submitit/%j")
        hydra_internals.keep_jobs_apart(launcher)
        names.add(launcher.params["submitit_folder"])
    assert len(names) == 2, f"hydra-submitit-launcher changed where it has its options{ADAPT}"
    assert all(name.startswith("outputs/.submitit/") and name.endswith("/%j") for name in names)
