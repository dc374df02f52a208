"""Where torch runs a model, of what an option names."""

from __future__ import annotations

import os

from corag.core.errors import ConfigError
from corag.core.lazy import importing


def choose_device(name: str, option: str) -> str:
    """Return the torch device of an option's value, such as "cpu" or "cuda:1".

    "auto" is a GPU if there is one; of several processes that were launched together, each has its own.

    Args:
        name: what was given.
        option: whose value it is, for the error's sentence.

    Raises:
        ConfigError: if there is no such device here.
    """
    with importing:
        import torch

    gpus = torch.cuda.device_count()
    if name == "auto":
        if gpus and torch.cuda.is_available():
            # Not "cuda": that is the calling thread's current device, which is the first GPU in every thread
            # but the one that a launcher has set.
            return f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % gpus}"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(
            f"{option} is '{name}', which torch does not know: give 'auto', 'cpu', 'cuda' or 'cuda:1'."
        ) from None
    if device.type == "cuda" and (device.index or 0) >= gpus:
        # A number counts among the GPUs that CUDA_VISIBLE_DEVICES leaves, not those of the machine.
        gpu_list = f"{gpus} (cuda:0 to cuda:{gpus - 1})" if gpus else "none"
        raise ConfigError(
            f"{option} is '{name}', but the number of GPUs that torch sees is {gpu_list}: give 'auto' or "
            "'cpu', or see what CUDA_VISIBLE_DEVICES is and whether torch is a build for GPUs (corag doctor)."
        )
    return name
