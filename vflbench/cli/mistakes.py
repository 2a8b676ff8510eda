"""What went wrong, in one paragraph that helps the user: the nearest key or choice, what the shell split, what to type."""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from vflbench.cli.config import COMPONENTS, KEYED_NAMES, choices, leaves, read_config, searched
from vflbench.cli.help import sets_options
from vflbench.errors import UserError, causes, nearest, paragraph
from vflbench.files import config_folder
from vflbench.results.folder import leave_error

_RENAMED = {
    "attack.model_inversion.seat": "attack.model_inversion.role",
    "attack=generator": "attack=grna",
    "attack=equation_solving": "attack=esa",
    "attack=hijack": "attack=fsha",
    "adversary=hijack": "adversary=fsha",
    "defense=sec_dt": "defense=fake_labels",
    "experiment=rebuilding_hijack": "experiment=rebuilding_fsha",
}
"""Option or choice of an earlier version -> its name."""

if TYPE_CHECKING:
    from vflbench.results.recorder import Recorder


@contextmanager
def leaving_errors(recorder: "Recorder") -> Iterator[None]:
    """While entered, an error leaves error.txt beside what the recorder has written. At the end its loggers stop."""
    try:
        yield
    except Exception as error:
        if recorder.begun:
            leave_error(recorder.folder, describe(error) or f"{type(error).__name__}: {error}", error)
        raise
    finally:
        recorder.stop()


def describe(error: Exception) -> str | None:
    """One paragraph for a mistake of the user's; None for a fault of vflbench, whose traceback is shown."""
    text = _description(error)
    return None if text is None else paragraph(text)


def _description(error: Exception) -> str | None:
    if isinstance(error, UserError):
        return str(error)
    from_hydra = isinstance(error, HydraException | OmegaConfBaseException)
    ours = next((one for one in causes(error) if isinstance(one, UserError)), None)
    if from_hydra and ours is not None:  # a resolver of ours raised it, and OmegaConf has wrapped it
        option = getattr(error, "full_key", None)
        return f"{option}: {ours}" if option and ours.key == "oc.env" else str(ours)
    if isinstance(error, OSError) and error.strerror:  # no permission, disk full, a name too long
        where = "hydra.run.dir=" if _raised_by_hydra(error) else ""
        return f"{where}{error.filename or 'a file'}: {error.strerror}"
    if isinstance(error, RecursionError) and _raised_by_hydra(error):
        return "config: the configs that were chosen include each other in a circle, or are nested too deeply"
    if from_hydra or _raised_by_hydra(error):
        return _describe_hydra(error)
    if isinstance(error, MemoryError) or "allocate memory" in str(error) or "out of memory" in str(error):
        size = re.search(r"tried to allocate [\w. ]+", str(error))
        return f"there is not enough memory for this model, batch or table{f': {size[0]}' if size else ''}"
    return None


def _raised_by_hydra(error: Exception) -> bool:
    """Whether the error came from Hydra and not from vflbench: then it concerns the command line."""
    for frame, _ in reversed(list(walk_tb(error.__traceback__))):
        file = frame.f_code.co_filename
        if file.startswith(str(Path(__file__).parents[1])):
            return False
        if f"{os.sep}hydra{os.sep}" in file or f"{os.sep}omegaconf{os.sep}" in file:
            return True
    return False


def _describe_hydra(error: Exception) -> str:
    """Hydra's message in one paragraph, and the command that helps."""
    folders = [config_folder(), *searched]
    text = " ".join(str(error).split()) or f"the configs can't be used ({type(error).__name__})"
    if misquoted := quoting_mistake(text, str(getattr(error, "override", None) or ""), sys.argv):
        return f"{misquoted} (see: vflbench list, vflbench train --help)"
    if unknown := re.match(r"(?:In '\w+': )?Could not override '(?P<key>[^']+)'", text):
        if two_sweeps := lacking_runs(folders, unknown["key"], sys.argv[1:]):
            return f"{unknown['key']}: {two_sweeps}"
        hint = nearest_options(folders, unknown["key"])
        return f"{unknown['key']}: there is no such option here{hint} (see: vflbench train --cfg job)"
    if missing := re.search(r"Could not (?:find|load) '(?P<group>[a-z_]+)/(?P<name>[^']+)'", text):
        listed = re.search(r"Available options in '\w+': (?P<names>.*?)(?: Config search path|$)", text)
        names = listed["names"].split() if listed else choices(folders, missing["group"])
        if names:
            group, near = missing["group"], nearest(missing["name"], names)
            if old := _RENAMED.get(f"{group}={missing['name']}"):
                near = f"; it is renamed to {old}"
            elif not near:
                near = f"; there are {', '.join(names)}{hint_on_plugins(folders)}"
            return f"{group}={missing['name']}: there is no such choice{near} (see: vflbench list {group})"
    text = re.sub(r" (full_key:|Config search path:).*$", "", text).removeprefix("In 'train': ")
    key = str(getattr(error, "full_key", None) or getattr(error, "override", None) or "").partition("=")[0]
    if key and key not in text:
        text = f"{key}: {text}"
    return f"{text} (see: vflbench list, vflbench train --help)"


def hint_on_plugins(folders: Sequence[Path]) -> str:
    """How to name folders of configs, where the user named none. folders: ours first."""
    return "" if len(folders) > 1 else "; the folder of one of your own is named by --plugins DIR"


def nearest_options(folders: Sequence[Path], key: str) -> str:
    """A hint for an unknown key: the choices that have it, or a similar key.

    folders: of configs, ours first. Of a key such as attack.norm.k, only options of that attack are similar.
    """
    holders = _holders(folders)
    if key in _RENAMED:
        return f"; it is renamed to {_RENAMED[key]}"
    if holders.get(key):
        return f"; it goes with {', '.join(holders[key])}"
    if any(key.startswith(f"{name}.") for name in holders if "." in name):  # an entry of a mapping that is open
        return f"; to add it, write +{key}=VALUE"
    group, _, rest = key.partition(".")
    if group in KEYED_NAMES and "." in rest:
        return _of_choice(folders, group, rest, holders)
    close = [name for name in get_close_matches(key, holders, n=2) if name != key]
    return f"; did you mean {close[0]}?" if close else ""


def lacking_runs(folders: Sequence[Path], key: str, words: Sequence[str]) -> str | None:
    """Of a sweep in which some runs have the option and others have not, what to do; None for any other mistake.

    words: of the command line, all of which Hydra can read.
    """
    group, holders = key.partition(".")[0], _holders(folders).get(key)
    swept = [word for word in words if word.startswith(f"{group}=")]
    if not holders or not swept:
        return None
    override = OverridesParser.create().parse_override(swept[-1])
    if not override.is_sweep_override():
        return None
    has: list[str] = []
    lacks: list[str] = []
    for value in map(str, override.sweep_string_iterator()):
        names = re.findall(r"\w+", value)
        (has if any(f"{group}={name}" in holders for name in names) else lacks).append(value)
    if not has or not lacks:
        return None
    without, given = f"{group}={','.join(lacks)}", [word for word in words if word.lstrip("+").startswith(f"{key}=")]
    runs = f"the runs with {without} have" if len(lacks) > 1 else f"the run with {without} has"
    with_it = " ".join([f"{group}={','.join(has)}", *given])
    return f"{runs} no such option; make two sweeps: one with {without}, one with {with_it}"


def _holders(folders: Sequence[Path]) -> dict[str, list[str]]:
    """Option -> the choices that have it; none for those of any run."""
    holders: dict[str, list[str]] = {name: [] for name in _keys(folders[0] / "train.yaml", "", skip=("defaults", "hydra"))}
    for group in COMPONENTS:
        holders.setdefault(group, [])
        for file in (file for folder in folders for file in sorted((folder / group).glob("*.yaml"))):
            for name in _keys(file, group):
                holders.setdefault(name, []).append(f"{group}={file.stem}")
    return holders


def _of_choice(folders: Sequence[Path], group: str, rest: str, holders: Iterable[str]) -> str:
    """A hint for an unknown option of an attack, a defense, ... rest: NAME.OPTION."""
    name, _, option = rest.partition(".")
    names = choices(folders, group)
    if name not in names:
        close = get_close_matches(name, names, n=1)
        meant = f"{group}.{close[0]}.{option}" if close else ""
        return f"; did you mean {meant}?" if meant in holders else f"; there is no {group}={name}{hint_on_plugins(folders)}"
    prefix = f"{group}.{name}."
    options = [key.removeprefix(prefix) for key in holders if key.startswith(prefix)]
    close = get_close_matches(option, options, n=1)
    if close:
        return f"; did you mean {prefix}{close[0]}?"
    words = f"these options: {', '.join(options)}" if options else "no options"
    return f"; {group}={name} has {words}"


def _keys(file: Path, prefix: str, skip: tuple[str, ...] = ("_target_",)) -> list[str]:
    """The dotted names of all options in a config; none of a damaged one, which is another mistake."""
    try:
        _, content = read_config(file)
    except UserError:
        return []
    nodes = {key: node for key, node in content.items() if key not in skip} if isinstance(content, dict) else {}
    options = leaves(nodes, "" if sets_options(file) else prefix) if nodes else ()
    keys = (key.partition("[")[0] for key, value in options if value != {} and not key.endswith("._target_"))
    return list(dict.fromkeys(keys))


def quoting_mistake(text: str, word: str, words: Sequence[str]) -> str | None:
    """A sentence on a word that Hydra's grammar refuses; None where the mistake is another.

    text: Hydra's message. word: that it is about. words: sys.argv.
    """
    if ambiguous := re.match(r"Ambiguous value for argument '(?P<word>.+?)' 1\. To use", text):
        return _several(ambiguous["word"], sweeps=bool(words) and words[0] == "vflbench train")
    if "hydra.cc/docs" not in text and "Error parsing override" not in text:
        return None
    place = words.index(word) if word in words else len(words)
    if split := split_word(words[: place + 1], words[place + 1 :]):
        return split
    if "=" not in word:
        return f"{word or repr(word)}: options are KEY=VALUE"
    advice = "a value with spaces or special characters needs quotes inside those of the shell"
    return f"{word}: it can't be read; {advice}: \"{word.partition('=')[0]}='a b'\""


def split_word(before: Sequence[str], after: Sequence[str]) -> str | None:
    """The sentence where the last word of `before` and its neighbours were one word before the shell split it."""
    word = before[-1] if before else ""
    for start in range(len(before) - 1, -1, -1):  # the beginning may be some words back: attack=[a, b, c]
        if "=" in before[start] and not before[start].startswith("-"):
            break
    else:
        return None
    parts = [*before[start:], *after]
    for count in range(2, len(parts) + 1):
        joined = " ".join(parts[:count])
        if not _open(joined) and _open(parts[0]) and count > len(before) - start - 1:
            return f"{parts[0]}: the shell splits it at its spaces; put quotes around the whole: '{joined}'"
    if _open(parts[0]):
        return f"{parts[0]}: a bracket is not closed"
    key, _, value = parts[0].partition("=")
    if value.endswith(",") and len(parts) > 1 and "=" not in parts[1]:
        return f"{parts[0]}: it ends in a comma; leave out the space behind it: {parts[0]}{parts[1]}"
    if start < len(before) - 1 and "=" not in word and value:
        if key in KEYED_NAMES:
            example = f"several names stand in brackets, in quotes: '{key}=[{value.strip('[]')},{word}]'"
        else:
            example = f"a value with spaces needs quotes inside those of the shell: \"{key}='{value} {word}'\""
        return f"{word}: options are KEY=VALUE; {example}"
    return None


def _several(word: str, *, sweeps: bool) -> str:
    """On `defense=none,marvell`."""
    key, _, value = word.partition("=")
    combines = key in KEYED_NAMES and "[" not in value and "none" not in value.split(",")
    in_one = f"all in one run are '{key}=[{value}]'" if combines else ""
    if sweeps:
        return f"{word}: several values are a sweep, with a run for each: add -m{f'; {in_one}' if in_one else ''}"
    return f"{word}: {in_one or 'it takes one value here'}"


def _open(text: str) -> bool:
    """Whether a bracket is opened in it that isn't closed."""
    return any(text.count(a) > text.count(b) for a, b in ("()", "[]", "{}"))
