import atexit
import os

if "PYTEST_XDIST_WORKER" in os.environ:  # a process for each core; read when torch is imported
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import shutil
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import settings

DEFAULT_DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"


# Tests neither find what users prepared nor leave anything there; processes that they start inherit it.
os.environ["VFLBENCH_CACHE"] = tempfile.mkdtemp(prefix="vflbench-test-cache-")
atexit.register(shutil.rmtree, os.environ["VFLBENCH_CACHE"], ignore_errors=True)

settings.register_profile("vflbench", deadline=None)  # a deadline would be an assertion on time
settings.load_profile("vflbench")


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator().manual_seed(7)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The real data sets. Where they are absent the test is skipped, or fails if VFLBENCH_REQUIRE_DATA=1 asks for them."""
    folder = Path(os.environ.get("VFLBENCH_DATA", DEFAULT_DATA))
    if not folder.is_dir():
        message = f"no real data at {folder}; set VFLBENCH_DATA"
        if os.environ.get("VFLBENCH_REQUIRE_DATA") == "1":
            pytest.fail(message)
        pytest.skip(message)
    return folder


@pytest.fixture(autouse=True)
def denormal_numbers() -> None:
    """A run that trained in this process has switched them off, which would change what later tests compute."""
    torch.set_flush_denormal(False)
