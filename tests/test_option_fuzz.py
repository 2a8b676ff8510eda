"""Every key of every choice with odd values, through the real builder: an experiment, or a paragraph that names the key."""

import copy
import os
import random
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from option_fields import CONFIGS, SMALL, Choice, choices, composed, in_a_child, is_paragraph, outcome, settings, small_run
from volume import volume

from vflbench.cli.build import KEYED, SINGLE, build
from vflbench.cli.components import build_loggers
from vflbench.cli.mistakes import describe
from vflbench.data.base import Dataset

ODD = (
    *("0", "-1", "1", "0.5", "1e-300", "1e30", "1e13", "nan", "inf", "-inf", str(10**30), "''", "' '", "'../../x'", "null"),
    *(
        "true",
        "[]",
        "{}",
        "[1,[2]]",
        "[nan]",
        "???",
        "'1'",
        "x" * 10_000,
        "'\0\x1b[31m'",
        "'\uff11\u0663'",
        "'${oc.env:HOME}'",
    ),
    *("'${x}'", "'${'", "'$(touch x)'", "os.system", "{_target_: os.mkdir, path: x}", "9" * 5000),
)
EACH = min(volume(64), 20)
"""Of these, for each key others."""

RUN = volume(160)
"""Accepted odd values with which a small run is made."""


CHANGES = {"os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.system", "subprocess.Popen", "os.exec", "os.fork"}


class Written(list):
    """What this process opens to write, makes, removes or starts from now on. An audit hook can't be taken off again."""

    def __init__(self):
        super().__init__()
        sys.dont_write_bytecode = True
        sys.addaudithook(self._see)

    def _see(self, event, arguments):
        if event == "open":
            path, _, flags = arguments
            if path != os.devnull and (flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and not isinstance(path, int):
                self.append((event, str(path)))
        elif event in (
            "os.mkdir",
            "os.remove",
            "os.rename",
            "os.rmdir",
            "os.system",
            "subprocess.Popen",
            "os.exec",
            "os.fork",
        ):
            self.append((event, str(arguments)))


def keys(choice: Choice) -> list[str]:
    """Those of the choice; what every dataset has, of one dataset only."""
    shared = {field.name for field in fields(Dataset)} if choice.group == "dataset" and choice.name != "synthetic" else set()
    return [f"{choice.key}.{name}" for name in (*choice.hints(), "_target_", "loud") if name not in shared]


def answer(config, word):
    """The paragraph for this word on top of that config; empty where it builds."""
    key = ""  # a word that Hydra can't read has none yet
    try:
        override = OverridesParser.create().parse_override(word)
        key = override.key_or_group.rpartition(".")[2]
        config = copy.deepcopy(config)
        OmegaConf.update(config, override.key_or_group, override.value(), merge=False)
        build(config)
        build_loggers(config)
    except Exception as error:
        text = describe(error)
        if text is None:
            raise AssertionError(f"{word[:200]}: {type(error).__name__}: {error}") from error
        if not is_paragraph(text, key):
            raise AssertionError(f"{word[:200]} is answered by {text!r}") from error
        return text
    return ""


def walked(subjects) -> tuple[int, list[tuple[int, str]], list[str]]:
    """The number of words, those that built, as (place of the subject, word), and what went wrong."""
    written, accepted, wrong, count = Written(), [], [], 0
    for place, (words, its_keys) in enumerate(subjects):
        config = composed(*words)
        written.clear()
        for key in its_keys:
            for odd in random.Random(key).sample(ODD, EACH):
                count += 1
                try:
                    if not answer(config, f"{key}={odd}"):
                        accepted.append((place, f"{key}={odd}"))
                except AssertionError as error:
                    wrong.append(str(error))
                if written:
                    wrong.append(f"{key}={odd[:50]} did {written}")
                    written.clear()
    return count, accepted, wrong


@pytest.mark.slow
def test_odd_values_of_every_key_build_or_are_refused_in_a_paragraph(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    every = list(choices())
    subjects = [(choice.words, keys(choice)) for choice in every]
    subjects.append(([], [*settings(), "name", "audit", *SINGLE, *KEYED, "loud"]))
    count, accepted, wrong = in_a_child(lambda: walked(subjects), seconds=600)
    assert not wrong, "\n".join([f"{len(wrong)} of {count}", *wrong[:20]])
    assert count >= 250 * EACH
    assert os.listdir(tmp_path) == []
    chosen = random.Random(19).sample([(place, word) for place, word in accepted if place < len(every)], RUN)
    bad = []
    for number, (place, word) in enumerate(chosen):
        folder = tmp_path / str(number)
        text = in_a_child(lambda: ran(every[place], word, folder))  # noqa: B023
        if not text.startswith("ok ") and not (text.startswith("refused: ") and is_paragraph(text)):
            bad.append(f"{every[place].name} {word[:100]}: {text}")
    assert not bad, "\n".join(bad)


def ran(choice: Choice, word: str, folder: Path) -> str:
    config = composed(*small_run(choice))
    override = OverridesParser.create().parse_override(word)
    OmegaConf.update(config, override.key_or_group, override.value(), merge=False)
    return outcome(config, folder)


@pytest.mark.slow
def test_some_odd_words_composed_by_hydra_itself():
    """The same as above, but for the groups' names too, and with nothing left out of what a command does first."""

    wrong = []
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        for group in ("attack", "optimizer"):
            for odd in ODD[::3]:
                try:
                    build(compose("train", [*SMALL, "name=test", f"{group}={odd}"]))
                except Exception as error:
                    text = describe(error)
                    if text is None or not is_paragraph(text):
                        wrong.append(f"{group}={odd[:100]}: {type(error).__name__}: {error}"[:500])
    assert wrong == []
