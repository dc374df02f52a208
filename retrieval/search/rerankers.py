"""Cross-encoders, which read query and passage together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from corag.core.errors import ConfigError, SearchFailedError
from corag.core.lazy import importing
from corag.core.tokenizer import require_words
from corag.core.web.hugging_face import download
from retrieval.dense.placement import Placement

Pairs = tuple[str, Sequence[str]]
"""A query and the contents of its passages."""
ScoresOrError = Sequence[float] | SearchFailedError


class Reranker(Protocol):
    """Scores passages for a query; higher is better. ``fingerprint`` identifies the model."""

    fingerprint: str

    def score(self, items: Sequence[Pairs]) -> Sequence[ScoresOrError]:
        """Return for each query the scores of its passages, or the error of that query alone."""
        ...

    def note(self, query: str) -> str:
        """Return what there is to say of a query, such as that it leaves no room for passages; else ""."""
        ...

    def close(self) -> None:
        """Free what it holds. Safe to call twice."""
        ...


class CrossEncoderReranker:
    """A cross-encoder of sentence-transformers in this process."""

    def __init__(self, name: str, placement: Placement) -> None:
        """Load it. Raises :class:`ConfigError` if it cannot be loaded or gives several scores per pair."""
        folder = Path(name).expanduser()
        if not folder.is_dir():
            folder = download(name, "reranker", "a local folder")
        with importing:
            from sentence_transformers import CrossEncoder

        placed_model = placement.load(
            lambda device: CrossEncoder(str(folder), device=device),
            f"the reranker '{name}'",
            "the re-ranker's device",
        )
        self._model: Any = placed_model.model
        self._batch_size = placed_model.batch_size
        require_words(self._model.tokenizer, f"the reranker '{name}'")
        if self._model.num_labels != 1:
            raise ConfigError(
                f"the reranker '{name}' gives {self._model.num_labels} scores per passage, but one is needed."
            )
        # By its weights, not by its name: another model may come to lie in the same folder.
        self.fingerprint = placed_model.fingerprint + (placed_model.rounding and f"|{placed_model.rounding}")

    def score(self, items: Sequence[Pairs]) -> Sequence[ScoresOrError]:
        """Return for each query the scores of its passages."""
        pairs = [(query, text) for query, texts in items for text in texts]
        scores = iter(
            self._model.predict(pairs, batch_size=self._batch_size, show_progress_bar=False).tolist()
        )
        return [[next(scores) for _ in texts] for _, texts in items]

    def note(self, query: str) -> str:
        """Return that the cross-encoder has no room for passages beside a query, if so; else ""."""
        limit = self._model.max_seq_length
        # A token is a byte or more, so that most queries need not be counted.
        if not limit or 2 * len(query.encode()) <= limit:
            return ""
        tokens = len(self._model.tokenizer(query, truncation=False, verbose=False)["input_ids"])
        if 2 * tokens <= limit:
            return ""
        return f"the re-ranker reads {limit:,} tokens of query and passage together; the query has {tokens:,}"

    def close(self) -> None:
        """Do nothing: the model goes with its last user."""
