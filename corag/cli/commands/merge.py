"""Fold a LoRA adapter into its base model: a model folder that needs no adapter any more.

corag merge adapters/world --out models/world
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from corag.cli.result import CommandResult
from corag.core.errors import ConfigError
from corag.core.options.classes import Options
from corag.core.options.names import LocalPath, NameOrPath
from corag.core.system.files import share_files
from corag.generation.adapters import (
    MERGED_TRAINING,
    TRAINING,
    adapter_folder,
    merge_adapter,
    require_adapter,
)
from corag.generation.models import folder_digest, model_folder
from eval.experiment.opening import quiet


@dataclass(frozen=True)
class MergeOptions(Options):
    """Options of 'corag merge'."""

    adapter: NameOrPath = ""
    """folder of the adapter."""

    out: LocalPath = ""
    """folder of the model."""

    model: NameOrPath = "auto"
    """the base model; "auto" is the one that the adapter's manifest names."""

    dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16"
    """precision of the weights that are written."""

    def __post_init__(self) -> None:
        if not self.adapter or not self.out:
            raise ConfigError(
                "name the adapter and the folder of the merged model: corag merge ADAPTER --out MODEL."
            )
        if Path(self.out).exists() and (not Path(self.out).is_dir() or any(Path(self.out).iterdir())):
            raise ConfigError(f"'{self.out}' is in the way: choose another 'out', or remove it.")


def main(config: MergeOptions) -> CommandResult:
    """Merge, and say how to use the model."""
    adapter = adapter_folder(config.adapter)
    manifest = require_adapter(adapter)
    name = str(manifest["settings"]["base"]["name"]) if manifest and config.model == "auto" else config.model
    if name == "auto":
        raise ConfigError(f"'{config.adapter}' does not say what it was trained for: name its base (model).")
    with quiet(f"folding {config.adapter} into {name}"):
        folder = model_folder(name)
        merge_adapter(folder, adapter, Path(config.out), config.dtype)
        share_files(Path(config.out))
    if manifest is not None:
        shutil.copy(Path(adapter) / TRAINING, Path(config.out) / MERGED_TRAINING)
    print(f"{config.out}: {name} with the adapter {config.adapter}. Use it: model.name={config.out}")
    record = {"folder": config.out, "base": name, "adapter": config.adapter}
    return CommandResult(0, [record | {"digest": folder_digest(config.out)}])
