"""The private batches of federated training in a recording: the truth that answers are graded against."""

import os
from pathlib import Path

import torch
from safetensors.torch import save_file

from vflbench.errors import UserError
from vflbench.messages.message_batch import check_bytes
from vflbench.messages.round import PrivateBatch
from vflbench.messages.safetensors_file import read_header, read_part
from vflbench.plain_files import in_a_line, is_there, open_plain, replaced

PRIVATE = "private"


def write_private(folder: Path, epoch: int, step: int, batch: PrivateBatch) -> None:
    """Write the private batch of a round, in place of an earlier one."""
    path = _path(folder, epoch, step)
    path.parent.mkdir(exist_ok=True)
    tensors = {"x": batch.x, "y": batch.y, "steps": batch.steps}
    plain = {name: values.detach().cpu().clone().contiguous() for name, values in tensors.items()}
    with replaced(path) as temporary:
        save_file(plain, os.fspath(temporary), metadata={"owner": batch.owner})


def read_private(folder: Path, epoch: int, step: int) -> PrivateBatch | None:
    """The private batch of a round; None if there is none. Raises UserError for a file that holds something else."""
    path = _path(folder, epoch, step)
    if not is_there(path):
        return None
    try:
        metadata, parts = read_header(path)
        check_bytes(sum(part.bytes for part in parts.values()), path.name)
        with open_plain(path) as file:
            x, y, steps = (read_part(file, parts[name]) for name in ("x", "y", "steps"))
        if x.ndim != 2 or y.ndim != 1 or steps.ndim != 1 or not len(x) == len(y) == len(steps):
            raise ValueError("x must be (m, d), y and steps (m,)")
        if not bool(x.double().isfinite().all()) or not bool(y.abs().eq(1).all()) or steps.dtype.is_floating_point:
            raise ValueError("x must be finite, y -1 or 1, steps whole numbers")
    except Exception as error:  # whatever comes of content that no recorder has written
        problem = f"{path.relative_to(folder)} can't be read: {in_a_line(error)}"
        raise UserError(problem, key="recording", value=folder) from error
    return PrivateBatch(metadata.get("owner", "")[:200], x, y, steps.to(torch.int64))


def _path(folder: Path, epoch: int, step: int) -> Path:
    return folder / PRIVATE / f"{epoch:04d}_{step:08d}.safetensors"
