"""A cluster of Ray's to work in: one that is running, or one of this machine alone.

What is set here keeps Ray from what it does to a process that it is started from: signals, niceness, GPUs.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from corag.core.errors import BackendError, reason
from corag.core.system.machine import count_cores, visible_gpus
from corag.core.system.process import keep_fault_handlers
from eval.experiment.workers.config import WorkersConfig

# Ray's store for large objects, which ours are not: its default is a third of RAM.
_OBJECTS_BYTES = 200_000_000


@contextmanager
def connect(config: WorkersConfig) -> Iterator[Any]:
    """Connect to a cluster of Ray's, or start one on this machine, for the length of a block."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray's workers stand back behind all else (nice 15): on a busy machine an engine would hardly start.
    os.environ.setdefault("RAY_worker_niceness", "0")
    # Else it would set CUDA_VISIBLE_DEVICES to nothing for workers that share a GPU's server.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray
    import ray.util.scheduling_strategies

    if ray.is_initialized():  # what started it ends it
        yield ray
        return
    address = config.address or os.environ.get("RAY_ADDRESS") or "local"
    with _keep_signal_handlers(), keep_fault_handlers():
        _start(ray, address)
    try:
        yield ray
    finally:
        # Its end resets what it had taken to the system's default.
        with _keep_signal_handlers(), keep_fault_handlers():
            ray.shutdown()


def _start(ray: Any, address: str) -> None:
    """Connect to a cluster, or start one. Raises :class:`BackendError` if that fails."""
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **_local(address))
    except Exception as error:  # noqa: BLE001 - the likeliest of what Ray raises is a plain Exception
        ray.shutdown()
        raise BackendError(f"Ray does not answer at '{address}' (workers.address): {reason(error)}") from None


def _local(address: str) -> dict[str, Any]:
    """Return what only holds for a cluster that is started here.

    Ray itself counts the cores of the whole node, and GPUs that are cut into instances as whole ones.
    """
    if address != "local":
        return {}
    gpus = visible_gpus()
    if any(gpu.startswith("MIG-") for gpu in gpus):
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)  # its workers get numbers of this list
    return {
        "object_store_memory": _OBJECTS_BYTES,
        "include_dashboard": False,
        "num_cpus": count_cores(),
        "num_gpus": len(gpus),
    }


@contextmanager
def _keep_signal_handlers() -> Iterator[None]:
    """Keep what this process does on SIGTERM: Ray puts its own in the place."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
