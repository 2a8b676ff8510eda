"""A run begins, or resumes from its checkpoint; and it saves its progress."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from vflbench.errors import UserError
from vflbench.messages.channel import PartyError
from vflbench.plain_files import in_a_line
from vflbench.results.recorder import Recorder
from vflbench.run.checkpoint import Checkpoint, UnusableCheckpointError
from vflbench.run.progress import Progress


def begin_or_go_on(progress: Progress, recorder: Recorder, checkpoint: Checkpoint, **facts: Any) -> None:
    """facts: for manifest.json, among them `device`, and `data` with its fingerprint.

    Raises UserError where resuming would mix two runs. Raises UnusableCheckpointError, perhaps with the progress half
    restored.
    """
    state = checkpoint.load()
    if state is None:
        recorder.begin(**facts)
        return
    if state.get("data") != facts["data"]["fingerprint"]:
        raise UserError(
            f"the data is no longer what this run was trained on until it stopped, so it can't go on; bring the former data "
            f"back, or begin anew with overwrite=true ({checkpoint.path})",
            key="dataset",
        )
    if state.get("device") != facts["device"]:
        problem = f"this run was begun on {state.get('device')} and can only go on there; overwrite=true begins it anew"
        raise UserError(problem, key="device", value=facts["device"])
    try:
        if not recorder.ends_a_line(state["metrics_bytes"]):
            raise UnusableCheckpointError(f"{checkpoint.path.name} is of a run with another metrics.csv")
        progress.restore(state)
    except (UnusableCheckpointError, PartyError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # whatever a state that does not fit does to those it is given to
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UnusableCheckpointError(f"{checkpoint.path.name} does not fit this run ({reason})") from error
    checkpoint.gone_on = True
    recorder.go_on(state["metrics_bytes"], str(progress), **facts)


@contextmanager
def blaming(checkpoint: Checkpoint) -> Iterator[None]:
    """While entered, a fault in a run that has gone on from a file is a UserError: the file or the code may be wrong."""
    try:
        yield
    except (UserError, UnusableCheckpointError, OSError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        if not checkpoint.gone_on:
            raise
        problem = (
            f"the run failed after it had gone on from {checkpoint.path} ({type(error).__name__}: {in_a_line(error, 200)}); "
            "the traceback is in error.txt; overwrite=true begins anew, where the file may be another's or damaged"
        )
        raise UserError(problem, key="checkpoint", value=checkpoint.wanted) from error


def save(progress: Progress, recorder: Recorder, checkpoint: Checkpoint, **facts: Any) -> str:
    """Write the checkpoint. Returns a message for a user who stops the run here."""
    place = {"data": facts["data"]["fingerprint"], "device": facts["device"], "metrics_bytes": recorder.length}
    known = checkpoint.refused
    if checkpoint.wanted != "none" and checkpoint.save({**place, **progress.state()}):
        command = "the same command without overwrite=true" if checkpoint.fresh else "the same command"
        return f"stopped before {progress}, and saved; {command} goes on from there ({recorder.folder})"
    if checkpoint.refused is None:
        return f"stopped before {progress}; checkpoint=none saves nothing to go on from ({recorder.folder})"
    if known is None:
        recorder.say(f"this run can't go on if it stops: no checkpoint can hold {checkpoint.refused}", always=True)
    return f"stopped before {progress}; no checkpoint can hold {checkpoint.refused} ({recorder.folder})"
