import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

DEFAULT_DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"


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


@pytest.fixture(scope="session", autouse=True)
def cache_of_its_own(tmp_path_factory):
    """Tests neither find what users prepared nor leave anything there; processes that they start inherit it."""
    before = os.environ.get("VFLBENCH_CACHE")
    os.environ["VFLBENCH_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    os.environ.pop("VFLBENCH_CACHE")
    if before is not None:
        os.environ["VFLBENCH_CACHE"] = before
