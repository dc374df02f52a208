"""What identifies a model: the weights themselves, wherever they lie and whatever it is called."""

from __future__ import annotations

import hashlib
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
