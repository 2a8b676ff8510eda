import json
import subprocess
import sys

import pytest
from omegaconf import OmegaConf

from vflbench.errors import UserError
from vflbench.results.folder import Earlier, alone_in, look


def test_a_run_of_the_same_options_is_recognised_as_far_as_it_came(tmp_path):
    config = {"seed": 0, "log_every": 10}
    assert look(tmp_path, config) is Earlier.NOTHING
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    assert look(tmp_path, config) is Earlier.NOTHING
    (tmp_path / "metrics.csv").write_text("")
    assert look(tmp_path, {"seed": 0, "log_every": 20, "overwrite": False}) is Earlier.BEGUN
    (tmp_path / "summary.json").write_text("{}")
    assert look(tmp_path, config) is Earlier.FINISHED


def test_a_run_of_other_options_is_refused_naming_the_first_few(tmp_path):
    (tmp_path / "metrics.csv").write_text("")
    (tmp_path / "config.yaml").write_text("{a: 1, b: 1, c: 1, d: 1, e: 1, f: 1}")
    with pytest.raises(UserError, match=r"a: 1 -> 2; b: 1 -> 2; c: 1 -> 2; d: 1 -> 2 and 2 more") as refused:
        look(tmp_path, dict.fromkeys("abcdef", 2))
    assert "overwrite=true" in str(refused.value)


def test_options_are_read_back_as_they_were_written(tmp_path):
    texts = ["1e-3", "1_000", "0x1f", "yes", "null", "~", "1:30", "2020-01-01", "", " a ", "a: b", "é", "'", "${x}"]
    config = {"texts": texts, "numbers": [0.1, 1e-5, 1e20, -0.0, 3], "other": [None, True, float("inf")], "map": {"1": {}}}
    (tmp_path / "metrics.csv").write_text("")
    (tmp_path / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create(config)))
    assert look(tmp_path, config) is Earlier.BEGUN


def test_a_run_of_an_edited_plug_in_is_refused_naming_it(tmp_path):
    config, plugins = {"seed": 0}, {"loud": "aa", "tools": "bb"}
    (tmp_path / "metrics.csv").write_text("")
    (tmp_path / "config.yaml").write_text("seed: 0")
    with pytest.raises(UserError, match="it has no record of the plug-in loud;"):
        look(tmp_path, config, plugins)
    (tmp_path / "manifest.json").write_text(json.dumps({"modules": {"vflbench.cli.main": "x"} | plugins}))
    assert look(tmp_path, config, plugins) is Earlier.BEGUN
    for other in ({"loud": "aa", "tools": "cc"}, {"loud": "aa", "tools": "cc", "new": "dd"}, {"loud": "aa"}):
        with pytest.raises(UserError, match=r"hydra.run.dir=.*plug-in tools was edited since.*overwrite=true"):
            look(tmp_path, config, other)
    with pytest.raises(UserError, match="another configuration"):
        look(tmp_path, {"seed": 1}, {"loud": "ee"})


def test_results_without_a_config_are_not_taken_for_ours(tmp_path):
    (tmp_path / "metrics.csv").write_text("somebody's")
    for content in (None, b"a: [", b"\xff\xfe\x00"):
        if content is not None:
            (tmp_path / "config.yaml").write_bytes(content)
        with pytest.raises(UserError, match="without a config.yaml that can be read"):
            look(tmp_path, {"seed": 0})


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


def test_a_folder_where_nothing_began_is_left_empty(tmp_path):
    with alone_in(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []
