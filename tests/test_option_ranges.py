"""Every number that is an option has a range, which the error says and the documentation keeps; both its ends run."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf
from option_fields import SMALL, Choice, choices, composed, in_a_child, is_paragraph, outcome, ranges, settings, small_run

from vflbench.cli.components import construct
from vflbench.errors import UserError
from vflbench.options import Range

ROOT = Path(__file__).resolve().parent.parent
EVERY = list(choices())
TIMES = {
    *("steps", "epochs", "restarts", "candidates", "sweeps", "decoder_steps", "iterations", "rounds", "batches"),
    *("max_batches", "time_limit", "log_every", "bottom_layers", "top_layers", "layers", "local_steps", "samples"),
}
"""Options that say for how long something goes on: their highest value is never reached."""
RUN = ("optimizer", "defense", "attack", "adversary", "protocol")


def numeric() -> dict[str, tuple[type, Range]]:
    """KEY [CHOICE] -> (int or float, its range), of every option."""
    found = {}
    for choice in EVERY:
        for name, hint in choice.hints().items():
            for number, its_range in ranges(hint):
                found[f"{choice.key}.{name} [{choice.name}]"] = number, its_range
    return found | {key: pair for key, hint in settings().items() for pair in ranges(hint)}


def test_every_number_has_a_range_with_two_ends_and_its_default_inside():
    bare = {"range", "shape", "positive"}  # of other kinds: an interval, sizes of a picture, a class of any type
    for choice in EVERY:
        for name, hint in choice.hints().items():
            if name in bare:
                continue
            plain = re.sub(
                r"Annotated\[(int|float), Range\([^]]*\)\]|Literal\[[^]]*\]", "", str(hint).replace("typing.", "")
            )
            assert not re.search(r"\b(int|float)\b", plain), f"{choice.key}.{name}: {hint}"
    assert len(numeric()) > 150
    for key, (number, its_range) in numeric().items():
        assert number(its_range.low) == its_range.low, key
        assert -math.inf < its_range.low < its_range.high < math.inf, key
    for choice in EVERY:
        for field in fields(choice.cls) if is_dataclass(choice.cls) else ():
            for _, its_range in ranges(choice.hints()[field.name]):
                assert isinstance(field.default, str | list | None) or field.default in its_range, field


@pytest.mark.slow
def test_the_error_says_the_range_of_every_number():
    for choice in EVERY:
        for name, hint in choice.hints().items():
            for number, its_range in ranges(hint):
                for wrong in (its_range.high * 2, -1, 10**30, math.nan, "x", True, 1e-300, math.inf):
                    if not isinstance(wrong, str | bool) and isinstance(wrong, number) and wrong in its_range:
                        continue
                    given = {**dict.fromkeys(("path", "label", "bottom", "top"), None), name: wrong}
                    with pytest.raises(UserError) as refused:
                        construct(choice.cls, {k: v for k, v in given.items() if k in choice.hints()}, "key")
                    text = str(refused.value)
                    assert is_paragraph(text), text
                    assert str(its_range) in text or "key." in text, text
                    if not {"path", "label", "bottom"} & set(choice.hints()):
                        assert text.startswith(f"key.{name}="), text
                        assert str(its_range) in text, text


def test_ranges_are_written_as_people_write_them():
    assert str(Range(1e-8, 1e4)) == "from 1e-8 to 10000"
    assert str(Range(1e-9, 1 - 1e-9, zero=True)) == "from 1e-9 to 0.999999999, or 0"
    assert str(Range(1e-6, 1e6, infinity=True)) == "from 1e-6 to 1e6, or inf"
    assert str(Range(1, 10**9)) == "from 1 to 1,000,000,000"
    assert 0.0 in Range(1e-9, 1.0, zero=True)
    assert all(value not in Range(1e-9, 1.0) for value in (0.0, math.nan, math.inf, -math.inf, 1.0000001, 1e-300))


def test_no_value_of_the_documentation_or_of_an_experiment_is_out_of_range():
    by_key = {key.partition(" ")[0]: its_range for key, (_, its_range) in numeric().items()}
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "scripts").rglob("*.py")]
    files += (ROOT / "configs").rglob("*.yaml")
    checked = 0
    for file in files:
        text = re.sub(r"`[^`]*: it must be[^`]*`", "", file.read_text())  # what an error says
        for key, values in re.findall(r"\b([a-z_]+(?:\.[a-z_0-9]+)+)[=:] ?([-+0-9.e,]+)", text):
            if key not in by_key:
                continue
            for value in filter(None, values.rstrip(".").split(",")):
                try:
                    number = float(value)
                except ValueError:
                    continue
                checked += 1
                assert number in by_key[key], f"{file.name}: {key}={value} is not {by_key[key]}"
    assert checked > 200, checked


@pytest.mark.slow
@pytest.mark.parametrize("group", RUN)
def test_both_ends_of_every_range_run_or_are_refused(group, tmp_path):
    assert outcome(composed(*SMALL), tmp_path / "first").startswith("ok ")  # imports what every child needs
    wrong = []
    for choice in (one for one in EVERY if one.group == group):
        base = composed(*small_run(choice))
        for end in ("low", "high", "zero", "infinity"):
            values = dict(at(choice, end))
            together = in_a_child(lambda: ran(base, values, tmp_path))  # noqa: B023
            apart = [] if together.startswith("ok ") else [{key: value} for key, value in values.items()]
            for one in apart:
                text = in_a_child(lambda: ran(base, one, tmp_path))  # noqa: B023
                if not text.startswith("ok ") and not (text.startswith("refused: ") and is_paragraph(text)):
                    wrong.append(f"{one} [{choice.name}]: {text}")
            if not together.startswith(("ok ", "refused: ")):
                wrong.append(f"{values} [{choice.name}]: {together}")
    assert not wrong, "\n".join(wrong)


def at(choice: Choice, end: str) -> Iterator[tuple[str, float]]:
    """(key, value) of every option of the choice that has such an end."""
    for name, hint in choice.hints().items():
        for number, its_range in ranges(hint):
            if end in ("low", "high") and not (end == "high" and name in TIMES):
                yield f"{choice.key}.{name}", number(getattr(its_range, end))
            elif getattr(its_range, end) is True:
                yield f"{choice.key}.{name}", number(0) if end == "zero" else math.inf


def ran(base: DictConfig, values: Mapping[str, float], folder: Path) -> str:
    config = base.copy()
    for key, value in values.items():
        OmegaConf.update(config, key, value)
    return outcome(config, folder) if values else "ok without a run"


PAIRS = (
    "defense=[quantize,binomial] defense.quantize.range=[0.0,1.0] defense.binomial.n=100000 defense.binomial.p=1e-9",
    "defense=[quantize,binomial] defense.quantize.range=[0.0,1.0] defense.binomial.delta=0.999999999",
    "defense=[quantize,binomial] defense.quantize.range=[-1e12,1e12] defense.quantize.levels=65536",
    "defense=embedding_noise defense.embedding_noise.eps=1e-6 defense.embedding_noise.delta=1e-15",
    "defense=embedding_noise defense.embedding_noise.eps=1e6 defense.embedding_noise.norm=1e6 optimizer=sgd",
    "defense=marvell defense.marvell.sumkl=1e-6 defense.marvell.noise=shared optimizer.eps=1e-20",
    "defense=[label_dp,gaussian] defense.label_dp.eps=1e-6 defense.gaussian.sigma=1e6",
    "optimizer=lazy_adam optimizer.beta1=0 optimizer.beta2=1e-9",
    "optimizer=lazy_adam optimizer.beta1=0 optimizer.eps=1e-20 optimizer.lr=1e4",
    "optimizer=lazy_adam optimizer.beta1=0.9 optimizer.beta2=0.900001",
    "adversary=malicious_optimizer adversary.malicious_optimizer.gamma=1e6 optimizer.lr=1e4",
    "model.width=1000000 model.bottom_layers=1000",
    "dataset.rows=9000000000 batch_size=9000000000",
    "dataset.positive_ratio=1e-9 dataset.bayes_auc=0.999999999",
    "seed=9223372036854775807 dataset.test_fraction=1e-9",
)


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS)
def test_two_odd_values_together_run_or_are_refused(pair, tmp_path):
    words = pair.split()
    given = {word.partition("=")[0] for word in words}
    small = [word for word in SMALL if word.partition("=")[0] not in given]
    text = in_a_child(lambda: outcome(composed(*small, *words), tmp_path))
    assert text.startswith(("ok ", "refused: ")), text
    assert is_paragraph(text), text
