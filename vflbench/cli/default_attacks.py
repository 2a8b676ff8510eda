"""Attacks for labels of more than two classes, where the command line chooses none: those of train.yaml tell two apart."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from vflbench.cli.resolvers import plain
from vflbench.places import config_folder

CHOICES = ("attack=[kmeans,spectral_clustering]", "attack.spectral_clustering.message=gradients")
"""One that reads embeddings and one that reads gradients, without known labels, of any number of classes."""

_ALWAYS_MANY = {"digits": 10, "mnist": 10, "fashion_mnist": 10, "cifar10": 10, "cifar100": 20}
_COUNTED = ("csv", "parquet", "credit", "bank", "adult", "drive", "binary")
_BRING_ATTACKS = ("attack", "experiment", "adversary")
_ELSEWHERE = ("--config-name", "-cn", "--config-path", "-cp", "--help", "-h", "--hydra-help", "--info", "-sc")
_PROTOCOLS = ("split", "shared_embeddings")
_LONGEST = 600  # seconds


def with_attacks(words: Sequence[str]) -> list[str]:
    """A command line with attacks for as many classes as the labels have; the same if two are all, or attacks are chosen.

    Prints a line where it chooses. What is wrong with the words is said by whoever reads them next.
    """
    classes = 0
    chosen = any(re.match(rf"[+~]*({'|'.join(_BRING_ATTACKS)})([@.=/]|$)", word) for word in words)
    if not chosen and not any(word.split("=")[0] in _ELSEWHERE for word in words):
        with suppress(Exception):  # whatever is wrong with the options or the data, the run names it
            classes = _classes(words, apart=any(word in ("-m", "--multirun") for word in words))
    if classes < 3:
        return list(words)
    print(
        "the labels have more than two classes: attack=kmeans on embeddings and\n"
        "spectral_clustering on gradients; norm and spectral, the default, need two"
    )
    return [*words, *CHOICES]


def class_count(options: Mapping[str, Any]) -> int:
    """How many classes the labels of this data set have. options: as in its YAML. Reads the data if it must."""
    from vflbench.cli.run_options import build_dataset

    count = getattr(build_dataset(DictConfig({"dataset": dict(options)})), "class_count", None)
    return count() if count is not None else 0


def _classes(words: Sequence[str], *, apart: bool) -> int:
    """0 where that isn't known. apart: count in another process, as one that is forked later must not begin threads."""
    given = [word for word in words if re.match(r"\+{0,2}(dataset|protocol)[.=]", word)]
    name, options = "", {}
    for override in OverridesParser.create().parse_overrides(given):
        key = override.key_or_group
        if override.is_sweep_override():
            if key in ("dataset", "protocol", "dataset.path", "dataset.label", "dataset.positive", "dataset.party_files"):
                return 0
        elif key == "protocol" and override.value() not in _PROTOCOLS:
            return 0
        elif key == "dataset":
            name = str(override.value())
        elif key.startswith("dataset."):
            options[key.removeprefix("dataset.")] = override.value()
    if name in _ALWAYS_MANY:
        return _ALWAYS_MANY[name]
    if name not in _COUNTED or not (options.get("path") or options.get("party_files")):
        return 0
    node = OmegaConf.load(config_folder() / "dataset" / f"{name}.yaml")
    for key, value in options.items():
        OmegaConf.update(node, key, value, force_add=True)
    options = plain(node)
    if not apart:
        return class_count(options)
    code = (
        "import json, sys; from vflbench.cli.default_attacks import class_count; print(class_count(json.loads(sys.argv[1])))"
    )
    command = [sys.executable, "-c", code, json.dumps(options)]
    made = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST, check=True)  # nosec B603  # our own code
    return int(made.stdout.split()[-1])
