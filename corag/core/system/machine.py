"""What this process may use of its machine: cores, GPUs and their memory.

A scheduler gives a job a share of a node: counted from the whole node, 128 threads would share one core.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

_ROOT = Path("/")
_LISTED_GPU = re.compile(r"GPU (\d+):.*\(UUID: ([^)]+)\)")


def count_cores() -> int:
    """Return the number of cores that this process may use, 1 at least.

    The scheduler's choice of cores (affinity) and the time that its control group may take both count.
    """
    return max(1, int(min(_affinity(), cgroup_cores())))


def count_threads() -> int:
    """Return how many threads a search or a build takes: one for each core, or OMP_NUM_THREADS if fewer.

    Several processes on a machine get their share in this way.
    """
    with suppress(ValueError):
        return max(1, min(count_cores(), int(os.environ.get("OMP_NUM_THREADS", ""))))
    return count_cores()


def raise_file_limit() -> int:
    """Let this process open as many files and connections as it may; return how many more that are.

    The usual soft limit, 1,024, is less than the requests of a run with two servers.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # some systems name a hard limit that they do not grant
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    if soft == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(0, soft - len(os.listdir("/dev/fd")))


def _affinity() -> int:
    if hasattr(os, "process_cpu_count"):  # Python 3.13
        return os.process_cpu_count() or 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def limit_threads() -> None:
    """Let OpenMP (torch, FAISS, numpy) start no more threads than the control group has time for.

    OpenMP counts the cores of the affinity itself, but knows nothing of a container's limit.
    """
    if (cores := count_cores()) < _affinity():
        os.environ.setdefault("OMP_NUM_THREADS", str(cores))


def cgroup_cores(root: Path = _ROOT) -> float:
    """Return the cores' worth of time that the control group of this process may take, infinity for no limit.

    ``root``: of the file system. Control groups of version 2 are read, and every group above.
    """
    path = "/"
    with suppress(OSError):
        path = (root / "proc/self/cgroup").read_text().strip().rpartition(":")[2]
    limits = [float("inf")]
    # In a container the own group may be mounted as if it were the root.
    own_group = Path(path.lstrip("/"))
    for group in (own_group, *own_group.parents):
        with suppress(OSError, ValueError, ZeroDivisionError):
            quota, period = (root / "sys/fs/cgroup" / group / "cpu.max").read_text().split()
            limits.append(int(quota) / int(period))  # "max" is no number
    return min(limits)


def available_memory() -> int:
    """Return the bytes of memory that the system says can be taken without swapping."""
    with suppress(OSError), (_ROOT / "proc/meminfo").open(encoding="ascii") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def has_gpu() -> bool:
    """Whether an NVIDIA GPU is here, as its driver's program says."""
    return bool(run_nvidia_smi("-L"))


def visible_gpus() -> list[str]:
    """Return the NVIDIA GPUs that this process may use, as entries of CUDA_VISIBLE_DEVICES.

    Without that variable all, by number. No torch is loaded for it, which would take memory on the first.
    """
    listing = [match for line in run_nvidia_smi("-L") if (match := _LISTED_GPU.match(line))]
    numbers, names = [match[1] for match in listing], [match[2] for match in listing]
    if (setting := os.environ.get("CUDA_VISIBLE_DEVICES")) is None:
        return numbers

    def is_known(entry: str) -> bool:
        # Of instances (MIG) the listing has other names than the one that a scheduler may have given.
        is_name = entry.startswith("GPU-") and any(name.startswith(entry) for name in names)
        return entry in numbers or is_name or entry.startswith("MIG-")

    # CUDA reads up to the first entry that is none, such as -1 or what SLURM writes where there is no GPU
    # (NoDevFiles).
    entries = takewhile(is_known, map(str.strip, setting.split(",")))
    return list(dict.fromkeys(entries)) if listing else []


def free_gpu_memory(gpus: Sequence[str]) -> float | None:
    """Return the share of memory that is free on the fullest of some GPUs, None if that is not known.

    ``gpus``: entries as :func:`visible_gpus` returns them. An instance of a GPU has memory of its own, of
    which the driver's program tells nothing.
    """
    memory = gpu_memory(gpus)
    return min(free / total for free, total in memory) if memory else None


def gpu_memory(gpus: Sequence[str]) -> list[tuple[float, float]]:
    """Return (free, total) MiB of memory of each of some GPUs; nothing if that of one is not known.

    ``gpus``: entries as :func:`visible_gpus` returns them; the memory comes in their order.
    """
    memory = {}
    query = "--query-gpu=index,uuid,memory.free,memory.total"
    for line in run_nvidia_smi(query, "--format=csv,noheader,nounits"):
        with suppress(ValueError):
            number, name, free, total = (each.strip() for each in line.split(","))
            for each in gpus:
                if each == number or ("-" in each and name.startswith(each)):
                    memory[each] = (float(free), float(total))
    return [memory[each] for each in gpus] if len(memory) == len(gpus) else []


def run_nvidia_smi(*arguments: str) -> list[str]:
    """Return what NVIDIA's program prints, in lines that are not empty; none where there is no driver."""
    try:
        process = subprocess.run(
            ["nvidia-smi", *arguments], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = process.stdout.splitlines() if process.returncode == 0 else []
    return [line.rstrip() for line in lines if line.strip()]
