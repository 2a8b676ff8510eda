"""What can be wrong with the file of a checkpoint: name -> function that damages the one at a path."""

import os
import pickle
import zipfile

import torch


class Bomb:
    def __reduce__(self):
        return (os.mkdir, ("executed",))


def flip(path):
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)


def bomb(path):
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, pickle.dumps(Bomb()) if name.endswith("data.pkl") else content)


def compressed(path):
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def pipe(path):
    path.unlink()
    os.mkfifo(path)


def link(path):
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def changed(node, place, value):
    """A copy of a state with that value at a place."""
    key, *rest = place
    value = changed(node[key], rest, value) if rest else value
    if isinstance(node, dict):
        return {**node, key: value}
    return [value if i == key else old for i, old in enumerate(node)]


DAMAGE = {
    "a bit flipped": flip,
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "empty": lambda path: path.write_bytes(b""),
    "a bare pickle that acts": lambda path: path.write_bytes(pickle.dumps(Bomb())),
    "a pickle that acts, in the right file": bomb,
    "compressed": compressed,
    "a pipe": pipe,
    "a link": link,
    "another program's": lambda path: torch.save([1, 2], path),
    "another version's": lambda path: torch.save({"format": 0}, path),
}
