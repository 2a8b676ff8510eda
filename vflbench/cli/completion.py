"""Tab completion: Hydra's, for a command line without the command and its --plugins folders."""

import io
import os
import re
from collections.abc import Sequence
from contextlib import redirect_stdout

from vflbench.cli.plugins import FLAG as PLUGINS
from vflbench.cli.plugins import split_plugins, use_plugins
from vflbench.errors import UserError

_PLAIN = re.compile(r"[\w./@:=+~,%-]+")
"""A suggestion: shells expand them, so that `$(...)` in the name of a file would be executed."""

_WITH_VALUE = ("--fail-above", "--scores-only", "--labels", "--out")


def complete(arguments: Sequence[str], commands: Sequence[str]) -> None:
    """Print what can follow the line in COMP_LINE, or, on `-sc install=bash`, the script that sets completion up."""
    line = os.environ.get("COMP_LINE", "")
    words = line.split()
    typing_command = len(words) < 2 or (len(words) == 2 and not line.endswith(" "))
    if arguments[1:] == ["query=bash"] and (typing_command or words[1] == "list"):
        from vflbench.cli.groups import GROUPS

        print(" ".join(commands if typing_command else GROUPS))
        return
    if words[1:2] == ["reproduce"]:
        from vflbench.places import config_folder

        print(" ".join(sorted(file.stem for file in (config_folder() / "experiment").glob("*.yaml"))))
        return
    if words[1:2] in (["report"], ["grade"], ["parties"]):
        return  # folders, which the shell completes
    is_audit = words[1:2] == ["audit"]
    if is_audit:
        line = _without_recording(line)
        if not line:
            return
    if len(words) > 1:
        try:
            named, words = split_plugins(re.sub(r"^(\s*\S+\s+)(train|audit|prepare)\b", r"\1", line).split())
            use_plugins(named)
        except UserError:  # a folder that is still being typed, which the shell completes
            return
        os.environ["COMP_LINE"] = " ".join(words) + (" " if line.endswith(" ") else "")
    from vflbench.cli.train import hand_over_to_hydra, train_one

    if not any(word.startswith("query=") for word in arguments[1:]):
        hand_over_to_hydra(train_one, "audit" if is_audit else "train")
        return
    with redirect_stdout(io.StringIO()) as answer:
        hand_over_to_hydra(train_one, "audit" if is_audit else "train")
    typed = "" if line.endswith(" ") else line.split()[-1]
    print(" ".join(word for word in answer.getvalue().split() if word.startswith(typed) and _PLAIN.fullmatch(word)))


def _without_recording(line: str) -> str:
    """The line of an audit without the recording and the flags, which Hydra doesn't know. Empty while one of these is being
    typed: the shell completes files and folders.
    """
    start, words = line.split()[:2], line.split()[2:]
    typed = words.pop() if words and not line.endswith(" ") else ""
    options: list[str] = []
    recording, flag = "", ""
    for word in words:
        if flag:
            options += [flag, word] if flag == PLUGINS else []
            flag = ""
        elif word.startswith("-"):
            flag = word if word in (*_WITH_VALUE, PLUGINS) else ""
            options += [word] if word.startswith(f"{PLUGINS}=") else []
        elif "=" in word:
            options.append(word)
        else:
            recording = word
    return "" if flag or typed.startswith("-") or not recording else " ".join([*start, *options, typed])
