"""What identifies a model: the weights themselves, wherever they lie and whatever it is called."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

_SAMPLE = 16  # first values of each weight that are read: enough for any training to show


def model_fingerprint(model: Any) -> str:
    """Hash a torch model's modules and, of every weight, name, shape and first values.

    From memory, not from files: the same on any device and in any file format.
    """
    digest = hashlib.blake2b(str(model).encode(), digest_size=8)
    for name, weight in sorted(model.state_dict().items()):
        digest.update(f"{name}{tuple(weight.shape)}".encode())
        digest.update(weight.flatten()[:_SAMPLE].float().cpu().numpy().tobytes())
    return digest.hexdigest()


def is_late_interaction(folder: Path) -> bool:
    """Whether a model has a vector per token, by its files. Any other would be loaded with random weights."""

    def read(name: str) -> dict[str, Any]:
        with suppress(OSError, ValueError):
            record = json.loads((folder / name).read_text(encoding="utf-8"))
            return record if isinstance(record, dict) else {"modules": record}
        return {}

    is_saved_late = read("config_sentence_transformers.json").get("model_type") in (
        "MultiVectorEncoder",
        "ColBERT",
    )
    stanford = "HF_ColBERT" in (read("config.json").get("architectures") or ())
    return is_saved_late or stanford or "pylate." in json.dumps(read("modules.json"))
