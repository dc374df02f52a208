"""What every training reports while it runs, whichever of TRL's trainers it uses.

A further kind of log is one class and one line of :func:`training_callbacks`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from corag.core.files import write_atomically
from corag.core.pace import clock
from training.expected import describe_expected

METRICS = "metrics.jsonl"
_FEWEST_LINES = 10  # of a training, if it has so many steps


def training_callbacks(out: Path) -> list[TrainerCallback]:
    """Return the callbacks of a training into the folder ``out``."""
    return [ProgressLines(), MetricsFile(out / METRICS)]


class ProgressLines(TrainerCallback):  # type: ignore[misc]
    """Prints step, loss, speed and remaining time to standard error whenever the loss is logged.

    In the place of transformers' bar and its dictionaries, which go to standard output.
    """

    def __init__(self) -> None:
        self._start_time, self._start_step, self._start_tokens = time.monotonic(), 0, 0.0

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, train_dataloader: Any = None, **_: Any
    ) -> None:
        """Say what is to come; count from a resumed training's step, and log a short one often enough."""
        if state.is_world_process_zero:
            expected = describe_expected(args, state, model, getattr(train_dataloader, "dataset", None))
            sys.stderr.write(f"corag: {expected}\n")
        self._start_time, self._start_step = time.monotonic(), state.global_step
        # Tokens are counted anew in each process, but for GRPO's.
        self._start_tokens = float(state.num_input_tokens_seen)
        state.logging_steps = max(1, min(state.logging_steps, state.max_steps // _FEWEST_LINES))

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **_: Any) -> None:
        """Print a step."""
        # What is logged of an evaluation, or at the end of a training, has no loss of a step.
        if not state.is_world_process_zero or "loss" not in logs:
            return
        steps, seconds = state.global_step - self._start_step, time.monotonic() - self._start_time
        seconds_left = seconds / steps * (state.max_steps - state.global_step)
        remaining = f", about {clock(seconds_left)} left" if seconds_left >= 1 else ""
        reward = f", reward {logs['reward']:.3f}" if logs.get("reward") is not None else ""
        tokens = float(logs.get("num_tokens", 0)) - self._start_tokens
        speed = f", {tokens / seconds:,.0f} tokens/s" if tokens > 0 else f", {steps / seconds:,.2f} steps/s"
        sys.stderr.write(
            f"corag: step {state.global_step} of {state.max_steps}, loss {float(logs['loss']):.3f}{reward}"
            f"{speed}{remaining}\n"
        )


class MetricsFile(TrainerCallback):  # type: ignore[misc]
    """Writes what is logged to a file, one line of JSON each, whatever else it is reported to."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Keep the lines of the steps that the checkpoint holds, none for a fresh start."""
        # A killed training has logged steps after its last checkpoint, which are now trained again.
        if state.is_world_process_zero:
            lines = self._file.read_text(encoding="utf-8").splitlines() if self._file.is_file() else []
            valid = [
                line for line in lines if state.global_step and json.loads(line)["step"] <= state.global_step
            ]
            write_atomically(self._file, "".join(f"{line}\n" for line in valid))

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **_: Any) -> None:
        """Append a line."""
        if state.is_world_process_zero:
            with self._file.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps({"step": state.global_step, **logs}) + "\n")
