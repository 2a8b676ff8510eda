"""`vflbench parties check KIT`: what a party brings, and whether its table, its keys and the label party can be reached."""

import importlib.metadata
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from vflbench.engines.nvflare.kit import ANY, LABEL_PARTY, Kit, read_kit
from vflbench.errors import UserError
from vflbench.hosts.parties import need_flare, refuse_words, split_words
from vflbench.hosts.parties_address import address_of, refuse_stranger, settings_of


def check(words: Sequence[str]) -> None:
    """The command: a line for each thing. Raises UserError for the first that is wrong."""
    path, _, others = split_words(words, "check", "folder of a party", ())
    refuse_words(others, "check")
    need_flare()
    kit = read_kit(Path(path))
    settings_of(kit)
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("vflbench", "nvflare", "torch"))
    print(f"party {kit.party}: {versions}")
    refuse_readable_keys(kit)
    print(f"experiment: {_agreement(kit)}")
    print(f"data: {table_line(kit)}")
    host, port = address_of(kit)
    if kit.party == LABEL_PARTY:
        print(f"server: the others must reach this host, port {port}")
    else:
        refuse_stranger(kit)
        print(f"label party: {host}, port {port}, can be reached, and takes this party's certificate")


def refuse_readable_keys(kit: Kit) -> None:
    """Raise UserError where others on this machine can read a private key or the secret."""
    for file in (*sorted((kit.folder / "startup").glob("*.key")), *sorted((kit.folder / "private").glob("secret"))):
        if stat.S_IMODE(os.stat(file).st_mode) & 0o077:
            raise UserError("others on this machine can read it: chmod 600", key=str(file))


def table_line(kit: Kit) -> str:
    """What is known of the party's table. Raises UserError where it can't be read."""
    places = kit.data.get("path")
    for place in places if isinstance(places, list) else [places] if places else []:
        try:
            with open(place, "rb") as file:
                file.read(1)
        except OSError as error:
            raise UserError(f"it can't be read: {error.strerror}", key="data.path", value=str(place)) from error
    return ", ".join(f"{key}={value}" for key, value in kit.data.items()) or "as the experiment says"


def _agreement(kit: Kit) -> str:
    if kit.agreed is None:
        return "none agreed to, so every run is refused (party.yaml: experiment)"
    if kit.agreed == ANY:
        return "any that the label party asks for"
    return f"one of {len(kit.agreed)} groups of options; another is refused"
