"""--report_to: what trackers of experiments receive on this machine, without a network or an account."""

from __future__ import annotations

import sqlite3
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


def test_wandb_writes_a_run_to_be_synchronised_later(
    options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip("wandb")
    for name, value in {
        "MODE": "offline",
        "DIR": str(tmp_path),
        "SILENT": "true",
        "PROJECT": "corag",
    }.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    main(options(report_to=("wandb",), max_steps=2, logging_steps=1))
    wandb.finish()
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    assert b"train/loss" in file.read_bytes()


def test_trackio_keeps_a_run_in_its_local_database(
    options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("trackio")
    import trackio.sqlite_storage as storage
    import trackio.utils

    for module in (storage, trackio.utils):
        monkeypatch.setattr(module, "TRACKIO_DIR", tmp_path, raising=False)
    main(options(report_to=("trackio",), max_steps=2, logging_steps=1, trainer={"project": "corag"}))
    with sqlite3.connect(tmp_path / "corag.db") as database:
        text = str(database.execute("select * from metrics").fetchall())
    assert "loss" in text
