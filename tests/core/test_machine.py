"""What a process may use of its machine: cores by affinity and control group, GPUs that are not hidden."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from corag.core.system.machine import cgroup_cores, count_cores, count_threads, free_gpu_memory, visible_gpus

WHOLE = """GPU 0: NVIDIA H100 (UUID: GPU-aa11)
GPU 1: NVIDIA H100 (UUID: GPU-bb22)
GPU 2: NVIDIA H100 (UUID: GPU-cc33)"""
CUT = """GPU 0: NVIDIA A100 (UUID: GPU-aa11)
  MIG 3g.20gb     Device  0: (UUID: MIG-11)
  MIG 3g.20gb     Device  1: (UUID: MIG-22)
GPU 1: NVIDIA A100 (UUID: GPU-bb22)"""


def install_driver(
    folder: Path, listing: str, memory: str = "", monkeypatch: pytest.MonkeyPatch | None = None
) -> None:
    """Put a program nvidia-smi on the path that lists these GPUs."""
    folder.mkdir(exist_ok=True)
    program = folder / "nvidia-smi"
    program.write_text(
        f"#!/bin/sh\ncase $1 in -L) cat <<'X'\n{listing}\nX\n;; *memory*) cat <<'X'\n{memory}\nX\n;; esac\n"
    )
    program.chmod(0o755)
    if monkeypatch:
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("visible", "listing", "expected"),
    [
        (None, WHOLE, ["0", "1", "2"]),
        ("2,0", WHOLE, ["2", "0"]),
        ("", WHOLE, []),
        ("NoDevFiles", WHOLE, []),
        ("1,-1,0", WHOLE, ["1"]),
        ("0,7,1", WHOLE, ["0"]),
        ("GPU-bb22,GPU-aa", WHOLE, ["GPU-bb22", "GPU-aa"]),
        ("GPU-zz", WHOLE, []),
        (None, CUT, ["0", "1"]),
        ("MIG-22, 1", CUT, ["MIG-22", "1"]),
        (None, "", []),
        ("0,1", "", []),
    ],
)
def test_gpus_are_those_that_are_there_and_not_hidden(
    visible: str | None, listing: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_driver(tmp_path, listing, monkeypatch=monkeypatch)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert visible_gpus() == expected


def test_the_fullest_gpu_tells_how_much_memory_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = "0, GPU-aa11, 79000, 80000\n1, GPU-bb22, 20000, 80000\n2, GPU-cc33, [N/A], [N/A]"
    install_driver(tmp_path, WHOLE, memory, monkeypatch)
    assert free_gpu_memory(["0"]) == 79 / 80
    assert free_gpu_memory(["0", "GPU-bb22"]) == 0.25
    assert free_gpu_memory(["2"]) is None and free_gpu_memory(["MIG-11"]) is None, "not told"


def test_cores_are_those_that_a_scheduler_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from corag.core.system.machine import count_cores; print(count_cores(), os.cpu_count())"
    )
    counted, _ = subprocess.check_output([sys.executable, "-c", program], text=True).split()
    assert counted == "1"
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert count_threads() == count_cores()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert count_threads() == 1, "the share of one of several processes"
    assert 1 <= count_cores() <= (os.cpu_count() or 1)


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        ("0::/job/step", {"job/cpu.max": "600000 100000", "job/step/cpu.max": "max 100000"}, 6),
        ("0::/", {"cpu.max": "150000 100000"}, 1.5),
        ("0::/elsewhere", {"cpu.max": "max 100000"}, float("inf")),
        ("", {}, float("inf")),
    ],
)  # fmt: skip
def test_a_control_group_limits_cores(
    groups: str, files: dict[str, str], cores: float, tmp_path: Path
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(groups)
    for name, text in files.items():
        file = tmp_path / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert cgroup_cores(tmp_path) == cores
