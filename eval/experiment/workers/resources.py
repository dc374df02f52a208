"""How many workers the machines take, and how many cores each worker gets.

Apart from the pool, which is about processes: this is arithmetic on the resources that Ray reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from corag.core.errors import ConfigError
from eval.experiment.workers.config import WorkersConfig

Machine = Mapping[str, float]
"""A machine's resources as Ray reports them: "CPU", "GPU"."""


def list_machines(ray: Any) -> Sequence[Machine]:
    """Return the cluster's machines that are alive."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def plan_workers(config: WorkersConfig, ray: Any) -> tuple[int, float]:
    """Return the number of workers and the cores of each.

    Raises :class:`ConfigError` if the machines have no room for them.
    """
    machines = list_machines(ray)
    gpus_per_worker = config.gpus_per_worker
    capacities = [_capacity(each, config) for each in machines]
    count = config.count or sum(capacities)
    if (gpus_per_worker and count > sum(capacities)) or not count:
        raise ConfigError(
            f"there is no room for {config.count or 'any'} workers with {gpus_per_worker:g} GPUs each: "
            f"{len(machines)} machines have {sum(each.get('GPU', 0) for each in machines):g} GPUs together."
        )
    if not gpus_per_worker and config.count:  # any number fits on a machine, with smaller shares
        capacities = [count] * len(machines)
    # On one machine shares may be parts of a core: 32 clients of a server are no load.
    return count, 0.99 * _equal_cores(machines, capacities, count)


def _capacity(machine: Machine, config: WorkersConfig) -> int:
    """Return how many workers a machine takes: by GPUs if each worker has some, else one if it has cores."""
    gpus_per_worker, gpus = config.gpus_per_worker, machine.get("GPU", 0)
    if not gpus_per_worker:
        return int(machine.get("CPU", 0) > 0)
    # Parts of two GPUs are no GPU. The sum is rounded, since 1 // 0.1 is 9.
    return (
        int(gpus) * int(round(1 / gpus_per_worker, 6))
        if gpus_per_worker < 1
        else int(gpus // gpus_per_worker)
    )


def _equal_cores(machines: Sequence[Machine], capacities: Sequence[int], count: int) -> float:
    """Return the cores that each of ``count`` workers can have, wherever it is.

    They are placed one by one where most is left for each. Ray may place them otherwise: then, too, there is
    room for all, since they are alike.
    """
    worker_counts = [0] * len(machines)
    for _ in range(count):
        free = [number for number, capacity in enumerate(capacities) if worker_counts[number] < capacity]
        worker_counts[
            max(free, key=lambda number: machines[number].get("CPU", 0) / (worker_counts[number] + 1))
        ] += 1
    return min(
        each.get("CPU", 0) / workers for each, workers in zip(machines, worker_counts, strict=True) if workers
    )
