"""How this process of a training was started: by whom, which of how many it is, on what device it will work.

accelerate, torchrun and mpirun say it in the environment. All of this is asked before torch looks for GPUs.
"""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from pathlib import Path

from corag.core.errors import ConfigError
from corag.core.process import end_with_owner, kill_with_parent

# The names under which torchrun, Intel MPI, Open MPI and MVAPICH say it.
_SIZE = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
_RANK = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")
_LOCAL_RANK = ("LOCAL_RANK", "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK")
# What accelerate lets the processes of a training on CPUs find each other by, unless it is told otherwise.
_ACCELERATES_ADDRESS = "127.0.0.1"
STATUS_FILE = "CORAG_STATUS_FILE"
"""Names a file for this process's exit status: accelerate ends with 1, whatever the training ended with."""


def end_with_launcher() -> None:
    """End this process when what has launched it ends, however it does: accelerate, torchrun, 'corag train'.

    Alone it would train on unseen, in a folder that the same command given again is to write. When accelerate
    ends, which SIGTERM ends at once, this process gets SIGTERM, and thus may write a checkpoint first.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # 'corag train' lets accelerate ignore it
    end_with_owner()
    parent = os.getppid()
    # accelerate, which sets these, is the parent then. If init is, it was killed while this process started.
    of_accelerate = any(name.startswith("ACCELERATE_") for name in os.environ)
    if of_accelerate and parent == 1 and b"python" not in _command_line(parent):
        parent = -1
    kill_with_parent(parent, signal.SIGTERM)()


def drop_assumed_threads() -> None:
    """Leave the number of threads to torch where accelerate has assumed one: 'corag train' does the same.

    For a process that trains alone accelerate sets OMP_NUM_THREADS, to 1 as a rule, if no number was asked
    for. torch reads it once, so this comes before torch is loaded.
    """
    if process_count() > 1 or not any(name.startswith("ACCELERATE_") for name in os.environ):
        return
    launcher = Path(f"/proc/{os.getppid()}")
    with suppress(OSError):  # where the launcher cannot be seen, its number stays
        given = b"\0".join([b"", (launcher / "environ").read_bytes(), (launcher / "cmdline").read_bytes()])
        if not re.search(rb"\0(OMP_NUM_THREADS=|--num[-_]cpu[-_]threads)", given):
            os.environ.pop("OMP_NUM_THREADS", None)


def _command_line(process: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes()
    return b"python"  # where that cannot be seen, nothing is concluded from it


def report_status(status: int) -> None:
    """Leave the exit status for 'corag train', if that has launched this process."""
    if file := os.environ.get(STATUS_FILE):
        Path(file).write_text(str(status), encoding="utf-8")


def process_count() -> int:
    """Return how many processes train together, on all machines."""
    return _number(_SIZE, 1)


def is_first() -> bool:
    """Whether this process speaks and writes for all."""
    return _number(_RANK, 0) == 0


def is_first_here() -> bool:
    """Whether this process speaks for those on its machine: errors may be of one machine alone."""
    return _number(_LOCAL_RANK, 0) == 0


def pin_one_gpu() -> str:
    """Keep a process that trains alone to one GPU; return what to say about it, "" if there is one at most.

    transformers would copy the model to all GPUs that it sees (DataParallel), which TRL's trainers refuse.
    """
    import torch

    # Counted through the driver's library: CUDA would keep to what was visible when it was first asked.
    gpus = torch.cuda.device_count() if process_count() == 1 else 0
    if gpus < 2:
        return ""
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    return (
        f"one process trains on one of the {gpus} GPUs (CUDA_VISIBLE_DEVICES={gpu}). For all of them: "
        f"corag train --launch=--multi_gpu,--num_processes,{gpus} ..."
    )


def check_launch() -> str:
    """Refuse a launch that would not be what was asked for; return what to say about the device, or "".

    Raises :class:`ConfigError` if accelerate was asked for several processes of which it starts
    one, or for a model spread over GPUs where there is none.
    """
    import torch

    by_choice = os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true", "yes")
    is_alone = not any(name in os.environ for name in _SIZE)
    # accelerate's launcher for CPUs, which it takes without --cpu as well where there is no GPU, counts on
    # mpirun to start the others; without a file of hosts it starts one process, and has only set
    # the address at which the others would have found it.
    by_accelerate = any(name.startswith("ACCELERATE_") for name in os.environ)
    if by_accelerate and is_alone and os.environ.get("MASTER_ADDR") == _ACCELERATES_ADDRESS:
        raise ConfigError(
            "accelerate was asked for several processes, but starts only one without mpirun: start them with "
            "torchrun --nproc_per_node 2 training/sft.py ... on a CPU, add --multi_gpu on GPUs, or ask for "
            "--num_processes 1."
        )
    if by_choice or torch.cuda.is_available():
        return ""
    if os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true":
        raise ConfigError(
            f"accelerate was asked to spread the model over GPUs (FSDP), but torch {torch.__version__} finds "
            "none: see what nvidia-smi says and what CUDA_VISIBLE_DEVICES is, or leave its configuration out."
        )
    if torch.version.cuda and is_first():
        return (
            f"torch {torch.__version__} is made for GPUs but finds none, so this trains on the CPU. If there "
            "should be one, see what nvidia-smi says and what CUDA_VISIBLE_DEVICES is."
        )
    return ""


def _number(names: tuple[str, ...], default: int) -> int:
    return next((int(os.environ[name]) for name in names if name in os.environ), default)
