"""Where an encoder or a re-ranker runs, in which precision, and on how many texts at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from corag.core.errors import ConfigError, reason
from corag.core.lazy import importing
from corag.core.system.devices import choose_device
from corag.core.web.hugging_face import reading_weights
from retrieval.dense.fingerprint import model_fingerprint

Precision = Literal["auto", "float32", "bfloat16", "float16"]

_CPU_BATCH, _GPU_BATCH = 64, 512


@dataclass(frozen=True)
class Placement:
    """How to run a sentence-transformers model.

    Attributes:
        device: of torch, such as "cpu" or "cuda:1"; "auto" = a GPU if there is one.
        dtype: precision of the weights; "auto" = that in which they were saved.
        encodes_corpus: whether it is for the passages of an index, the work of hours in float32: "auto" is
            then bfloat16 on a GPU that computes in it, for weights that were saved in float32.
        batch_size: texts at once; 0 = 64 on a CPU and 512 on a GPU.
        timeout_s: seconds to wait for a reply, where the model is a server's.
        retries: times that a request to such a server is sent again.
    """

    device: str = "auto"
    dtype: Precision = "auto"
    batch_size: int = 0
    # For an index in the making: two minutes of pauses outlive a server's restart.
    timeout_s: float = 120.0
    retries: int = 8
    encodes_corpus: bool = False

    def dtype_on(self, device: str, capability: tuple[int, int]) -> Precision:
        """Return the precision for weights of float32. ``capability``: of the GPU in CUDA, (0, 0) without."""
        if (
            self.dtype == "auto"
            and self.encodes_corpus
            and device.startswith("cuda")
            and capability >= (8, 0)
        ):
            return "bfloat16"
        return self.dtype

    def load(self, open_model: Callable[[str], Any], what: str, option: str) -> PlacedModel:
        """Load a model and place it.

        Args:
            open_model: loads it on a device.
            what: the model, such as "the encoder 'x'", for an error's sentence.
            option: the name of the option ``device``, for another.

        Raises:
            ConfigError: if it cannot be loaded, or there is no such device here.
        """
        try:
            with reading_weights(what):
                return self._load(open_model, option)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{what} cannot be loaded: {reason(error)}") from None

    def _load(self, open_model: Callable[[str], Any], option: str) -> PlacedModel:
        device = choose_device(self.device, option)
        # To the GPU in the precision that it will have: in float32 it may not fit.
        with importing:
            import torch
        is_cuda = device.startswith("cuda")
        wanted = self.dtype_on(device, torch.cuda.get_device_capability(device) if is_cuda else (0, 0))
        model = open_model(device if wanted == "auto" else "cpu")
        own_dtype = next(model.parameters()).dtype
        if self.dtype == "auto" and own_dtype != torch.float32:
            wanted = "auto"
        # Before the weights are rounded: the same model whatever it runs in.
        fingerprint = model_fingerprint(model)
        dtype = own_dtype if wanted == "auto" else getattr(torch, wanted)
        # As they were saved, some layers may be in another precision on purpose (T5's in float16).
        model = model.to(device) if wanted == "auto" else model.to(dtype).to(device)
        batch_size = self.batch_size or (_CPU_BATCH if device == "cpu" else _GPU_BATCH)
        rounding = "" if dtype == own_dtype else str(dtype).removeprefix("torch.")
        return PlacedModel(model, fingerprint, batch_size, rounding, dtype == torch.float32)


ANYWHERE = Placement()


@dataclass(frozen=True)
class PlacedModel:
    """A model in its place.

    Attributes:
        model: of sentence-transformers.
        fingerprint: of its weights as they were saved.
        batch_size: texts at once.
        rounding: the precision that its weights were brought into, "" if they are as they were saved. It
            changes what is computed, so it is part of what identifies that.
        is_float32: whether it computes in float32.
    """

    model: Any
    fingerprint: str
    batch_size: int
    rounding: str
    is_float32: bool
