"""What became of a run in the label party's process, in a file for whoever started it."""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

from vflbench.cli.sweep import JobOutcome, Status
from vflbench.errors import UserError
from vflbench.plain_files import written_whole
from vflbench.run.interruption import Interrupted


@dataclass(frozen=True)
class Outcome:
    """status: of a `JobOutcome`, or "error" or "interrupted". reason: one paragraph. code: with which a command ends."""

    status: str
    test_auc: float = math.nan
    reason: str = ""
    code: int = 1

    def taken(self) -> JobOutcome:
        """As if the run had been in this process. Raises UserError or Interrupted where it ended so."""
        if self.status == "interrupted":
            raise Interrupted(self.reason, self.code)
        if self.status == "error":
            raise UserError(self.reason)
        return JobOutcome(Status(self.status), self.test_auc, self.reason)


def outcome_of_error(error: BaseException) -> Outcome:
    """Of a run that ended early."""
    from vflbench.cli.mistakes import describe

    if isinstance(error, Interrupted):
        return Outcome("interrupted", reason=error.message, code=error.exit_code)
    text = describe(error) if isinstance(error, Exception) else None
    return Outcome("error", reason=text or f"the label party's process failed ({type(error).__name__}: {error})")


def leave_outcome(path: Path, outcome: Outcome) -> None:
    with written_whole(path, "w", private=True, encoding="utf-8") as file:
        json.dump(asdict(outcome), file)


def read_outcome(path: Path) -> Outcome | None:
    """None where there is none yet."""
    if not path.exists():
        return None
    return Outcome(**json.loads(path.read_text(encoding="utf-8")))
