from omegaconf import OmegaConf
from test_configs import composed

from vflbench.results.identity import differences, digest, edited_plugins, essential, plugins_among


def test_what_cannot_change_a_result_does_not_count():
    run = {"seed": 0, "model": {"width": 8}}
    free = {"overwrite": True, "log_every": 5, "name": "mine", "checkpoint": "none", "hydra": {"verbose": True}}
    assert digest({**free, **run}) == digest(run)
    assert differences(run, {**free, **run}) == []
    assert essential({**free, **run}) == run


def test_every_option_that_differs_is_named_and_gives_another_folder():
    run = {"seed": 0, "model": {"width": 8}}
    for other, named in (
        ({"seed": 1, "model": {"width": 8}}, ["seed: 0 -> 1"]),
        ({"seed": 0, "model": {"width": 16}}, ["model.width: 8 -> 16"]),
        ({"seed": 0, "model": {"width": 8, "wide": True}}, ["model.wide: not there -> True"]),
        ({"seed": 0, "model": {}}, ["model.width: 8 -> not there", "model: not there -> {}"]),
        ({"seed": False, "model": {"width": 8}}, ["seed: 0 -> False"]),
    ):
        assert differences(run, other) == named
        assert digest(run) != digest(other), other


def test_the_source_of_plug_ins_counts_and_that_of_vflbench_does_not():
    run = {"seed": 0, "model": {"width": 8}}
    ours, plugin, edited = {"vflbench.cli.main": "a"}, {"loud": "b", "loud.deep": "c"}, {"loud": "d", "loud.deep": "c"}
    assert digest(run) == digest(run, {}) == digest(run, ours) == "94ec07c8"  # as in every version
    assert len({digest(run), digest(run, plugin), digest(run, edited), digest(run, {"loud": "b"})}) == 4
    assert digest(run, ours | plugin) == digest(run, dict(reversed(plugin.items())))
    assert plugins_among(ours | plugin) == plugin
    assert edited_plugins(ours | plugin, {"vflbench.cli.main": "x"} | plugin) == []
    assert edited_plugins(plugin, edited) == ["loud"]
    assert edited_plugins(plugin, {"loud": "b", "other": "e"}) == ["loud.deep", "other"]


def test_groups_have_no_order_but_the_defenses_of_a_chain_have():
    chain = {"marvell": {"sumkl": 1}, "dcor": {"weight": 2}}
    turned = dict(reversed(chain.items()))
    assert digest({"seed": 0, "defense": chain}) == digest({"defense": chain, "seed": 0})
    assert digest({"defense": chain}) != digest({"defense": turned})
    assert differences({"defense": chain}, {"defense": turned}) == ["defense: in another order"]


def test_the_configs_own_digest_is_that_of_their_resolved_options():
    config = composed("seed=3", "defense=max_norm")
    OmegaConf.set_struct(config, False)
    config.model.width = "${seed}"  # an interpolation counts as what it stands for
    config.hydra = {"dir": "outputs/${digest:}"}
    resolved = OmegaConf.to_container(config, resolve=True)
    assert resolved["model"]["width"] == 3
    assert resolved["hydra"]["dir"] == f"outputs/{digest(resolved)}"


def test_a_mandatory_value_that_is_missing_does_not_stop_the_digest():
    config = composed("dataset=criteo")
    OmegaConf.set_struct(config, False)
    config.hydra = {"dir": "${digest:}"}
    assert len(config.hydra.dir) == 8
