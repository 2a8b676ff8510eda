"""TensorBoard: writes event files to the run's folder."""

import importlib.util
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vflbench.errors import UserError
from vflbench.options import options
from vflbench.places import pip_install
from vflbench.results.files import EVENTS
from vflbench.results.loggers.base import Logger, defined, figures, tag
from vflbench.results.rows import Row


@options
class Tensorboard(Logger):
    """Scalars per epoch as TensorBoard event files, in the folder `tensorboard` of each run.

    `tensorboard --logdir outputs` shows all runs. A step is an epoch. TensorBoard stores values as float32 and no intervals,
    which are in metrics.csv.

    Source: https://www.tensorflow.org/tensorboard
    """

    def __post_init__(self) -> None:
        if importlib.util.find_spec("tensorboard") is None:
            raise UserError(f"it needs the package tensorboard: {pip_install('tensorboard')}", key="logger=tensorboard")

    def begin(self, folder: Path, config: Mapping[str, Any], manifest: Mapping[str, Any], rows: Sequence[Row]) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        events = folder / EVENTS
        for file in events.glob("events.out.tfevents.*"):  # an earlier run's; what else lies there isn't ours
            file.unlink()
        self._writer = EventFileWriter(str(events))
        self._last = 0
        self.write(rows)

    def write(self, rows: Sequence[Row]) -> None:
        for row in defined(rows):
            self._add(tag(row), row.value, row.epoch)
            self._last = max(self._last, row.epoch)
        self._writer.flush()

    def finish(self, summary: Mapping[str, Any]) -> None:
        for name, value in figures(summary).items():
            self._add(f"summary/{name}", value, self._last)
        self._writer.close()

    def stop(self) -> None:
        self._writer.close()

    def _add(self, name: str, value: float, step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        summary = Summary(value=[Summary.Value(tag=name, simple_value=value)])
        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))
