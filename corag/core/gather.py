"""Waiting for several things at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def gather(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run all at the same time and return their results in order.

    The first error cancels the others and is raised.
    """
    try:
        # Unlike asyncio.gather, a group waits until what it cancels has ended: nothing goes on behind us.
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except BaseExceptionGroup as failures:  # callers catch one error by its type, not a group of them
        raise first_leaf(failures) from None
    return [task.result() for task in tasks]


def first_leaf(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error that is not a group."""
    first = failures.exceptions[0]
    return first_leaf(first) if isinstance(first, BaseExceptionGroup) else first
