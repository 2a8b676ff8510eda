"""Every option of every choice, as the configs and the classes have them, and what becomes of a value of it."""

import json
import os
import resource
import signal
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

import vflbench.cli.config  # noqa: F401
from vflbench.cli.build import KEYED, SINGLE, build
from vflbench.cli.components import locate
from vflbench.cli.mistakes import describe
from vflbench.options import Range
from vflbench.places import config_folder
from vflbench.results.recorder import Recorder
from vflbench.run.checkpoint import Checkpoint
from vflbench.run.experiment import run
from vflbench.run.settings import Audit, Settings

CONFIGS = config_folder()
SETS_AND_EMPTY = {("attack", "strongest"), ("attack", "none"), ("defense", "none"), ("adversary", "none"), ("logger", "csv")}
NEEDED = {
    ("dataset", "criteo"): ["dataset.path=x"],
    ("dataset", "avazu"): ["dataset.path=x"],
    ("dataset", "image_folder"): ["dataset.path=x"],
    ("dataset", "csv"): ["dataset.path=x", "dataset.label=y"],
    ("dataset", "parquet"): ["dataset.path=x", "dataset.label=y"],
    ("dataset", "binary"): ["dataset.path=x"],
    **{("dataset", preset): ["dataset.path=x"] for preset in ("adult", "bank", "credit", "drive")},
    ("model", "torch"): ["model.bottom=torch.nn:Identity", "model.top=torch.nn:LazyLinear"],
}
"""What a choice can't be built without."""


@dataclass(frozen=True)
class Choice:
    """A choice of a group, its class, and the key under which its options stand: `optimizer`, or `attack.norm`."""

    group: str
    name: str
    cls: type
    key: str

    @property
    def words(self) -> list[str]:
        """The overrides that choose it."""
        listed = f"[quantize,{self.name}]" if self.name == "binomial" else self.name
        return [f"{self.group}={listed}", *NEEDED.get((self.group, self.name), [])]

    def hints(self) -> dict[str, Any]:
        hints = get_type_hints(self.cls, include_extras=True)
        return {field.name: hints[field.name] for field in fields(self.cls)} if is_dataclass(self.cls) else {}


def choices() -> Iterator[Choice]:
    """Of every group, from the configs."""
    for group, base in {**SINGLE, **KEYED}.items():
        for file in sorted((CONFIGS / group).glob("*.yaml")):
            if (group, file.stem) in SETS_AND_EMPTY:
                continue
            node: Any = OmegaConf.load(file)
            node = node[file.stem] if group in KEYED else node.get(group, node)
            key = f"{group}.{file.stem}" if group in KEYED else group
            yield Choice(group, file.stem, locate(node["_target_"], group, base), key)


def settings() -> dict[str, Any]:
    """The options of no component: key -> type hint."""
    hints = {f"audit.{name}": hint for name, hint in get_type_hints(Audit, include_extras=True).items()}
    own = get_type_hints(Settings, include_extras=True)
    return {name: hint for name, hint in own.items() if name != "audit"} | hints


def ranges(hint: Any) -> Iterator[tuple[type, Range]]:
    """(int or float, range) of each number that a type hint allows."""
    if get_origin(hint) is Annotated:
        number, *extras = get_args(hint)
        found = [extra for extra in extras if isinstance(extra, Range)]
        if number in (int, float) and found:
            yield number, found[-1]
    else:
        for member in get_args(hint):
            yield from ranges(member)


def composed(*words: str) -> DictConfig:
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        config = compose("train", [*words, "name=test"])
    OmegaConf.set_struct(config, False)
    return config


def in_a_child(function: Callable[[], str], *, megabytes: int = 3000, seconds: int = 60) -> str:
    """What the function returns in a fork of this process that may take so much more memory and so many CPU seconds.

    `TRACEBACK ...` where it raises, `KILLED ...` where it ends in another way.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with open("/proc/self/statm") as file:
            there = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (there + (megabytes << 20),) * 2)
        signal.setitimer(signal.ITIMER_PROF, seconds)  # not of the clock: the machine may be busy
        torch.set_num_threads(1)  # threads of the parent's pools don't exist here, and would be waited for
        torch.set_num_threads = lambda _: None
        try:
            answer = function()
        except BaseException:
            answer = f"TRACEBACK {traceback.format_exc()[-1500:]}"
        with os.fdopen(writing, "w") as pipe:
            json.dump(answer, pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    return json.loads(text) if text else f"KILLED with status {status}"


SMALL = (
    *("dataset=synthetic", "dataset.rows=400", "dataset.vocabulary=20", "dataset.numeric=3", "dataset.categorical=3"),
    *("model.width=8", "model.bottom_layers=2", "model.top_layers=1", "batch_size=64", "epochs=1"),
    *("audit.batches=2", "audit.probe=false", "attack=norm", "log_every=1000000"),
)
FEDERATED = ("dataset=bernoulli", "protocol=federated_lr", "attack=none", "epochs=1", "audit.batches=2")
OF_FEDERATED = {"federated_lr", "batch_reconstruction", "hidden_subset_sum", "selective_update", "shuffle", "bernoulli"}


def small_run(choice: Choice) -> list[str]:
    """The overrides of a run of a moment with this choice."""
    words = list(FEDERATED if choice.name in OF_FEDERATED else SMALL)
    if choice.name == "cnn":
        words = ["dataset=digits", "dataset.rows=200", *words[5:]]
    apart = {"attack": "attack", "model": "model", "dataset": "dataset"}.get(choice.group, "none")
    words = [word for word in words if not word.startswith(apart)]
    if choice.group == "dataset" and choice.name != "bernoulli":
        words.append("dataset.rows=400")
    return [*words, *choice.words]


def outcome(config: DictConfig, folder: Path) -> str:
    """`ok ...` of a run with this config, or `refused: ` and the paragraph. Raises what is no mistake of a user's."""
    try:
        experiment = build(config)
        recorder = Recorder(folder, "", {}, quiet=True)
        summary = run(experiment, recorder, Checkpoint(folder, "none"))
    except Exception as error:
        text = describe(error)
        if text is None:
            raise
        return f"refused: {text}"
    return f"ok {summary.test_auc}"


def is_paragraph(text: str, key: str = "") -> bool:
    """Whether it is one short line that can be printed and names the key."""
    return text.isprintable() and 0 < len(text) < 1500 and key in text
