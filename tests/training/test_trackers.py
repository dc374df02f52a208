"""--report_to: what trackers of experiments receive on this machine, without a network or an account."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from training.config import SftConfig
from training.sft import main

Options = Callable[..., SftConfig]


def test_tensorboard_gets_an_event_file_with_the_loss_of_every_logged_step(
    options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "board"))
    main(options(report_to=("tensorboard",), max_steps=3, logging_steps=1))
    assert [*(tmp_path / "board").glob("events.out.tfevents.*")]
    events = EventAccumulator(str(tmp_path / "board")).Reload()
    assert [event.step for event in events.Scalars("train/loss")] == [1, 2, 3]
