"""Tab completion: Hydra's, for a command line without the command and its --plugins folders."""

import os
import re
from collections.abc import Sequence

from vflbench.cli.plugins import split_plugins, use_plugins
from vflbench.errors import UserError


def complete(arguments: Sequence[str], commands: Sequence[str]) -> None:
    """Print what can follow the line in COMP_LINE, or, on `-sc install=bash`, the script that sets completion up."""
    line = os.environ.get("COMP_LINE", "")
    words = line.split()
    typing_command = len(words) < 2 or (len(words) == 2 and not line.endswith(" "))
    if arguments[1:] == ["query=bash"] and (typing_command or words[1] == "list"):
        from vflbench.cli.catalog import GROUPS

        print(" ".join(commands if typing_command else GROUPS))
        return
    if words[1:2] == ["report"]:
        return  # folders, which the shell completes
    if len(words) > 1:
        try:
            named, words = split_plugins(re.sub(r"^(\s*\S+\s+)(train|prepare)\b", r"\1", line).split())
            use_plugins(named)
        except UserError:  # a folder that is still being typed, which the shell completes
            return
        os.environ["COMP_LINE"] = " ".join(words) + (" " if line.endswith(" ") else "")
    from vflbench.cli.train import hand_over_to_hydra, train_one

    hand_over_to_hydra(train_one)
