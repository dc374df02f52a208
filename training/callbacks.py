"""What every training reports while it runs, whichever of TRL's trainers it uses.

A further kind of log is one class and one line of :func:`training_callbacks`.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from corag.core.files import write_atomically
from corag.core.pace import clock, reporting
from training.expected import describe_expected

METRICS = "metrics.jsonl"
_FEWEST_LINES = 10  # of a training, if it has so many steps
_STOP_S = 1800  # for the rest of a step, and a checkpoint
_WINDOW = 20  # steps by which the time left is judged
HEARTBEAT_S = 60.0
"""Seconds without a line after which one says that the training is at work."""


def training_callbacks(out: Path) -> list[TrainerCallback]:
    """Return the callbacks of a training into the folder ``out``."""
    return [StopAtSigterm(), ProgressLines(), MetricsFile(out / METRICS)]


class StopAtSigterm(TrainerCallback):  # type: ignore[misc]
    """Writes a checkpoint and stops after the step in which a process of the training got SIGTERM.

    Schedulers send it to all processes of a job a while before they kill them, torchrun to those that it has
    started. A training that writes no checkpoints (``save_steps`` 0) ends at once.
    """

    def __init__(self) -> None:
        self._is_requested = False
        self._handler: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Handle the signal from now on."""
        if args.save_strategy != "no" and threading.current_thread() is threading.main_thread():
            self._handler = signal.signal(signal.SIGTERM, self._request)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop if any process was asked to: all have to write the checkpoint together."""
        if args.world_size > 1:
            flag = torch.tensor(float(self._is_requested), device=args.device)
            torch.distributed.all_reduce(flag)
            self._is_requested = bool(flag)
        if self._is_requested:
            control.should_save = control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Leave the signal to what handled it before."""
        signal.alarm(0)
        if self._handler is not None:
            signal.signal(signal.SIGTERM, self._handler)

    def _request(self, number: int, frame: Any) -> None:
        if not self._is_requested:
            signal.alarm(_STOP_S)  # ends the process if another one has ended and this one waits for it
        self._is_requested = True


class ProgressLines(TrainerCallback):  # type: ignore[misc]
    """Prints step, loss, speed and remaining time to standard error whenever the loss is logged.

    In the place of transformers' bar and its dictionaries, which go to standard output.
    """

    def __init__(self) -> None:
        self._start_time, self._start_step, self._start_tokens = time.monotonic(), 0, 0.0
        self._last_line, self._steps = self._start_time, 0
        self._ends: deque[tuple[int, float]] = deque(maxlen=_WINDOW + 1)

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, train_dataloader: Any = None, **_: Any
    ) -> None:
        """Say what is to come; count from a resumed training's step, and log a short one often enough."""
        if state.is_world_process_zero:
            line = describe_expected(args, state, model, train_dataloader and train_dataloader.dataset)
            sys.stderr.write(f"corag: {line}\n")
        self._start_time, self._start_step = time.monotonic(), state.global_step
        self._last_line, self._steps = self._start_time, state.max_steps
        self._ends.clear()
        self._start_tokens = float(state.num_input_tokens_seen)
        state.logging_steps = max(1, min(state.logging_steps, state.max_steps // _FEWEST_LINES))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Note when a step ended."""
        self._ends.append((state.global_step, time.monotonic()))

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **_: Any) -> None:
        """Print a step."""
        # What is logged of an evaluation, or at the end of a training, has no loss of a step.
        if not state.is_world_process_zero or "loss" not in logs:
            return
        self._last_line = time.monotonic()
        steps, seconds = state.global_step - self._start_step, self._last_line - self._start_time
        reward = f", reward {logs['reward']:.3f}" if logs.get("reward") is not None else ""
        # transformers goes on counting after a resume; TRL, of trainings that are not counted so, anew.
        new_tokens = float(state.num_input_tokens_seen) - self._start_tokens
        tokens = new_tokens if new_tokens > 0 else float(logs.get("num_tokens", 0))
        speed = f", {tokens / seconds:,.0f} tokens/s" if tokens > 0 else f", {steps / seconds:,.2f} steps/s"
        sys.stderr.write(
            f"corag: step {state.global_step} of {state.max_steps}, loss {float(logs['loss']):.3f}{reward}"
            f"{speed}{self._remaining()}\n"
        )

    def heartbeat(self, _: float) -> str:
        """Return a line if none was printed for :data:`HEARTBEAT_S`, else ""."""
        now = time.monotonic()
        if now - self._last_line < HEARTBEAT_S:
            return ""
        last_step = self._ends[-1][0] if self._ends else self._start_step
        return (
            f"corag: at work on step {last_step + 1} of {self._steps}, {clock(now - self._start_time)} so far"
            f"{self._remaining()}"
        )

    def _remaining(self) -> str:
        """Return the time left, by the last steps; "" after one: the first often takes several times as long.

        It touches memory for the first time, and on a GPU chooses kernels.
        """
        if len(self._ends) < 2:
            return ""
        (first, start), (last, end) = self._ends[0], self._ends[-1]
        seconds = (end - start) / (last - first) * (self._steps - last)
        return f", about {clock(seconds)} left" if seconds >= 1 else ""


def heartbeats(trainer: Any) -> AbstractContextManager[None]:
    """Print a line a minute for the length of a block in which a trainer trains and prints nothing else."""
    handler = trainer.callback_handler.callbacks
    lines = next((each for each in handler if isinstance(each, ProgressLines)), None)
    if lines is None or not trainer.is_world_process_zero():
        return nullcontext()
    return reporting(lines.heartbeat, _print, HEARTBEAT_S)


def _print(line: str) -> None:
    sys.stderr.write(f"{line}\n")


class MetricsFile(TrainerCallback):  # type: ignore[misc]
    """Writes what is logged to a file, one line of JSON each, whatever else it is reported to.

    ``seconds`` counts on over a resume, from the checkpoint's step.
    """

    def __init__(self, file: Path) -> None:
        self._file, self._start, self._earlier_seconds = file, time.monotonic(), 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Keep the lines of the steps that the checkpoint holds, none for a fresh start."""
        self._start, self._earlier_seconds = time.monotonic(), seconds_until(self._file, state.global_step)
        # A killed training has logged steps after its last checkpoint, which are now trained again.
        if state.is_world_process_zero:
            # One that SIGTERM stopped has logged its mean loss, as if it had finished.
            lines = lines_until(self._file, state.global_step)
            valid = [line for line in lines if "train_loss" not in line]
            write_atomically(self._file, "".join(f"{json.dumps(line)}\n" for line in valid))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Log a step whose checkpoint is saved, and the last one: figures over all starts are then whole."""
        if control.should_save or control.should_training_stop:
            control.should_log = True

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **_: Any) -> None:
        """Append a line."""
        if state.is_world_process_zero:
            seconds = round(self._earlier_seconds + time.monotonic() - self._start, 3)
            with self._file.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps({"step": state.global_step, "seconds": seconds, **logs}) + "\n")


def lines_until(file: Path, step: int) -> list[dict[str, Any]]:
    """Return what was logged up to a step; nothing where that is 0, or there is no file."""
    if not step or not file.is_file():
        return []
    lines = []
    for text in file.read_text(encoding="utf-8").splitlines():
        with suppress(json.JSONDecodeError):  # one that a killed training had not written whole
            lines.append(json.loads(text))
    return [line for line in lines if line["step"] <= step]


def seconds_until(file: Path, step: int) -> float:
    """Return how long training up to a step took, over all starts, by its file of metrics."""
    return max((float(line.get("seconds", 0.0)) for line in lines_until(file, step)), default=0.0)


def mean_loss(log: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the mean loss of all steps, by what was logged; None if nothing was.

    Each loss is the mean of the steps since the one before.

    >>> mean_loss([{"step": 1, "loss": 4.0}, {"step": 2, "eval_loss": 9.0}, {"step": 4, "loss": 2.0}])
    2.5
    """
    total, last = 0.0, 0
    for entry in log:
        if "loss" in entry:
            total, last = total + float(entry["loss"]) * (entry["step"] - last), entry["step"]
    return total / last if last else None
