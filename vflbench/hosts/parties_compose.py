"""`vflbench parties compose FILE`: an experiment as a file, for all parties to read and to agree to."""

import os
from collections.abc import Sequence
from pathlib import Path

import yaml

from vflbench.engines.nvflare.kit import shared
from vflbench.errors import UserError
from vflbench.hosts.parties import split_words
from vflbench.plain_files import written_whole


def compose(words: Sequence[str]) -> None:
    """The command: what would run is built, and written without the options that are the label party's own."""
    from vflbench.cli.build import build
    from vflbench.cli.config import composed, current_config, own_options, plain, with_privacy
    from vflbench.cli.train import with_quoted_marks

    path, _, overrides = split_words(words, "compose", "file", ())
    if os.path.lexists(path):
        raise UserError("it is there already; a file is never overwritten", key="FILE", value=path)
    words = [*with_quoted_marks(with_privacy(overrides)), "engine=nvflare", "engine.mode=provisioned"]
    config = composed("train", words)
    with current_config(config):
        chosen = own_options(config)
        build(chosen)
        options = shared(plain(chosen))
    text = yaml.safe_dump(options, sort_keys=False, allow_unicode=True)
    with written_whole(Path(path), "w", encoding="utf-8") as file:
        file.write(
            f"# An experiment of vflbench, to be named in party.yaml under `experiment:` by all who agree to it.\n{text}"
        )
    print(f"{path}: every party that agrees puts it in its folder, and its name in party.yaml under experiment")
