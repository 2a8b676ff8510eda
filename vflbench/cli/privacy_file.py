"""`--privacy FILE`: label DP as the YAML of MindSpore Federated has it, `privacy: {label_dp: {eps: 1.0}}`."""

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vflbench.cli.config import read_config
from vflbench.errors import UserError

FLAG = "--privacy"
_SHAPE = "privacy: {label_dp: {eps: 1.0}}"
_WORD = re.compile(r"\+{0,2}privacy\.label_dp\.eps=(.*)", re.DOTALL)


def with_privacy(words: Sequence[str]) -> list[str]:
    """A command line with `--privacy FILE`, `--privacy=FILE` and `privacy.label_dp.eps=1.0` replaced by the options that
    they stand for. Raises UserError for a file of another shape, and where a defense is chosen besides.
    """
    others: list[str] = []
    made: list[str] = []
    remaining = iter(words)
    for word in remaining:
        if word == FLAG or word.startswith(f"{FLAG}="):
            made += _options(str(_eps_in(_file(word, remaining))))
        elif match := _WORD.fullmatch(word):
            made += _options(match[1])
        elif re.match(r"\+{0,2}privacy(\.[^=]*)?=", word):
            raise UserError(
                f"there is no such option; the shape is {_SHAPE}, in a file after {FLAG}", key=word.split("=")[0]
            )
        else:
            others.append(word)
    chosen = [word for word in others if re.match(r"\+{0,2}defense(\.label_dp\.eps)?=", word)]
    if made and (chosen or len(made) > 2):
        problem = f"it chooses defense=label_dp and its eps, beside {chosen[0] if chosen else made[-1]}; give one of them"
        raise UserError(problem, key="privacy")
    is_override = [not word.startswith("-") and "=" in word for word in others]
    place = is_override.index(True) if any(is_override) else len(others)  # argparse expects overrides together
    return [*others[:place], *made, *others[place:]]


def _options(eps: str) -> list[str]:
    return ["defense=label_dp", f"defense.label_dp.eps={eps}"]


def _file(word: str, remaining: Iterator[str]) -> Path:
    name = word.removeprefix(f"{FLAG}=") if word != FLAG else next(remaining, "")
    if not name or name.startswith("-"):
        raise UserError("it must be followed by a YAML file", key=FLAG)
    return Path(os.path.expanduser(name))


def _eps_in(file: Path) -> float:
    """The eps in a YAML file; other parts of the file than `privacy` are not read."""
    try:
        _, content = read_config(file)
    except UserError as error:
        raise UserError(error.problem, key=FLAG, value=file) from error
    label_dp = _only(_entry(content, "privacy", file), "label_dp", "privacy", file)
    eps = _only(label_dp, "eps", "privacy.label_dp", file)
    if isinstance(eps, bool) or not isinstance(eps, int | float) or not 0 <= eps <= sys.float_info.max:
        raise UserError(f"it must be a finite number, 0 or more, in {file}", key="privacy.label_dp.eps", value=eps)
    return float(eps)


def _only(node: Any, name: str, key: str, file: Path) -> Any:
    """The one entry of a mapping."""
    if isinstance(node, Mapping) and set(node) - {name}:
        wrong = next(k for k in node if k != name)
        raise UserError(f"there is no such option in {file}; the shape is {_SHAPE}", key=f"{key}.{wrong}")
    return _entry(node, name, file)


def _entry(node: Any, name: str, file: Path) -> Any:
    if not isinstance(node, Mapping) or name not in node:
        raise UserError(f"it has no `{name}` where there must be one; the shape is {_SHAPE}", key=FLAG, value=file)
    return node[name]
