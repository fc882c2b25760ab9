"""Structured logs: one JSON object a line, without bodies and without values."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

NAME = "forestall.serve"


class JsonLines(logging.Formatter):
    """Writes a record as one line of JSON; of an exception only its kind."""

    def format(self, record: logging.LogRecord) -> str:
        """Write one line."""
        told: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(
                timespec="milliseconds"
            ),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "told", {}),
        }
        if record.exc_info and record.exc_info[0]:
            # The message and the source of an exception may quote a body.
            told["cause"] = record.exc_info[0].__name__
        return json.dumps(told)


def log_config() -> dict[str, Any]:
    """How uvicorn and the service log, as ``logging.config`` reads it."""
    quiet = {"handlers": ["lines"], "level": "WARNING", "propagate": False}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": f"{__name__}.JsonLines"}},
        "handlers": {
            "lines": {
                "class": "logging.StreamHandler",
                "formatter": "json",
                # The real one: what is shown while loading takes the place of the
                # other for a while.
                "stream": "ext://sys.__stderr__",
            }
        },
        "loggers": {
            "uvicorn": quiet,
            "uvicorn.error": quiet,
            NAME: {**quiet, "level": "INFO"},
        },
    }
