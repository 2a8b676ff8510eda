"""What can be chosen and set, read from the comments of the configs: `vflbench list`, `train --help`, tab completion.

The first comments of a choice's file describe it: what it does, `Source: `, `Threat: ` of an attack, `Cost: ` of an
experiment. The comment behind an option explains it. Nothing is imported to be listed.
"""

import io
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from vflbench.cli.command_line import hand_over_to_hydra
from vflbench.cli.config import (
    GROUPS,
    KEYED_NAMES,
    SINGLE_NAMES,
    choices,
    leaves,
    read_config,
    run_options,
    split_flag,
    use_plugins,
)
from vflbench.cli.config import PLUGINS_FLAG as PLUGINS
from vflbench.cli.main import Words
from vflbench.errors import UserError, nearest, printable
from vflbench.files import config_folder
from vflbench.report.published import comments_of
from vflbench.results.terminal import WIDTH, wrapped

_COLUMN = 30
"""Where the words on an option begin."""
_CHOICES = (
    "Choices, as GROUP=NAME; defense and attack also take lists, 'attack=[norm,spectral]'. `vflbench list GROUP` says what "
    "each choice does."
)
_PLAIN = re.compile(r"[\w./@:=+~,%-]+")
"""A suggestion: shells expand them, so that `$(...)` in the name of a file would be executed."""
_RUN = "vflbench.cli.train:train_one"
_AUDIT_FLAGS = ("--fail-above", "--scores-only", "--labels", "--out", "--class-shares")


def list_choices(arguments: Sequence[str]) -> None:
    """`vflbench list [GROUP] [--plugins DIR] [--config-dir DIR]`: a few lines for each choice."""
    named, words = split_flag(arguments)
    parser = Words(prog="vflbench list", description="What can be chosen, one line each.")
    parser.add_argument("group", nargs="?", help="dataset, model, defense, attack, ...; by default all")
    parser.add_argument(PLUGINS, metavar="DIR", help="a folder with modules and configs of your own; may be repeated")
    parser.add_argument("--config-dir", "-cd", metavar="DIR", help="a folder with configs of your own")
    options = parser.parse_args(words)
    folders = [config_folder(), *use_plugins(named)]
    if options.config_dir is not None:
        if not Path(options.config_dir).is_dir():
            raise UserError("there is no such folder", key="--config-dir", value=options.config_dir)
        folders.append(Path(options.config_dir))
    print(listing(folders, options.group))


def listing(folders: Sequence[Path], group: str | None = None) -> str:
    """The choices of one group, or of all, in 80 columns. folders: of configs; of two with one name the first counts."""
    named = {name: name for name in GROUPS} | {re.sub("ys$", "ies", f"{name}s"): name for name in GROUPS}
    if group is not None and group not in named:
        near = nearest(group, GROUPS) or f"; there are {', '.join(GROUPS)}"
        raise UserError(f"there is no such group{near}", key=f"vflbench list {group}")
    blocks = []
    for name in GROUPS if group is None else (named[group],):
        files = {file.stem: file for folder in reversed(folders) for file in (folder / name).glob("*.yaml")}
        margin = max(map(len, files), default=0) + 4
        lines = [name]
        for stem, file in sorted(files.items()):
            first, *others = wrapped(_described(name, file), width=WIDTH - margin) or [""]
            lines += [f"  {printable(stem):<{margin - 4}}  {first}", *(f"{' ' * margin}{line}" for line in others)]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _described(group: str, file: Path) -> str:
    """What a choice does, who attacks, where it comes from and what it costs."""
    if not file.is_relative_to(config_folder()):
        try:
            read_config(file)  # refuses what is no plain file, before anything waits for it
        except UserError as error:
            return f"can't be used: {error}"
    words = comments_of(file)
    cost = words["cost"] if group == "experiment" else ""
    parts = [words["does"], words["threat"] and f"[{words['threat']}]", words["source"] and f"({words['source']})"]
    return "  ".join(part for part in (*parts, cost and f"[{cost}]") if part)


def options_text(config: DictConfig, folders: Sequence[Path]) -> str:
    """`vflbench train --help`: what can be chosen, and each option with its value and what it means, in 80 columns.

    config: composed as it would run, with Hydra's part. folders: of configs, ours first.
    """
    options: Any = OmegaConf.to_container(run_options(config))
    words = explanations(folders, config.hydra.runtime.choices, options)
    lines = [*wrapped(str(config.hydra.help.header)), "", *wrapped(_CHOICES)]
    for group in sorted(GROUPS):
        names = wrapped(", ".join(choices(folders, group)), width=WIDTH - 2)
        lines += ["", f"{group}:", *(f"  {line}" for line in names)]
    lines += ["", "Options, as KEY=VALUE, with their current values:"]
    above = None
    for key, value in leaves(options, ""):
        if key.endswith("_target_"):
            continue
        block = key.split(".")[0] if "." in key else ""
        lines += [""] if block != above else []
        above = block
        none = f"none is chosen; {key}=NAME chooses one" if value == {} and key in GROUPS else ""
        of_all = words.pop(key.rpartition(".")[0], "")  # of a mapping, as the types of columns: with the first entry
        lines += option_lines(f"{key}={_text(value)}", none or words.get(key, of_all))
    return "\n".join([*lines, "", str(config.hydra.help.footer)])


def explanations(folders: Sequence[Path], choices: Mapping[Any, Any], options: Mapping[Any, Any]) -> dict[str, str]:
    """Dotted key -> the comment behind the option in its config.

    choices: group -> the name that is chosen. options: as they would run. Of configs with the same name, the last folder's
    counts.
    """
    chosen = [(group, group, choices.get(group)) for group in SINGLE_NAMES]
    for group in KEYED_NAMES:
        for name, node in (options.get(group) or {}).items():
            of_class = str(node.get("_target_")).split(".")[-2:][0]  # of an attack twice in a set: attack.completion_both
            chosen += [(group, f"{group}.{name}", of_class), (group, f"{group}.{name}", name)]
    words: dict[str, str] = {}
    for folder in folders:
        for group, key, name in chosen:
            file = folder / group / f"{name}.yaml"
            if file.is_file():
                begins = "" if sets_options(file) else f"{group}."
                said = {f"{begins}{option}": text for option, text in comments(file).items()}
                words |= said | {f"{key}.{option.removeprefix(f'{group}.{name}.')}": text for option, text in said.items()}
        words |= comments(folder / "train.yaml") if (folder / "train.yaml").is_file() else {}
    return words


def sets_options(file: Path) -> bool:
    """Whether a config also sets options outside its group."""
    return "# @package _global_" in file.read_text(encoding="utf-8")


def comments(file: Path) -> dict[str, str]:
    """Dotted key -> the comment on its line of a YAML file."""
    words: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        match = re.match(r"^( *)([\w.-]+):(?:\s+(.*))?$", line)
        if match is None:
            continue
        indent, rest = len(match[1]), match[3] or ""
        above = [*((at, name) for at, name in above if at < indent), (indent, match[2])]
        comment = re.search(r"(?:^|\s)#\s+(.*)$", rest)
        if comment:
            words[".".join(name for _, name in above)] = comment[1].strip()
    return words


def option_lines(option: str, words: str) -> list[str]:
    """`  epochs=2                 passes over the rows`, with more lines under the words."""
    start = f"  {printable(option)}"
    if not words:
        return [start]
    made, margin = wrapped(words, width=WIDTH - _COLUMN), " " * _COLUMN
    if len(start) < _COLUMN:
        return [f"{start:<{_COLUMN}}{made[0]}", *(f"{margin}{line}" for line in made[1:])]
    return [start, *(f"{margin}{line}" for line in made)]


def _text(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def complete(arguments: Sequence[str], commands: Sequence[str]) -> None:
    """Print what can follow the line in COMP_LINE, or, on `-sc install=bash`, the script that sets completion up.

    Options of `train`, `audit` and `prepare` are completed by Hydra, for the line without what it doesn't know: the command,
    --plugins folders, and of an audit the recording and the flags. Folders are completed by the shell.
    """
    if arguments[1:] != ["query=bash"]:
        hand_over_to_hydra(_RUN)
        return
    line = os.environ.get("COMP_LINE", "")
    program, *words = line.split() or [""]
    typed = words.pop() if words and not line.endswith(" ") else ""
    command = words.pop(0) if words else ""
    if command in ("", "list", "reproduce"):
        experiments = choices([config_folder()], "experiment")
        print(" ".join({"": commands, "list": GROUPS, "reproduce": experiments}[command]))
    if command not in ("train", "audit", "prepare"):
        return
    try:
        named, words = split_flag(words)
        use_plugins(named)
    except UserError:
        return
    if command == "audit":
        if typed.startswith("-") or (words and words[-1] in _AUDIT_FLAGS) or not any("=" not in word for word in words):
            return
        after = zip(["", *words], words, strict=False)
        words = [word for flag, word in after if "=" in word and not word.startswith("-") and flag not in _AUDIT_FLAGS]
    os.environ["COMP_LINE"] = " ".join([program, *words, typed])
    with redirect_stdout(io.StringIO()) as answer:
        hand_over_to_hydra(_RUN, "audit" if command == "audit" else "train")
    print(" ".join(word for word in answer.getvalue().split() if word.startswith(typed) and _PLAIN.fullmatch(word)))
