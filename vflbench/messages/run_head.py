"""What a recording of vflbench's own run says about that run, so that an audit repeats its numbers; for the auditor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from vflbench.errors import UserError
from vflbench.messages.manifest import checked, read_json
from vflbench.options import Count
from vflbench.plain_files import in_a_line, is_there

RUN = "run.json"
SAMPLES = "samples"
"""A folder: rows that the run drew from data of which it holds a part at a time, by how many it asked for."""

Rows = Annotated[int, Field(ge=0, le=10**12)]
Steps = Annotated[int, Field(ge=0, lt=10**7)]


@dataclass(frozen=True)
class RunHead:
    """seed, batches, epochs, probe, dcor: of the run, as `audit.batches` and so on. steps: rounds of each epoch, recorded or
    not. recorded: steps of each epoch whose rounds are recorded, where not all are. cheating: parties with an adversary.
    threads: of torch, on which last bits depend. test_rows: of class 0 and of class 1, on which the model is tested; None
    for more classes.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    seed: Annotated[int, Field(ge=0)] = 0
    batches: Count | Literal["all", "auto"] = "auto"
    epochs: Literal["all", "last"] = "all"
    probe: bool = True
    dcor: bool = False
    cheating: Sequence[str] = ()
    steps: Annotated[Sequence[Steps], Field(max_length=10**4)] = field(default_factory=list)
    recorded: Sequence[Sequence[Steps]] = field(default_factory=list)
    threads: Annotated[int, Field(ge=1, le=4096)] = 1
    test_rows: tuple[Rows, Rows] | None = None

    @classmethod
    def read(cls, folder: Path) -> "RunHead | None":
        """None where the recording is of another program. Raises UserError."""
        if not is_there(folder / RUN):
            return None
        content = read_json(folder, RUN)
        try:
            return checked(_HEAD, content)
        except ValueError as error:
            raise UserError(f"{RUN} can't be read: {in_a_line(error)}", key="recording", value=folder) from error

    def check_rounds(self, epochs: Mapping[int, Sequence[int]], folder: Path) -> None:
        """Raises UserError for recorded rounds of which the run doesn't speak: they would not be attacked.

        epochs: epoch -> its recorded steps.
        """
        count = len(self.steps)
        for epoch, steps in epochs.items():
            problem = f"{count} epochs, and there are messages of epoch {epoch}"
            if epoch < count:
                problem = f"{self.steps[epoch]} steps in epoch {epoch}, and there are messages of step {steps[-1]}"
            if epoch >= count or steps[-1] >= self.steps[epoch]:
                raise UserError(f"{RUN} speaks of {problem}", key="recording", value=folder)

    def expected(self, epoch: int, *, complete: bool) -> Sequence[int]:
        """The steps of an epoch that must be recorded."""
        if complete:
            return range(self.steps[epoch])
        return self.recorded[epoch] if epoch < len(self.recorded) else ()


_HEAD: TypeAdapter[RunHead] = TypeAdapter(RunHead)
