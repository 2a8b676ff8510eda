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


def hydra_words(words: Sequence[str], command: str) -> argparse.Namespace:
    """The words of a command that Hydra reads: flags, and the `overrides` among them. Raises UserError for other flags."""
    parser = Words(prog=command, add_help=False)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    for name, short in (("help", "h"), ("run", "r"), ("multirun", "m"), ("shell-completion", "sc")):
        parser.add_argument(f"--{name}", f"-{short}", action="store_true")
    parser.add_argument("--hydra-help", action="store_true")
    parser.add_argument("--resolve", action="store_true")
    for name, short in (("config-path", "cp"), ("config-name", "cn"), ("config-dir", "cd"), ("package", "p")):
        parser.add_argument(f"--{name}", f"-{short}")
    parser.add_argument("--cfg", "-c", choices=["job", "hydra", "all"])
    parser.add_argument("--info", "-i", nargs="?", const="all", choices=_INFO)
    return parser.parse_intermixed_args(list(words))


def hydra_flags(typed: argparse.Namespace) -> list[str]:
    """The flags as Hydra takes them, but for those that name configs."""
    set_ = [name for name in ("run", "multirun", "shell_completion", "hydra_help", "resolve") if getattr(typed, name)]
    valued = [(name, getattr(typed, name)) for name in ("package", "cfg", "info") if getattr(typed, name)]
    return [f"--{name.replace('_', '-')}" for name in set_] + [f"--{name}={value}" for name, value in valued]


_INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")

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
