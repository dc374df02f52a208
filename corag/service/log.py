"""What happened, a line of JSON each, on standard error. Questions are left out, unless they are wanted."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from corag.core.system.process import unix_time

Log = Callable[..., None]


def log_line(event: str, **fields: Any) -> None:
    """Write a line. ``fields``: JSON values; None is left out."""
    record = {"time": round(unix_time(), 3), "event": event}
    record |= {name: value for name, value in fields.items() if value is not None}
    sys.stderr.buffer.write(orjson.dumps(record, default=str) + b"\n")
    sys.stderr.flush()


class JsonHandler(logging.Handler):
    """Writes what a library logs as such lines, so that whatever collects them can read all of them."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; of an error that came with it, what kind it is and where it was raised."""
        error = record.exc_info[1] if record.exc_info else None
        log_line(
            "server",
            level=record.levelname.lower(),
            message=record.getMessage().strip(),
            error=where(error) if error else None,
        )


def where(error: BaseException) -> str:
    """Say what kind of error was caught and where it was raised: its message may hold a caller's text."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}"
