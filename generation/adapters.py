"""LoRA adapters on disk: whether a folder is one, and whether it was made for this base model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from core.errors import ConfigError, DataError
from generation.models import folder_digest

MANIFEST = "training.json"
"""What training/sft.py leaves beside an adapter: how it was made."""


def check_adapter(adapter: str, folder: str) -> dict[str, Any]:
    """Return an adapter's configuration.

    Raises :class:`ConfigError` if the folder holds none, or one that was trained for another base model than the one in ``folder``.
    """
    path = Path(adapter) / "adapter_config.json"
    if not path.is_file():
        raise ConfigError(f"'{adapter}' is no LoRA adapter: the folder has no adapter_config.json.")
    manifest = read_manifest(Path(adapter))
    if manifest is not None and (base := manifest["settings"]["base"])["digest"] != folder_digest(
        folder, weights_only=True
    ):
        raise ConfigError(
            f"the adapter '{adapter}' was trained for the model '{base['name']}' ({base['digest']}), but '{folder}' is "
            f"another ({folder_digest(folder, weights_only=True)}): choose that model, or another adapter."
        )
    settings: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return settings


def read_manifest(adapter: Path) -> dict[str, Any] | None:
    """Read how an adapter was made; None if its folder does not say."""
    path = adapter / MANIFEST
    if not path.is_file():
        return None
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise DataError(
            f"'{path}' is not valid JSON ({error.msg}): restore it, or train again into another folder."
        ) from None
    return manifest
