from cli.test_configs import composed
from omegaconf import OmegaConf

from vflbench.results.folder import differences, differing, digest, essential
from vflbench.run.provenance import origin_of


def test_what_cannot_change_a_result_does_not_count():
    run = {"seed": 0, "model": {"width": 8}}
    free = {"overwrite": True, "log_every": 5, "name": "mine", "checkpoint": "none", "hydra": {"verbose": True}}
    assert digest({**free, **run}) == digest(run)
    assert differences(run, {**free, **run}) == []
    assert essential({**free, **run}) == run


def origin(code="c1", plugins=({"loud.py": "b", "deep.py": "c"},), data=None, version="0.1.0"):
    plugins = [dict(folder) for folder in plugins]
    return {"vflbench": version, "code": code, "plugins": plugins, "data": data or {}}


def test_all_that_decides_the_numbers_is_in_the_digest_and_named_where_it_differs():
    run, ours = {"seed": 0, "model": {"width": 8}}, origin()
    assert digest(run) == digest(run, {}) == "94ec07c8"  # of older versions
    assert digest(run, ours) == digest(run, dict(reversed(ours.items()))) != digest(run)
    assert differing(ours, origin()) == ""
    for other, words in (
        (origin(code="c2"), "vflbench's code"),
        (origin(plugins=({"loud.py": "d", "deep.py": "c"},)), "plug-ins (loud.py)"),
        (origin(plugins=({"loud.py": "d", "new.py": "c"},)), "plug-ins (deep.py, loud.py, new.py)"),
        (origin(plugins=({"loud.py": "b"}, {"deep.py": "c"})), "plug-ins"),
        (origin(data={"dataset.path": "ab"}), "data (dataset.path)"),
    ):
        assert differing(ours, other) == words
        assert digest(run, other) != digest(run, ours), words


def test_the_configs_own_digest_is_that_of_their_resolved_options():
    config = composed("seed=3", "defense=max_norm")
    OmegaConf.set_struct(config, False)
    config.model.width = "${seed}"  # an interpolation counts as what it stands for
    config.hydra = {"dir": "outputs/${digest:}"}
    resolved = OmegaConf.to_container(config, resolve=True)
    assert resolved["model"]["width"] == 3
    assert resolved["hydra"]["dir"] == f"outputs/{digest(resolved, origin_of(resolved))}"
