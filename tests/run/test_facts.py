"""What a run writes into its manifest: enough to read its figures without the configuration."""

import json
import math

import pytest
import yaml
from support.audited import scripted
from support.builders import experiment, run_in

from vflbench import LocalModel, Role, Updates
from vflbench.attacks.hints import Hints
from vflbench.attacks.norm import Norm
from vflbench.attacks.spectral import Spectral
from vflbench.data.synthetic import Bernoulli, Synthetic
from vflbench.files import config_folder
from vflbench.metrics.leak import Leak
from vflbench.models.networks import WideDeep
from vflbench.numerics.interval import Estimate, Interval
from vflbench.protocols.federated_lr import FederatedLr
from vflbench.run.settings import Audit, Settings
from vflbench.run.setup import MANY_CLASSES, TWO_CLASSES
from vflbench.run.summary import trees

NOWHERE = "it attacks at one of the participants, of whom there is nothing in this protocol"


def manifest_of(folder, batch_size, **changes):
    settings = Settings(epochs=1, batch_size=batch_size, audit=Audit(batches=2, probe=False))
    summary = run_in(folder, settings=settings, **changes)
    return json.loads((folder / "manifest.json").read_text()), summary


def test_the_manifest_holds_layers_threats_and_what_could_not_be_attacked(tmp_path):
    silent = {"epoch": lambda _: None, "__doc__": "Knows rows.\n\nMore about it."}
    curious = scripted(LocalModel, threat={"known_rows": 7}, **silent)
    attacks = {"norm": Norm(), "hints": Hints(k=60), "curious": curious}
    attacks["elsewhere"] = scripted(Updates, threat={"role": Role.PARTICIPANT})
    dataset = Synthetic(rows=400, vocabulary=100, parties={"x": ["I*"], "y": ["C1*"], "label": ["C2*"]})
    model = WideDeep(bottom_layers=2, top_layers=1, width=8, wide=True)
    manifest, summary = manifest_of(tmp_path, 64, dataset=dataset, model=model, attacks=attacks)
    assert manifest["cut_layers"] == {"x": ["f2", "wide"], "y": ["f2", "wide"]}
    assert manifest["layers"] == {"x": ["f1", "f2"], "y": ["f1", "f2"], "label": ["f1", "f2", "h1"]}
    assert manifest["adversary"] == {}
    assert manifest["skipped"] == summary["skipped"] == {"elsewhere": NOWHERE}
    assert manifest["unscored"] == summary["unscored"]
    assert sorted(manifest["unscored"]) == ["curious", "curious (own columns)", "hints", "hints (own columns)"]
    log = (tmp_path / "train.log").read_text()
    assert f"attack=hints could not be scored: {manifest['unscored']['hints']}" in log
    assert f"attack=elsewhere is skipped: {NOWHERE}" in log
    threats = manifest["threats"]
    assert list(threats) == [*attacks, "hints (own columns)", "curious (own columns)"]
    assert (threats["norm"]["level"], threats["norm"]["message"]) == ("messages only", "gradient")
    assert threats["norm"]["text"] == "An honest-but-curious attacker at a non-label party, who knows: gradients."
    assert (threats["curious"]["known_rows"], threats["curious"]["does"]) == (7, "Knows rows.")
    assert (threats["hints"]["hints"], threats["hints"]["level"]) == (60, "known labels")
    assert threats["hints (own columns)"]["level"] == "reference"
    assert threats["elsewhere"]["role"] == "participant"


def test_a_federated_run_has_one_layer(tmp_path):
    data = Bernoulli(rows=4, features=5, batches=10)
    manifest, _ = manifest_of(tmp_path, "auto", dataset=data, protocol=FederatedLr(), attacks={"norm": Norm()})
    assert manifest["cut_layers"] == manifest["layers"] == {"a": ["theta"], "b": ["theta"]}
    assert manifest["skipped"] == {"norm": NOWHERE.replace("one of the participants", "a non-label party")}


def leak(party, value, *, visible=True):
    interval = Interval(value, math.nan, math.nan)
    estimates = {name: [Estimate(value, math.nan, 1)] for name in ("auc", "square", "oriented")}
    return Leak("norm", "gradient", party, "f2", visible, interval, interval, interval, 5, 0, estimates=estimates)


@pytest.mark.parametrize("others", [[leak("a", 0.6), leak("label", 0.99, visible=False)], [leak("a", math.nan)]])
def test_a_layer_of_several_parties_stands_for_the_attacker_that_learns_most(others):
    for leaks in ([leak("b", 0.8), *others], [*others, leak("b", 0.8)]):
        assert trees(leaks)["leak_auc_two_sided"] == {"norm": {"gradient": {"f2": 0.8}}}


def test_the_default_attacks_are_replaced_for_more_than_two_classes():
    default = experiment(attacks={"norm": Norm(), "spectral": Spectral()})
    assert default.for_classes(2) is default
    assert default.for_classes(10).attacks == MANY_CLASSES
    for chosen in ({}, {"norm": Norm()}, {"norm": Norm(), "spectral": Spectral(component=1, score="abs")}):
        assert experiment(attacks=chosen).for_classes(10).attacks == chosen


def test_they_are_those_of_the_config():
    nodes = yaml.safe_load((config_folder() / "train.yaml").read_text())["defaults"]
    assert next(node["attack"] for node in nodes if isinstance(node, dict) and "attack" in node) == [*TWO_CLASSES]
    for name, attack in TWO_CLASSES.items():
        (node,) = yaml.safe_load((config_folder() / "attack" / f"{name}.yaml").read_text()).values()
        assert type(attack)(**{key: value for key, value in node.items() if key != "_target_"}) == attack
