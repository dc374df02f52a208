"""Where there is room for workers: how many machines take, and how many cores each worker is given.

Apart from the pool, which is about processes: this is arithmetic on what Ray tells of the machines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from core.errors import ConfigError
from eval.workers.config import WorkersConfig

Machine = Mapping[str, float]
"""What a machine has, as Ray tells it: "CPU", "GPU"."""


def machines_of(ray: Any) -> Sequence[Machine]:
    """Return the machines that Ray knows and that are alive."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def told_of(machines: Sequence[Machine]) -> str:
    """Say what machines have, equal ones together."""
    kinds = Counter((each.get("GPU", 0), each.get("CPU", 0)) for each in machines)
    return ", ".join(
        f"{times} times {gpus:g} GPUs and {cpus:g} cores" for (gpus, cpus), times in kinds.items()
    )


def share_out(config: WorkersConfig, ray: Any) -> tuple[int, float]:
    """Return how many workers there are and how many cores each is given.

    Raises :class:`ConfigError` if the machines have no room for them.
    """
    machines = machines_of(ray)
    per, cores = config.gpus_per_worker, config.cpus_per_worker
    rooms = [_room(each, config) for each in machines]
    count = config.count or sum(rooms)
    if (per and count > sum(rooms)) or not count:
        raise ConfigError(
            f"there is no room for {config.count or 'any'} workers with {per:g} GPUs each: "
            f"Ray knows {len(machines)} machines with {_total(machines, 'GPU'):g} GPUs together. Ask for "
            "fewer (--workers.count, --workers.gpus_per_worker), or wait until all machines have joined."
        )
    if cores:
        fitting = [int(each.get("CPU", 0) // cores) for each in machines]
        most = sum(map(min, rooms, fitting)) if per else sum(fitting)
        if count > most:
            raise ConfigError(
                f"there is no room for {count} workers with {cores} cores each: Ray knows {len(machines)} "
                f"machines with {_total(machines, 'CPU'):g} cores together, enough for {most}."
            )
        return count, cores
    if not per and config.count:  # any number fits on a machine, with smaller shares
        rooms = [count] * len(machines)
    # On one machine shares may be parts of a core: 32 clients of a server are no load.
    return count, 0.99 * _equalshare_out(machines, rooms, count)


def _room(machine: Machine, config: WorkersConfig) -> int:
    """Return how many workers a machine takes: by GPUs if each takes some, else one if it has cores."""
    per, gpus = config.gpus_per_worker, machine.get("GPU", 0)
    if not per:
        return int(machine.get("CPU", 0) > 0)
    # Parts of two GPUs are no GPU. The sum is rounded, since 1 // 0.1 is 9.
    return int(gpus) * int(round(1 / per, 6)) if per < 1 else int(gpus // per)


def _equalshare_out(machines: Sequence[Machine], rooms: Sequence[int], count: int) -> float:
    """Return the cores that each of ``count`` workers can have, wherever it is.

    They are placed one by one where most is left for each. Ray may place them otherwise: then, too, there is
    room for all, since they are alike.
    """
    placed = [0] * len(machines)
    for _ in range(count):
        free = [number for number, room in enumerate(rooms) if placed[number] < room]
        placed[max(free, key=lambda number: machines[number].get("CPU", 0) / (placed[number] + 1))] += 1
    return min(each.get("CPU", 0) / here for each, here in zip(machines, placed, strict=True) if here)


def _total(machines: Sequence[Machine], what: str) -> float:
    return sum(each.get(what, 0) for each in machines)
