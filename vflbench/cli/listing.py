"""`vflbench list [GROUP] [--plugins DIR] [--config-dir DIR]`."""

from collections.abc import Sequence
from pathlib import Path

from vflbench.cli.catalog import catalog, table
from vflbench.cli.plugins import FLAG, split_plugins, use_plugins
from vflbench.cli.words import Words
from vflbench.errors import UserError
from vflbench.places import config_folder


def list_choices(arguments: Sequence[str]) -> None:
    """Print a line for each choice."""
    named, words = split_plugins(arguments)
    parser = Words(prog="vflbench list", description="What can be chosen, one line each.")
    parser.add_argument("group", nargs="?", help="dataset, model, defense, attack, ...; by default all")
    parser.add_argument(FLAG, metavar="DIR", help="a folder with modules and configs of your own; may be repeated")
    parser.add_argument("--config-dir", "-cd", metavar="DIR", help="a folder with configs of your own")
    options = parser.parse_args(words)
    folders = [config_folder(), *use_plugins(named)]
    if options.config_dir is not None:
        if not Path(options.config_dir).is_dir():
            raise UserError("there is no such folder", key="--config-dir", value=options.config_dir)
        folders.append(Path(options.config_dir))
    print(table(catalog(folders, options.group)))
