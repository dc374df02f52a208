"""What identifies a model: the weights themselves, wherever they lie and whatever it is called."""

from __future__ import annotations

import hashlib
from typing import Any

_SAMPLE = 4096  # about so many values of each weight, from all of it: of tables a training changes some rows


def model_fingerprint(model: Any) -> str:
    """Hash a torch model's modules and, of every weight, name, shape and a sample of its values.

    From memory, not from files: the same on any device and in any file format.
    """
    digest = hashlib.blake2b(str(model).encode(), digest_size=8)
    for name, weight in sorted(model.state_dict().items()):
        digest.update(f"{name}{tuple(weight.shape)}".encode())
        values = weight.flatten()[:: max(1, weight.numel() // _SAMPLE)]
        digest.update(values.float().cpu().numpy().tobytes())
    return digest.hexdigest()
