"""Admission control: a bounded number of questions at once, a bounded queue, a share per caller."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections import Counter

from corag.service.errors import CallError, failure

_LONGEST_RETRY_S = 60
_FIRST_GUESS_S = 2.0  # of how long a question takes, before one has been answered


class Admission:
    """A semaphore with a bounded queue and a limit per caller."""

    def __init__(self, places: int, queue: int, per_caller: int) -> None:
        """Set the limits. ``queue``: of those that wait. ``per_caller``: waiting or answered; 0 for none."""
        self._places = places
        self._queue = queue
        self._per_caller = per_caller
        self._free = asyncio.Semaphore(places)
        self._of_caller: Counter[str] = Counter()
        self._mean_place_s = _FIRST_GUESS_S
        self.closed = False
        self.claims = 0
        self.answering = 0

    @property
    def waiting(self) -> int:
        """Questions that wait for a place."""
        return self.claims - self.answering

    def enter(self, caller: str) -> Ticket:
        """Admit a question of a caller; it has to leave in the end.

        ``caller``: "" for one whose share is not limited. Raises :class:`CallError` with status 429 or 503.
        """
        if self.closed:
            raise failure(asyncio.CancelledError.__name__)
        if caller and self._per_caller and self._of_caller[caller] >= self._per_caller:
            raise CallError(
                429,
                f"your key has {self._per_caller} questions here already, its share: wait for one.",
                "too_many_of_key",
                retry_after=self._retry_after(),
            )
        if self.claims >= self._places + self._queue:
            raise CallError(
                429,
                f"{self.answering} questions are worked on and {self.waiting} wait: come again later.",
                "overloaded",
                retry_after=self._retry_after(),
            )
        self.claims += 1
        self._of_caller[caller] += 1
        return Ticket(self, caller)

    async def _take_place(self) -> None:
        await self._free.acquire()
        self.answering += 1

    def _leave(self, caller: str, place_s: float | None) -> None:
        """Release a question's share. ``place_s``: seconds that it had a place; None if it had none."""
        if place_s is not None:
            self.answering -= 1
            self._free.release()
            self._mean_place_s += 0.1 * (place_s - self._mean_place_s)
        self.claims -= 1
        self._of_caller[caller] -= 1
        if not self._of_caller[caller]:
            del self._of_caller[caller]

    def _retry_after(self) -> int:
        """Estimate the seconds until half of the queue has been answered."""
        turns = 1 + self.waiting / (2 * self._places)
        return max(1, min(_LONGEST_RETRY_S, math.ceil(turns * self._mean_place_s)))


class Ticket:
    """A question's claim to a place, with the id that its answer gets."""

    def __init__(self, admission: Admission, caller: str) -> None:
        self._admission = admission
        self.caller = caller
        self.key = secrets.token_urlsafe(12)
        self._start: float | None = None
        self._entry = time.perf_counter()
        self._is_released = False
        self.waited_s = 0.0

    async def wait(self) -> None:
        """Wait for the place."""
        try:
            await self._admission._take_place()
            self._start = time.perf_counter()
        finally:  # also without one in the end
            self.waited_s = time.perf_counter() - self._entry

    def leave(self) -> None:
        """Release the claim; do nothing if it is released already."""
        if not self._is_released:
            self._is_released = True
            place_s = None if self._start is None else time.perf_counter() - self._start
            self._admission._leave(self.caller, place_s)
