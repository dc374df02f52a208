"""Trying again after a pause: the one loop behind every request to a server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from core.errors import CoragError

Result = TypeVar("Result")


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
