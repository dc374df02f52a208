"""Starting a training program as a user does, and killing it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import yaml

from training.checkpoints import last_checkpoint


def write_options(config: Any, folder: Path) -> None:
    (folder / "options.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(asdict(config)))))


def launched(program: str, config: Any, folder: Path, log: Any) -> subprocess.Popen[bytes]:
    """Start a program under accelerate, in a process group of its own."""
    write_options(config, folder)
    words = [] if torch.cuda.is_available() else ["--cpu"]
    words += "--num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no".split()
    command = [sys.executable, "-m", "accelerate.commands.launch", *words, program]
    environment = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    return subprocess.Popen(
        [*command, "--config", str(folder / "options.yaml")],
        start_new_session=True, env=environment, stdout=log, stderr=log,
    )  # fmt: skip


def kill_after(process: subprocess.Popen[bytes], out: Path, step: int) -> None:
    """Kill a training and all that it started once it has written the checkpoint of this step or a later."""
    try:
        while process.poll() is None:
            last = last_checkpoint(out)
            if last and int(last.rpartition("-")[2]) >= step:
                break
            time.sleep(0.02)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
