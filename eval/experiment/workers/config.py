"""What can be set about workers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from corag.core.errors import ConfigError, nearest
from corag.core.options.classes import Options
from corag.core.options.names import Mark
from corag.core.system.installation import require

WORKERS_ALIASES = {"workers": "workers.kind"}


@dataclass(frozen=True)
class WorkersConfig(Options):
    """Who answers the questions.

    Raises:
        ConfigError: for numbers that cannot be, or if Ray is not installed.
    """

    kind: Literal["auto", "none", "ray"] = "auto"
    """"none": this process; "ray": Ray actors, each with its own engine; "auto": one engine per visible GPU
    of this machine (CUDA_VISIBLE_DEVICES), or this process if there is at most one."""

    count: int = 0
    """number of workers; 0 for as many as fit: by GPUs if each takes some, else one per machine."""

    gpus_per_worker: float = 0.0
    """GPUs per worker's engine; a fraction shares one."""

    restarts: int = 3
    """how often Ray restarts a worker that died."""

    address: Annotated[str, Mark.PRIVATE] = ""
    """address of a running Ray cluster, such as "auto" or "ray://HOST:10001"; "" uses RAY_ADDRESS, else a
    local cluster is started and stopped with the run."""

    def __post_init__(self) -> None:
        if self.kind == "ray":
            require("workers=ray", "ray", otherwise="leave it out")
        if min(self.count, self.gpus_per_worker, self.restarts) < 0:
            raise ConfigError("the workers' count, GPUs and restarts cannot be negative.")
        if self.gpus_per_worker > 1 and self.gpus_per_worker % 1:
            raise ConfigError(
                f"workers.gpus_per_worker is {self.gpus_per_worker:g}: an engine takes whole GPUs, or a part "
                "of one."
            )
        changed_fields = [each.name for each in fields(self)[1:] if getattr(self, each.name) != each.default]
        if changed_fields and not self.enabled:
            raise ConfigError(
                f"workers.{changed_fields[0]} is given, but no workers are wanted: add workers=ray."
            )

    @property
    def enabled(self) -> bool:
        """Whether workers answer, not this process; "auto" is settled before this is asked."""
        return self.kind == "ray"


def ray_workers(**options: Any) -> WorkersConfig:
    """Describe workers of Ray, for ``run(..., workers=ray_workers(count=4))``.

    Args:
        options: those of :class:`WorkersConfig`, such as ``count``, ``gpus_per_worker`` or ``address``.

    Raises:
        ConfigError: for an unknown option, or a number that cannot be.
    """
    names = [name for name in WorkersConfig.__dataclass_fields__ if name != "kind"]
    if unknown := [name for name in options if name not in names]:
        raise ConfigError(f"ray_workers has no option '{unknown[0]}': {nearest(unknown[0], names)}")
    return WorkersConfig("ray", **options)
