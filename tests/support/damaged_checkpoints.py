"""What can be wrong with the file of a checkpoint: name -> function that damages the one at a path."""

import os
import pickle
import zipfile

import torch
from support.hostile_runs import with_value as changed  # noqa: F401


class Bomb:
    def __reduce__(self):
        return (os.mkdir, ("executed",))


def flip(path):
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)


def packed_again(path, how=zipfile.ZIP_STORED, pickled=None):
    """With this compression, and this pickle in place of its own."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", how) as archive:
        for name, content in members.items():
            archive.writestr(name, pickled if pickled and name.endswith("data.pkl") else content)


def pipe(path):
    path.unlink()
    os.mkfifo(path)


def link(path):
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


DAMAGE = {
    "a bit flipped": flip,
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "a bare pickle that acts": lambda path: path.write_bytes(pickle.dumps(Bomb())),
    "a pickle that acts, in the right file": lambda path: packed_again(path, pickled=pickle.dumps(Bomb())),
    "compressed": lambda path: packed_again(path, zipfile.ZIP_DEFLATED),
    "a pipe": pipe,
    "a link": link,
    "another program's": lambda path: torch.save([1, 2], path),
    "another version's": lambda path: torch.save({"format": 0}, path),
}
