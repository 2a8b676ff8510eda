"""What `vflbench parties start` prints: a line for what matters of FLARE's log, which is in log.txt of the kit."""

import logging
import sys
import time

SAID = {
    "Successfully registered client": "connected to the label party",
    "Server started": "ready: waiting for parties",
    "Client: New client": "a party has connected",
    "Launch the job in process": "a run begins",
    "child worker process finished": "the run has ended",
    "Server app stopped": "the run has ended",
    "no connection to server": "the label party can't be reached; trying again",
    "CertificateError": "who answers at the label party's address is not of this project",
    "BYOC not permitted": "refused a run that brings code",
    "component not authorized": "refused a run that asks for other classes than vflbench's",
}
"""What a record of FLARE's contains -> what is printed, once until something else is."""

LOST = SAID["no connection to server"]


class Lines(logging.Handler):
    """A handler that prints records of SAID, and nothing else."""

    def __init__(self, level: int = logging.NOTSET):
        super().__init__(level)
        self._last = ""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        said = next((said for part, said in SAID.items() if part in text), "")
        if not said and self._last == LOST and "SSL" in text and "is created" in text:
            said = "connected to the label party again"
        if said and (said != self._last or said.startswith("a ")):
            print(f"{time.strftime('%H:%M:%S')} {said}", file=sys.stdout, flush=True)
            self._last = said
