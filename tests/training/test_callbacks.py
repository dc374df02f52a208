"""What a training prints while it runs: how long the rest takes."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from training.callbacks import ProgressLines


class Clock:
    """A clock that is set by hand."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    set_by_hand = Clock()
    monkeypatch.setattr(time, "monotonic", set_by_hand)
    return set_by_hand


def begun(steps: int) -> tuple[ProgressLines, Any]:
    state = SimpleNamespace(
        global_step=0, max_steps=steps, logging_steps=1, num_input_tokens_seen=0, is_world_process_zero=False
    )
    lines = ProgressLines()
    lines.on_train_begin(None, state, None)
    state.is_world_process_zero = True
    return lines, state


def step(lines: ProgressLines, state: Any, clock: Clock, seconds: float) -> None:
    clock.now += seconds
    state.global_step += 1
    lines.on_step_end(None, state, None)
    lines.on_log(None, state, None, {"loss": 1.0})


def test_the_time_left_is_judged_by_the_last_steps_and_never_by_the_first_alone(
    clock: Clock, capfd: pytest.CaptureFixture[str]
) -> None:
    lines, state = begun(102)
    step(lines, state, clock, 600)
    assert "left" not in capfd.readouterr().err, "the first step is unlike those that follow"
    step(lines, state, clock, 6)
    said = capfd.readouterr().err
    assert "about 10:00 left" in said and "measured: 6.00 s a step, about 10:00 left; peak_memory_gb" in said
    for _ in range(50):
        step(lines, state, clock, 12)  # another training has begun beside it
    assert capfd.readouterr().err.splitlines()[-1].endswith("about 10:00 left")
