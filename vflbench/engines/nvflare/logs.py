"""Where FLARE's log lines go: to a file in the folder of each site, and never to the terminal or to another site."""

from typing import Any

CONFIG: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(asctime)s %(name)s %(levelname)s %(message)s"}},
    "handlers": {
        "logFileHandler": {
            "class": "logging.handlers.RotatingFileHandler",
            "level": "INFO",
            "formatter": "plain",
            "filename": "log.txt",
            "mode": "a",
            "maxBytes": 20 << 20,
            "backupCount": 2,
        }
    },
    "loggers": {
        "root": {"level": "INFO", "handlers": ["logFileHandler"]},
        "nvflare.collab": {"level": "WARNING"},  # a line for each call, before and after
    },
}
"""For Python's logging.config.dictConfig, as FLARE reads it from local/log_config.json."""
