"""What a run's numbers depend on beside its options: our code, its plug-ins and what they import, its data files."""

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from vflbench import __version__
from vflbench.errors import UserError
from vflbench.results.identity import essential
from vflbench.run.file_digests import data_digests
from vflbench.run.own_code import code_digest, edited_while_running
from vflbench.run.plugin_files import edited, in_use, listing
from vflbench.run.plugin_imports import outside_modules
from vflbench.run.plugin_modules import checks_its_source
from vflbench.run.sources import class_modules, plugin_digests


def origin_of(config: Mapping[str, Any], folders: Sequence[Path] = ()) -> dict[str, Any]:
    """The entry `identity` of a run's manifest. With the essential options it decides the numbers, up to rounding.

    config: a run's, resolved; the configs' defaults are in it. folders: its plug-in folders.

    vflbench, code: our version, and the digest of our sources that decide numbers (`run.own_code`).
    plugins: if the run uses a class from a plug-in folder, path -> SHA-256 of every file in every folder in use, a mapping a
    folder. Which files a module imports or reads can't be known before it runs, so all count. Where a folder lies and what
    it is called doesn't.
    imports: of other modules that plug-ins import (`run.plugin_imports`), and of classes that are in no plug-in folder.
    data: option -> SHA-256 of the files that it names (`run.file_digests`). The time of a file doesn't count.

    Not in it, because they decide no more than rounding: versions of torch, numpy and other packages, device, threads and
    machine. The manifest has them, a finished run that is shown names those that differ, and a report never averages over
    devices, and says where versions differ. Not in it, because nobody can know it: what a plug-in reads from places that no
    option names, such as the network, the clock or the environment.
    """
    used = in_use(folders) if uses_plugins(config, in_use(folders)) else ()
    return {
        "vflbench": __version__,
        "code": code_digest(),
        "plugins": [dict(listing(folder)) for folder in used],
        "imports": _classes_elsewhere(config, folders) | dict(outside_modules(used)),
        "data": data_digests(config),
    }


def uses_plugins(config: Mapping[str, Any], folders: Sequence[Path]) -> bool:
    """Whether a class of a configuration, or any text in it of the form MODULE.NAME or MODULE:NAME, may be from a folder."""
    wanted = class_modules(config)
    texts = {text.replace(":", ".").partition(".")[0] for text in _texts(essential(config)) if "." in text or ":" in text}
    tops = {module.partition(".")[0] for module in wanted} | texts
    return any(top in _top_names(folder) for folder in folders for top in tops if top)


def _classes_elsewhere(config: Mapping[str, Any], folders: Sequence[Path]) -> dict[str, str]:
    """Module -> digest of its source, of classes that are neither ours nor in a plug-in folder; or `absent`."""
    tops = {top for folder in in_use(folders) for top in _top_names(folder)}
    named = {module for module in class_modules(config) if module.partition(".")[0] not in tops}
    return dict.fromkeys(named, "absent") | (plugin_digests(config, in_use(folders)) if named else {})


@cache
def _top_names(folder: Path) -> frozenset[str]:
    return frozenset(child.name.partition(".")[0] for child in folder.iterdir())


def _texts(node: Any) -> list[str]:
    if isinstance(node, Mapping):
        return [text for child in node.values() for text in _texts(child)]
    if isinstance(node, list | tuple):
        return [text for child in node for text in _texts(child)]
    return [node] if isinstance(node, str) else []


def refuse_edited(folders: Sequence[Path], origin: Mapping[str, Any], *, loaded_suffices: bool = False) -> None:
    """Raise UserError if a plug-in was edited since this process read it: what runs would not be what the identity says.

    loaded_suffices: go on where only modules were edited that are loaded already, as later runs of a sweep may.
    """
    for folder in in_use(folders) if origin["plugins"] else ():
        names = edited(folder)
        if loaded_suffices:
            names = [name for name in names if not _is_loaded(folder / name)]
        if names:
            problem = f"{names[0]} was edited since this command began; run the same command again"
            raise UserError(f"{problem} (in Python, in a new process)", key="--plugins", value=folder)


def _is_loaded(file: Path) -> bool:
    """Whether a module in this process was made from this file, as its folder's listing has it."""
    return any(
        getattr(module, "__file__", None) == str(file) and checks_its_source(module) for module in list(sys.modules.values())
    )


def refuse_changed_data(config: Mapping[str, Any], origin: Mapping[str, Any], loaded: Mapping[str, Any]) -> None:
    """Raise UserError if the rows that were loaded aren't those of the files that the identity stands for.

    loaded: what the manifest says of the data. Prepared data is found by the size and time of its file: this is also the
    check against a file that was replaced by another of the same size and time.
    """
    hashes, ours = _flat(loaded.get("file_sha256")), _flat((origin["data"] or {}).get("dataset.path"))
    if "::" in str(loaded.get("path")):  # members of an archive have digests of their own
        hashes = set()
    of_other_bytes = bool(hashes and ours) and not hashes <= ours
    if of_other_bytes or data_digests(config) != origin["data"]:
        why = (
            "prepared data of its former content is in the cache; touch the file"
            if of_other_bytes
            else "run the same command again"
        )
        path = (config.get("dataset") or {}).get("path")
        raise UserError(
            f"a file changed while this command read it, or before in a way that keeps its time; {why}", **_at(path)
        )


def _at(path: Any) -> dict[str, Any]:
    return {"key": "dataset.path", "value": path} if path else {"key": "dataset"}


def _flat(value: Any) -> set[str]:
    values = value if isinstance(value, list) else [value]
    return {str(one).rpartition(" ")[2] for one in values if one}


def changed_on_the_way(folders: Sequence[Path], origin: Mapping[str, Any]) -> list[str]:
    """What was edited while a run was under way, so that its numbers belong to no version: for the manifest."""
    changed = ["vflbench's own code"] if edited_while_running() else []
    for folder in in_use(folders) if origin["plugins"] else ():
        changed += [f"plug-in file {name}" for name in edited(folder) if not _is_loaded(folder / name)]
    return changed
