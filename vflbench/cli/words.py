"""The words of a command line: in the order that Hydra takes, or parsed for commands with flags of their own."""

import argparse
import re
from collections.abc import Sequence
from typing import NoReturn

from vflbench.errors import UserError


class Words(argparse.ArgumentParser):
    """What it refuses ends in one paragraph."""

    def error(self, message: str) -> NoReturn:
        see = f"{self.prog} --help"
        if match := re.fullmatch(r"the following arguments are required: (?P<names>.*)", message):
            for action in self._actions:
                if action.metavar in match["names"].split(", ") and action.nargs != "*":
                    raise UserError(f"it is missing: {action.help}", key=str(action.metavar), see=see)
        if match := re.fullmatch(r"unrecognized arguments: (?P<words>.*)", message):
            words = match["words"].split(" ")
            if words[0].startswith("--") and any(action.metavar == "KEY=VALUE" and action.nargs for action in self._actions):
                raise no_flag(words, see)
        raise UserError(message, see=see)


def no_flag(words: Sequence[str], see: str) -> UserError:
    """On a flag that isn't there, and may be meant as an option. words: the flag, and those that follow."""
    flag, equals, value = words[0].partition("=")
    if not equals:
        value = next((word for word in words[1:2] if "=" not in word and not word.startswith("-")), "VALUE")
    option = f"{flag.lstrip('-').replace('-', '_')}={value}"
    return UserError(f"there is no such flag; options are KEY=VALUE: {option}", key=flag, see=see)


def refuse_unknown_flags(words: Sequence[str], command: str) -> None:
    """Raise UserError for flags that Hydra would refuse with all its usage."""
    from vflbench.cli.hydra_internals import flags_of  # late: other commands need no Hydra

    try:
        unknown = flags_of(words).unknown
    except argparse.ArgumentError as error:
        raise UserError(error.message, key=error.argument_name, see=f"{command} --help") from error
    if unknown:
        raise no_flag(words[words.index(unknown[0]) :], f"{command} --help")


_WITH_VALUE = (
    *("--cfg", "-c", "--package", "-p", "--config-path", "-cp", "--config-name", "-cn", "--config-dir", "-cd"),
    "--experimental-rerun",
)
"""Flags of Hydra that are followed by a value."""
_PERHAPS_WITH_VALUE = {"--info": ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")}

_NAMED = {"comma": ",", "semicolon": ";", "tab": "\t", r"\t": "\t", "bar": "|"}
_MARK = re.compile(
    rf"(\+{{0,2}}dataset\.(?:delimiter|decimal)=)([^\w\s'\"\\]|\t|{'|'.join(map(re.escape, _NAMED))})", re.ASCII
)


def with_quoted_marks(words: Sequence[str]) -> list[str]:
    """The same words with quotes around a delimiter or decimal mark: the shell took those that were typed, and to Hydra a
    bare comma is a list of nothing. The mark is one sign, or named in a word.
    """
    matches = [(word, _MARK.fullmatch(word)) for word in words]
    return [f"{match[1]}'{_NAMED.get(match[2], match[2])}'" if match else word for word, match in matches]


def in_order(words: Sequence[str]) -> list[str]:
    """The same words with the options together and Hydra's flags after them: it refuses `seed=1 -m epochs=2,3`."""
    options, flags, remaining = [], [], list(words)
    while remaining:
        word = remaining.pop(0)
        if not word.startswith("-"):
            options.append(word)
            continue
        flags.append(word)
        if remaining and _takes(word, remaining[0]):
            flags.append(remaining.pop(0))
    return options + flags


def _takes(flag: str, word: str) -> bool:
    """Whether the word is the flag's value. Long flags may be abbreviated."""
    full = [
        name for name in (*_WITH_VALUE, *_PERHAPS_WITH_VALUE) if name == flag or (flag[:2] == "--" and name.startswith(flag))
    ]
    return any(word in _PERHAPS_WITH_VALUE.get(name, (word,)) for name in full)
