"""What a run's folder holds, and that one module names its files."""

import json
import subprocess
import sys

import pytest
from omegaconf import OmegaConf

from vflbench.errors import UserError
from vflbench.results.folder import alone_in, look


def test_a_run_of_the_same_options_is_recognised(tmp_path):
    config = {"seed": 0, "log_every": 10}
    assert not look(tmp_path, config, {})
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    assert not look(tmp_path, config, {})
    (tmp_path / "metrics.csv").write_text("")
    assert not look(tmp_path, {"seed": 0, "log_every": 20, "overwrite": False}, {})
    (tmp_path / "summary.json").write_text("{}")
    assert look(tmp_path, config, {})


def test_a_run_of_other_options_is_refused_naming_the_first_few(tmp_path):
    (tmp_path / "metrics.csv").write_text("")
    (tmp_path / "config.yaml").write_text("{a: 1, b: 1, c: 1, d: 1, e: 1, f: 1}")
    with pytest.raises(UserError, match=r"a: 1 -> 2; b: 1 -> 2; c: 1 -> 2; d: 1 -> 2 and 2 more") as refused:
        look(tmp_path, dict.fromkeys("abcdef", 2), {})
    assert "overwrite=true" in str(refused.value)


def test_options_are_read_back_as_they_were_written(tmp_path):
    texts = ["1e-3", "1_000", "0x1f", "yes", "null", "~", "1:30", "2020-01-01", "", " a ", "a: b", "é", "'", "${x}"]
    config = {"texts": texts, "numbers": [0.1, 1e-5, 1e20, -0.0, 3], "other": [None, True, float("inf")], "map": {"1": {}}}
    (tmp_path / "metrics.csv").write_text("")
    (tmp_path / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create(config)))
    assert not look(tmp_path, config, {})


def origin(code="c1", tools="bb", data="dd"):
    plugins = [{"loud.py": "aa", "tools.py": tools}]
    return {"vflbench": "1", "code": code, "plugins": plugins, "data": {"dataset.path": data}}


def test_a_run_of_other_code_plug_ins_or_data_is_refused_naming_what_differs(tmp_path):
    config = {"seed": 0}
    (tmp_path / "metrics.csv").write_text("")
    (tmp_path / "config.yaml").write_text("seed: 0")
    (tmp_path / "manifest.json").write_text(json.dumps({"format": 1, "identity": origin()}))
    assert not look(tmp_path, config, origin())
    for other, words in (
        (origin(tools="cc"), r"differs in plug-ins \(tools.py\)"),
        (origin(code="c2"), "differs in vflbench's code"),
        (origin(data="ee"), r"differs in data \(dataset.path\)"),
    ):
        with pytest.raises(UserError, match=rf"hydra.run.dir=.*{words}.*overwrite=true"):
            look(tmp_path, config, other)
    with pytest.raises(UserError, match="another configuration"):
        look(tmp_path, {"seed": 1}, origin(tools="cc"))


def test_results_without_a_config_are_not_taken_for_ours(tmp_path):
    (tmp_path / "metrics.csv").write_text("somebody's")
    for content in (None, b"a: [", b"\xff\xfe\x00"):
        if content is not None:
            (tmp_path / "config.yaml").write_bytes(content)
        with pytest.raises(UserError, match="without a config.yaml that can be read"):
            look(tmp_path, {"seed": 0}, {})


def test_one_at_a_time_and_a_dead_process_holds_nothing(tmp_path):
    code = "import sys, time; from pathlib import Path; from vflbench.results.folder import alone_in\n"
    code += "with alone_in(Path(sys.argv[1])): print('in', flush=True); time.sleep(600)"
    other = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    with other.stdout:
        assert other.stdout.readline() == "in\n"
        with pytest.raises(UserError, match="another process is at work in this folder"), alone_in(tmp_path):
            pass
        other.kill()
        other.wait()
    with alone_in(tmp_path):
        (tmp_path / "metrics.csv").write_text("")
