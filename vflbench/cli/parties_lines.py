"""What `vflbench parties start` prints: a line for what matters of all that FLARE logs. log.txt in the kit has everything."""

import logging
import sys
import time

SAID = {
    "Successfully registered client": "connected to the label party",
    "Server started": "ready: waiting for parties",
    "Client: New client": "a party has connected",
    "Launch the job in process": "a run begins",
    "Client worker process is terminated": "the run has ended",
    "Server app stopped": "the run has ended",
}
"""The beginning of a record -> what is printed."""


class Lines(logging.Handler):
    """A handler that prints records of SAID, and nothing else."""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        for beginning, said in SAID.items():
            if beginning in text:
                print(f"{time.strftime('%H:%M:%S')} {said}", file=sys.stdout, flush=True)
                return
