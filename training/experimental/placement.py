"""What GRPO's processes may have on which GPU: each the model it trains, its frozen twin and its encoder.

Device "auto" is a process's own GPU (:func:`corag.core.devices.choose_device`), in whatever thread it is
asked for. What cannot be so is refused here, before anything is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from corag.core.errors import ConfigError
from training.experimental.config import GrpoConfig
from training.launched import process_count


def check_placement(config: GrpoConfig) -> None:
    """Raise :class:`ConfigError` for a launch under which GRPO would hang, or share a GPU with itself."""
    environment = os.environ
    sharding = "FSDP" if environment.get("ACCELERATE_USE_FSDP", "").lower() == "true" else ""
    if environment.get("ACCELERATE_DEEPSPEED_ZERO_STAGE") == "3":
        sharding = "DeepSpeed's stage 3"
    if sharding:
        raise ConfigError(
            f"grpo.py samples and answers dev questions with whole models, which {sharding} spreads over the "
            "processes: it would wait for ever. Start it with --multi_gpu, one model per GPU, or with tuning "
            "qlora if that does not fit."
        )
    if process_count() > 1:
        for fault in _gpu_conflicts(config):
            raise ConfigError(f"{process_count()} processes train together, but {fault}.")


def _gpu_conflicts(config: GrpoConfig) -> Iterator[str]:
    """Yield what every one of several processes would put on the same GPUs, and what to do instead."""
    if config.engine.engine_kind.name == "vllm":
        yield (
            "engine.backend vllm would start an engine in each of them, all on the first GPU: choose "
            "engine.backend transformers, or servers on GPUs of their own (engine.backend server, "
            "engine.urls URLS)"
        )
    devices = {"engine.device": config.engine.device, "retriever.device": config.retriever.device}
    devices["dev.retriever.device"] = config.dev.retriever.device
    for option, device in devices.items():
        if device.startswith("cuda"):
            yield f"{option} is '{device}' for all of them: leave it out, and each takes its own GPU"
    if "cuda" in (where := config.retriever.search_device) or "cuda" in config.dev.retriever.search_device:
        yield (
            f"search_device {where or config.dev.retriever.search_device} would put the vectors on the GPUs "
            "once for each of them: serve the index once (corag serve search) and give --retriever.url"
        )
