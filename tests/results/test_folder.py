"""What a run's folder holds, and that one module names its files."""

import json
import re
import subprocess
import sys

import pytest
from cli.test_configs import composed
from omegaconf import OmegaConf

from vflbench.errors import UserError
from vflbench.results.folder import alone_in, digest, look
from vflbench.run.provenance import origin_of


def begun(folder, config):
    """A folder in which a run with this configuration began."""
    (folder / "metrics.csv").write_text("")
    (folder / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create(config)))


def test_a_run_of_the_same_options_is_recognised_and_one_of_others_refused_naming_the_first_few(tmp_path):
    config = dict.fromkeys("abcdef", 1)
    assert not look(tmp_path, config, {})
    begun(tmp_path, config)
    assert not look(tmp_path, config, {})
    (tmp_path / "summary.json").write_text("{}")
    free = {"overwrite": True, "log_every": 5, "name": "mine", "checkpoint": "none", "hydra": {"verbose": True}}
    assert look(tmp_path, config | free, {}), "what cannot change a result does not count"
    assert digest(config | free) == digest(config)
    with pytest.raises(UserError, match=r"a: 1 -> 2; b: 1 -> 2; c: 1 -> 2; d: 1 -> 2 and 2 more.*overwrite=true"):
        look(tmp_path, dict.fromkeys("abcdef", 2), {})


def test_options_are_read_back_as_they_were_written(tmp_path):
    texts = ["1e-3", "1_000", "0x1f", "yes", "null", "~", "1:30", "2020-01-01", "", " a ", "a: b", "é", "'", "${x}"]
    config = {"texts": texts, "numbers": [0.1, 1e-5, 1e20, -0.0, 3], "other": [None, True, float("inf")], "map": {"1": {}}}
    begun(tmp_path, config)
    assert not look(tmp_path, config, {})


def origin(code="c1", plugins=({"loud.py": "b", "deep.py": "c"},), data="dd"):
    return {"vflbench": "1", "code": code, "plugins": [dict(folder) for folder in plugins], "data": {"dataset.path": data}}


def test_a_run_of_other_code_plug_ins_or_data_has_another_digest_and_is_refused_naming_what_differs(tmp_path):
    config, ours = {"seed": 0, "model": {"width": 8}}, origin()
    assert digest(config) == digest(config, {}) == "94ec07c8"  # of older versions
    assert digest(config, ours) == digest(config, dict(reversed(ours.items()))) != digest(config)
    begun(tmp_path, config)
    (tmp_path / "manifest.json").write_text(json.dumps({"format": 1, "identity": ours}))
    assert not look(tmp_path, config, origin())
    for other, words in (
        (origin(code="c2"), "vflbench's code"),
        (origin(plugins=({"loud.py": "d", "deep.py": "c"},)), "plug-ins (loud.py)"),
        (origin(plugins=({"loud.py": "d", "new.py": "c"},)), "plug-ins (deep.py, loud.py, new.py)"),
        (origin(plugins=({"loud.py": "b"}, {"deep.py": "c"})), "plug-ins;"),
        (origin(data="ee"), "data (dataset.path)"),
    ):
        with pytest.raises(UserError, match=rf"hydra.run.dir=.*differs in {re.escape(words)}.*overwrite=true"):
            look(tmp_path, config, other)
        assert digest(config, other) != digest(config, ours), words
    with pytest.raises(UserError, match="another configuration"):
        look(tmp_path, {"seed": 1}, origin(code="c2"))


def test_the_configs_own_digest_is_that_of_their_resolved_options():
    config = composed("seed=3", "defense=max_norm")
    OmegaConf.set_struct(config, False)
    config.model.width = "${seed}"  # an interpolation counts as what it stands for
    config.hydra = {"dir": "outputs/${digest:}"}
    resolved = OmegaConf.to_container(config, resolve=True)
    assert resolved["model"]["width"] == 3
    assert resolved["hydra"]["dir"] == f"outputs/{digest(resolved, origin_of(resolved))}"


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
