"""Saying that a server keeps everybody waiting: without a word, a run that stands still looks dead."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# A long reply of a model on a CPU takes as long. Each further notice comes twice as late.
_FIRST_NOTICE_S = 30.0


class Silence:
    """Tells when servers that owe replies have not sent one for long, at growing intervals.

    What counts is that nothing comes at all: while some requests are answered others may take their time.
    """

    def __init__(self, urls: str, first_notice_s: float = _FIRST_NOTICE_S) -> None:
        """``urls``: whom one waits for, as it is told."""
        self._urls, self._first = urls, first_notice_s
        self._owed, self._since, self._due = 0, 0.0, first_notice_s
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def waiting(self) -> Iterator[Callable[[], None]]:
        """Wait for a reply within the block; what it yields is called whenever a server says anything."""
        if not self._owed:
            self._since, self._due = time.monotonic(), self._first
            self._look()
        self._owed += 1
        try:
            yield self._heard
        finally:
            self._owed -= 1
            if not self._owed and self._timer:
                self._timer.cancel()

    def _heard(self) -> None:
        now = time.monotonic()
        if self._due > self._first:
            _say(f"{self._urls} replies again, after {now - self._since:.0f} s.")
        self._since, self._due = now, self._first

    def _look(self) -> None:
        """Look whether a notice is due, and look again when the next may be."""
        silent = time.monotonic() - self._since
        if silent >= self._due:
            _say(f"waiting for {self._urls}: no reply for {silent:.0f} s.")
            self._due *= 2
        self._timer = asyncio.get_running_loop().call_later(self._due - silent, self._look)


def _say(line: str) -> None:
    sys.stderr.write(f"corag: {line}\n")
    sys.stderr.flush()
