"""Trying again: how often, after which pauses, and what is raised in the end."""

import pytest

from corag.core.errors import BackendError, ConfigError
from corag.core.servers import TryAgainError, retrying
from tests.messages import raises_message


class Failing:
    """An attempt that fails so many times before it says how many there were."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.numbers: list[int] = []

    async def __call__(self, number: int) -> str:
        self.numbers.append(number)
        if number < self.failures:
            raise TryAgainError(BackendError(f"attempt {number}"))
        return f"after {number}"


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    taken: list[float] = []

    async def sleep(seconds: float) -> None:
        taken.append(seconds)

    monkeypatch.setattr("corag.core.servers.asyncio.sleep", sleep)
    return taken


async def test_the_first_success_counts_and_pauses_grow_up_to_the_longest(pauses: list[float]) -> None:
    attempt = Failing(4)
    assert await retrying(attempt, 9, first_pause_s=0.5, longest_pause_s=3) == "after 4"
    assert attempt.numbers == [0, 1, 2, 3, 4] and pauses == [0.5, 1, 2, 3]


async def test_the_last_attempts_error_is_raised_without_a_pause_behind_it(pauses: list[float]) -> None:
    with raises_message(BackendError):
        await retrying(Failing(5), 2, first_pause_s=1, longest_pause_s=8)
    assert pauses == [1]


async def test_other_errors_end_it_at_once(pauses: list[float]) -> None:
    async def attempt(number: int) -> str:
        raise ConfigError("never")

    with raises_message(ConfigError):
        await retrying(attempt, 3, first_pause_s=1, longest_pause_s=8)
    assert pauses == []
