"""'corag train' launches training/sft.py from any folder, and does not leave it behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml

import training.stages
from corag.cli.main import main
from corag.core.options.command_line import parse
from training.config import SftConfig


def test_the_training_gets_the_options_and_its_status_is_passed_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What is launched is the program, on options that it reads back; the launcher's are not among them."""
    launched = []

    def run_and_wait(command: list[str]) -> int:
        options = yaml.safe_load(Path(command[-1]).read_text())
        launched.append((command[:-1], parse(SftConfig, ["--config", command[-1]], "", ""), options))
        return 7

    monkeypatch.setattr(training.stages, "run_and_wait", run_and_wait)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    words = ["train", "--rows", "rows", "--out", "made", "--max_steps", "3", "--lora.rank", "4"]
    assert main(words) == 7
    assert main([*words, "--launch=--config_file,accelerate.yaml"]) == 7
    (command, read, options), (own, _, _) = launched
    assert read == SftConfig(rows=["rows"], out="made", max_steps=3, lora=read.lora) and read.lora.rank == 4
    assert "launch" not in options
    assert command == [sys.executable, training.stages.SFT, "--config"]
    assert own[1:6] == ["-m", "accelerate.commands.launch", "--quiet", "--config_file", "accelerate.yaml"]


def test_what_ends_the_command_ends_the_training(tmp_path: Path) -> None:
    """Its children too."""
    grandchild = (
        f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    )
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {grandchild!r}])"
    script = (
        "import signal, sys; from training.stages import run_and_wait\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
        f"run_and_wait([sys.executable, '-c', {child!r}])"
    )
    root = str(Path(training.stages.__file__).parents[1])
    process = subprocess.Popen([sys.executable, "-c", script], env=os.environ | {"PYTHONPATH": root})
    deadline = time.monotonic() + 300
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    number = int((tmp_path / "pid").read_text())
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 143
    while Path(f"/proc/{number}").exists():
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "Z":  # ended; whoever adopted it has not looked yet
            break
        assert time.monotonic() < deadline, "the training goes on alone"
        time.sleep(0.05)
