"""Starting a training program as a user does, or one that is killed on its way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import yaml


def write_options(config: Any, folder: Path) -> None:
    (folder / "options.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(asdict(config)))))


DIES = """
import os, runpy, signal, sys
from transformers import Trainer

step, program = int(sys.argv[1]), sys.argv[2]
train = Trainer.training_step

def train_or_die(self, *inputs, **more):
    if self.state.global_step > step:
        os.killpg(0, signal.SIGKILL)
    return train(self, *inputs, **more)

Trainer.training_step = train_or_die
sys.argv = sys.argv[2:]
runpy.run_path(program, run_name="__main__")
"""
"""Run a training program, which is killed with all that it started once it is beyond a step."""


def launched(
    program: str, config: Any, folder: Path, log: Any, dies_after: int | None = None
) -> subprocess.Popen[bytes]:
    """Start a program under accelerate, in a process group of its own, which may be killed after a step."""
    write_options(config, folder)
    words = [] if torch.cuda.is_available() else ["--cpu"]
    words += "--num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no".split()
    command = [sys.executable, "-m", "accelerate.commands.launch", *words]
    if dies_after is not None:
        (folder / "dies.py").write_text(DIES)
        command += [str(folder / "dies.py"), str(dies_after)]
    environment = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    return subprocess.Popen(
        [*command, program, "--config", str(folder / "options.yaml")],
        start_new_session=True, env=environment, stdout=log, stderr=log,
    )  # fmt: skip
