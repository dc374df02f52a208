"""What every training reports while it runs, whichever of TRL's trainers it uses.

A further kind of log is one class and one line of :func:`training_callbacks`.
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from corag.core.pace import clock
from corag.core.system.files import write_atomically
from corag.core.system.machine import available_memory
from training.checkpoints import METRICS, lines_until, peak_memory, seconds_until
from training.program import has_gpu

_FEWEST_LINES = 10  # of a training, if it has so many steps
_STOP_S = 1800  # for the rest of a step, and a checkpoint
_WINDOW = 20  # steps by which the time left is judged


def training_callbacks(out: Path) -> list[TrainerCallback]:
    """Return the callbacks of a training into the folder ``out``."""
    freed = [FreedMemory()] * (not has_gpu())  # on a GPU nothing that is freed is kept
    return [StopAtSigterm(), *freed, ProgressLines(), MetricsFile(out / METRICS)]


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


class FreedMemory(TrainerCallback):  # type: ignore[misc]
    """Gives freed memory back once less is left on the machine than half of what this process ever had.

    ``keep_freed_memory`` keeps it, and rows of ever other lengths leave holes that the next do not fit in: a
    distillation of 8 rows a step took 13.6 GB at first and 18.9 after 16 steps.
    """

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Look after every step: what is given back has to be touched anew, a few seconds."""
        if available_memory() < 0.5e9 * peak_memory()["peak_memory_gb"]:
            with suppress(AttributeError, OSError, TypeError):  # another C library
                ctypes.CDLL(None).malloc_trim(0)


class ProgressLines(TrainerCallback):  # type: ignore[misc]
    """Prints step, loss, speed and remaining time to standard error whenever the loss is logged.

    In the place of transformers' bar and its dictionaries, which go to standard output. Once two steps are
    done, a line says what the whole will take, by the second: the first touches memory for the first time,
    and on a GPU chooses kernels.
    """

    def __init__(self) -> None:
        self._start_time, self._start_step, self._start_tokens = time.monotonic(), 0, 0.0
        self._ends: deque[tuple[int, float]] = deque(maxlen=_WINDOW + 1)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Say what is to come; count from a resumed training's step, and log a short one often enough."""
        if state.is_world_process_zero:
            rows = args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size
            sys.stderr.write(
                f"corag: {state.max_steps - state.global_step:,} steps of {rows:,} rows to go: the second "
                "one is measured\n"
            )
        self._start_time, self._start_step = time.monotonic(), state.global_step
        self._ends.clear()
        self._start_tokens = float(state.num_input_tokens_seen)
        state.logging_steps = max(1, min(state.logging_steps, state.max_steps // _FEWEST_LINES))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Note when a step ended."""
        self._ends.append((state.global_step, time.monotonic()))
        if len(self._ends) == 2 == state.global_step - self._start_step and state.is_world_process_zero:
            seconds = self._ends[1][1] - self._ends[0][1]
            memory = ", ".join(f"{name} {value:.1f}" for name, value in peak_memory().items())
            left = self._remaining(state.max_steps)
            sys.stderr.write(f"corag: measured: {seconds:.2f} s a step{left}; {memory}\n")

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **_: Any) -> None:
        """Print a step."""
        if not state.is_world_process_zero:
            return
        if "eval_loss" in logs:
            sys.stderr.write(f"corag: step {state.global_step}, validation loss {logs['eval_loss']:.3f}\n")
        # What is logged of an evaluation, or at the end of a training, has no loss of a step.
        if "loss" not in logs:
            return
        steps, seconds = state.global_step - self._start_step, time.monotonic() - self._start_time
        # transformers goes on counting after a resume; TRL, of trainings that are not counted so, anew.
        new_tokens = float(state.num_input_tokens_seen) - self._start_tokens
        tokens = new_tokens if new_tokens > 0 else float(logs.get("num_tokens", 0))
        speed = f", {tokens / seconds:,.0f} tokens/s" if tokens > 0 else f", {steps / seconds:,.2f} steps/s"
        sys.stderr.write(
            f"corag: step {state.global_step} of {state.max_steps}, loss {float(logs['loss']):.3f}"
            f"{speed}{self._remaining(state.max_steps)}\n"
        )

    def _remaining(self, steps: int) -> str:
        """Return the time left, by the last steps; "" after one, which often takes several times as long."""
        if len(self._ends) < 2:
            return ""
        (first, start), (last, end) = self._ends[0], self._ends[-1]
        seconds = (end - start) / (last - first) * (steps - last)
        return f", about {clock(seconds)} left" if seconds >= 1 else ""


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
                line = {"step": state.global_step, "seconds": seconds, **peak_memory(), **logs}
                stream.write(json.dumps(line) + "\n")
