"""Folders of outputs, written by hand: what a report reads, without a run."""

import json
import math

import yaml

from vflbench.results.schema import HEADER

_TEXT = "An honest-but-curious attacker at a non-label party, who knows the gradients."
_NORM = {"role": "non-label party", "knows": ["gradients"], "text": _TEXT}
FACTS = {
    "cut_layers": {"a": ["f2"]},
    "layers": {"a": ["f1", "f2"], "label": ["h1"]},
    "threats": {"norm": _NORM | {"does": "Score each row by the length of its gradient."}},
}
"""What a run records about itself in manifest.json."""


def interval(mean, half=0.0):
    return {"mean": mean, "low": None if mean is None else mean - half, "high": None if mean is None else mean + half}


def leak(attack, layer, value, *, message="gradient", party="a", visible=True, half=0.0):
    two_sided = None if value is None else max(value, 1 - value)
    place = {"attack": attack, "message": message, "party": party, "layer": layer, "visible": visible}
    values = {"raw": interval(value), "two_sided": interval(two_sided, half), "oriented": interval(two_sided)}
    return place | values | {"batches": 5, "left_out": 0, "classes": {}}


def rebuilt(layer="f2", attack="inversion", *, message="embedding", party="a", **figures):
    """What an attack rebuilt."""
    place = {"attack": attack, "message": message, "party": party, "layer": layer, "visible": True, "batches": 2}
    return place | {"figures": {name: interval(value) for name, value in figures.items()}}


def reading(attack="norm", value=0.912, low=0.9, high=0.93, **more):
    """What the verdict of a run has of an attack."""
    place = {"attack": attack, "message": "gradient", "party": "a", "layer": "f2", "figure": "AUC"}
    return place | {"value": value, "low": low, "high": high, "readings": 34} | more


def verdict(worst, **more):
    return {"worst": worst, "levels": {}, "on_changed": {}, "references": {}, "falls": None, "changed": []} | more


def write_run(folder, *, defense=None, seed=0, test_auc=0.76, leaks=None, norm=0.9, config=None, facts=FACTS, **summary):
    """A finished run with the norm attack at layers f1 and f2 (the cut) and whatever else is given.

    facts: replace those of FACTS; None: a run of an older version, which records none.
    """
    folder.mkdir(parents=True)
    choices = {"dataset": summary.pop("dataset", "criteo"), "experiment": summary.pop("experiment", None)}
    options = {"defense": defense or {}, "attack": {"norm": {"_target_": "vflbench.attacks.norm.Norm"}}, "epochs": 2}
    options |= {"dataset": {"_target_": "vflbench.data.clicklogs.Criteo", "path": "train.txt"}, "seed": seed}
    options |= {"model": {"_target_": "vflbench.models.networks.WideDeep", "bottom_layers": 2}}
    (folder / "config.yaml").write_text(yaml.safe_dump(options | (config or {})))
    data = {"fingerprint": "f" * 64, "train_rows": 9000, "test_rows": 1000, "classes": 2, "path": "x/train.txt"}
    manifest = {"format": 1, "vflbench": "0.1.0", "data": data, "batch_size": 64, "versions": {"numpy": "2"}}
    manifest |= {"choices": choices, **({} if facts is None else {**FACTS, **facts})}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    if leaks is None:
        leaks = [leak("norm", "f1", norm - 0.01), leak("norm", "f2", norm), leak("norm", "h1", 1.0, visible=False)]
    results = {
        "epochs": 2,
        "test_auc": test_auc,
        "train_auc": test_auc,
        "test_log_loss": 0.5,
        "seconds": 2.5,
        "leaks": leaks,
    }
    results |= {"failed": None, "guarantees": dict.fromkeys(defense or {})}
    results |= {"bytes_sent": {"embedding": 1_000_000, "gradient": 500_000}}
    (folder / "summary.json").write_text(json.dumps(results | summary))
    rows = [f"{epoch},test,,,,,auc,{(test_auc or 0) - 0.01 * (1 - epoch)},,,\n" for epoch in range(2)]
    rows += [f"{epoch},train,a,f2,gradient,norm,leak_auc_two_sided,{norm},,,true\n" for epoch in range(2)]
    (folder / "metrics.csv").write_text("".join([HEADER, *rows]))
    return folder


def write_adversarial_run(folder, *, test_auc=0.7, norm=0.99, honest_auc=0.76, honest_norm=0.9, seed=0):
    """A run in which party a deviates, with the honest run that it keeps."""
    adversary = {"scaled": {"party": "a", "text": "It multiplies its learning rate by 10."}}
    config = {"adversary": {"scaled": {"_target_": "mine.Scaled", "factor": 10}}}
    write_run(folder, test_auc=test_auc, norm=norm, seed=seed, config=config, facts={"adversary": adversary})
    write_run(folder / "honest", test_auc=honest_auc, norm=honest_norm, seed=seed)
    return folder


def marvell(sumkl, ceiling=None):
    """The keywords of a run with that defense."""
    promise = {"claim": "a claim", "messages": 4, "error_one_message": 0.3, "error_all_messages": 0.1}
    promise |= {"leak_auc_one_message": ceiling, "leak_auc_all_messages": None if ceiling is None else min(1, ceiling + 0.1)}
    options = {"_target_": "vflbench.defenses.marvell.Marvell", "sumkl": sumkl, "error_bound": None, "power": None}
    has_none = ceiling is None or math.isinf(sumkl)
    return {"defense": {"marvell": options}, "guarantees": {"marvell": None if has_none else promise}}


def sweep(root, seeds=3):
    """No defense, and Marvell at two values, on the same seeds."""
    for seed in range(seeds):
        write_run(root / f"none{seed}", seed=seed, test_auc=0.76 + 0.01 * seed, norm=0.90 + 0.01 * seed)
        write_run(root / f"m04{seed}", seed=seed, test_auc=0.71 + 0.01 * seed, norm=0.53, **marvell(0.04, 0.54))
        write_run(root / f"m16{seed}", seed=seed, test_auc=0.74 + 0.012 * seed, norm=0.58, **marvell(0.16, 0.68))
    return root
