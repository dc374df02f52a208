"""Servers: their addresses, trying again after a pause, and saying that one keeps everybody waiting."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar
from urllib.parse import urlsplit

from corag.core.errors import ConfigError, CoragError

Result = TypeVar("Result")

# A long reply of a model on a CPU takes as long. Each further notice comes twice as late.
_FIRST_NOTICE_S = 30.0


def contain_credentials(urls: Iterable[str]) -> bool:
    """Return whether an address holds more than where a server is: a user name, a password or a query.

    Addresses are printed, and noted in every run's manifest. So whoever refuses one does not repeat it.

    >>> contain_credentials(["http://localhost:8000/v1"])
    False
    >>> contain_credentials(["http://bob:secret@localhost:8000"])
    True
    """
    return any("@" in url or "?" in url for url in urls)


def check_schemes(urls: Iterable[str], option: str) -> None:
    """Raise :class:`ConfigError` for an address without http:// or https://. ``option``: its full name.

    Call it after :func:`contain_credentials`, since it repeats the address.
    """
    for url in urls:
        if not is_address(url):
            host = url.rpartition("://")[2]
            raise ConfigError(
                f"'{url}' in {option} does not begin with http:// or https://: write http://{host}."
            )


def is_address(name: str) -> bool:
    """Return whether a name is the address of a server."""
    return name.lower().startswith(("http://", "https://"))


def base_address(url: str) -> str:
    """Return the address that routes such as /models are added to: one with a path is used as it stands.

    >>> base_address("http://localhost:8000/"), base_address("https://host/v1beta/openai/")
    ('http://localhost:8000/v1', 'https://host/v1beta/openai')
    """
    url = url.rstrip("/")
    return url if urlsplit(url).path else f"{url}/v1"


class TryAgainError(Exception):
    """What an attempt raises if another may go better; ``error`` is what to raise if it was the last."""

    def __init__(self, error: CoragError) -> None:
        self.error = error


async def retrying(
    attempt: Callable[[int], Awaitable[Result]],
    attempts: int,
    *,
    first_pause_s: float,
    longest_pause_s: float,
) -> Result:
    """Return what the first successful attempt returns; ``attempt`` is given its number, counting from 0.

    After an attempt that raises :class:`TryAgainError` follows a pause, each twice as long as the one before:
    a server that is overloaded is not helped by more requests. Raises the last attempt's error after
    ``attempts`` of them, and whatever else an attempt raises at once.
    """
    for number in range(attempts):
        try:
            return await attempt(number)
        except TryAgainError as problem:
            error = problem.error
        if number + 1 < attempts:
            await asyncio.sleep(min(first_pause_s * 2**number, longest_pause_s))
    raise error


class StallNotifier:
    """Prints a notice when servers that owe replies have not sent one for long, at growing intervals.

    Without a word, a run that stands still looks dead.

    What counts is that nothing comes at all: while some requests are answered others may take their time.
    """

    def __init__(self, urls: str, first_notice_s: float = _FIRST_NOTICE_S) -> None:
        """``urls``: of whom one waits for, as the notice names them."""
        self._urls, self._first = urls, first_notice_s
        self._waiters, self._since, self._notice_after = 0, 0.0, first_notice_s
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def waiting(self) -> Iterator[Callable[[], None]]:
        """Wait for a reply within the block; what it yields is called whenever a server sends anything."""
        if not self._waiters:
            self._since, self._notice_after = time.monotonic(), self._first
            self._check()
        self._waiters += 1
        try:
            yield self._note_reply
        finally:
            self._waiters -= 1
            if not self._waiters and self._timer:
                self._timer.cancel()

    def _note_reply(self) -> None:
        now = time.monotonic()
        if self._notice_after > self._first:
            print_note(f"{self._urls} replies again, after {now - self._since:.0f} s.")
        self._since, self._notice_after = now, self._first

    def _check(self) -> None:
        """Print a notice if one is due, and check again when the next may be."""
        silent = time.monotonic() - self._since
        if silent >= self._notice_after:
            print_note(f"waiting for {self._urls}: no reply for {silent:.0f} s.")
            self._notice_after *= 2
        self._timer = asyncio.get_running_loop().call_later(self._notice_after - silent, self._check)


def print_note(line: str) -> None:
    """Print a line of ours on standard error."""
    sys.stderr.write(f"corag: {line}\n")
    sys.stderr.flush()
