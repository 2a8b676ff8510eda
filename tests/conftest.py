"""What every test stands on: one thread a process, a cache of its own, and the real data where it is there."""

import os

# Read when torch, OpenMP and numba are loaded; processes that tests start inherit it.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"

import atexit
import gc
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A shell that starts the tests in the background has them, and the processes that they start, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

DEFAULT_DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
MACHINES_DIFFER = ("no CUDA device", "no network namespaces here", "on this processor")
"""Reasons to skip a test that no installation mends."""
LEFT_OUT = ("ml_dtypes",)  # packages that the extra `test` leaves out: large, and for few tests

assert "torch" not in sys.modules, "torch was loaded before tests/conftest.py could pin it to one thread"

# Tests neither find what users prepared nor leave anything there; processes that they start inherit it.
os.environ["VFLBENCH_CACHE"] = tempfile.mkdtemp(prefix="vflbench-test-cache-")
atexit.register(shutil.rmtree, os.environ["VFLBENCH_CACHE"], ignore_errors=True)

# A deadline is an assertion on time, and so is the check that examples are generated quickly.
settings.register_profile("vflbench", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", settings.get_profile("vflbench"), max_examples=1300)
settings.load_profile("vflbench")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected stays: to look for garbage in it again and again takes a sixth of the time of collection."""
    gc.disable()
    done = yield
    gc.freeze()
    gc.enable()
    if warm := sys.modules.get("support.warm_command"):
        warm.begin()
    return done


@pytest.fixture
def rng():
    import torch  # late: the process that hands tests out to others needs none

    return torch.Generator().manual_seed(7)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The real data sets. Where they are absent the test is skipped."""
    folder = Path(os.environ.get("VFLBENCH_DATA", DEFAULT_DATA))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; set VFLBENCH_DATA")
    return folder


@pytest.fixture(autouse=True)
def denormal_numbers() -> None:
    """A run that trained in this process has switched them off, which would change what later tests compute."""
    import torch

    torch.set_flush_denormal(False)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """With VFLBENCH_REQUIRE_DATA=1 the session fails where a test was skipped for want of data or of a package."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")  # none in a worker
    if reporter is None or os.environ.get("VFLBENCH_REQUIRE_DATA") != "1":
        return
    skipped = {str(report.longrepr) for report in reporter.stats.get("skipped", [])}
    for reason in sorted(reason for reason in skipped if not any(known in reason for known in MACHINES_DIFFER + LEFT_OUT)):
        reporter.write_line(f"\nVFLBENCH_REQUIRE_DATA=1: skipped: {reason}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="module", autouse=True)
def probe_with_few_candidates(request: pytest.FixtureRequest) -> Iterator[None]:
    """The many small runs of tests fit a probe with few candidates; modules that are about the probe fit the whole one."""
    from support.warm_command import FEW_CANDIDATES  # late: a collection that imports it has a process for commands

    with pytest.MonkeyPatch.context() as patch:
        if request.module.__name__.split(".")[-1] not in ("test_probe", "test_references", "test_on_clicks"):
            for name, value in FEW_CANDIDATES.items():
                patch.setattr(f"vflbench.metrics.probe.{name}", value)
        yield


@pytest.fixture(scope="session")
def chromium():
    """The browser that pages are opened in: one a process, as no second one can be started beside it."""
    from support.browser_pages import launched  # late, as above

    with launched() as browser:
        yield browser
