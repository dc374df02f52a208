"""Late interaction: a vector per token, and MaxSim between those of a query and of every passage.

A query's score with a passage is the sum, over the query's tokens, of the highest product with any token of
the passage (Khattab and Zaharia 2020, ColBERT, section 3.3). The models are those of sentence-transformers
(``MultiVectorEncoder``), of PyLate and of Stanford's ColBERT; PyLate itself is not needed. All passages are
looked through: token vectors, in float16 and mapped into memory, take some 60 times what one vector a passage
takes.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag.core.errors import ConfigError, DataError, IndexMismatchError
from corag.core.types import Hit, Passage
from retrieval.dense.build import Progress
from retrieval.dense.encoder import UNLIMITED, Encoder, Kind
from retrieval.dense.placement import Placement
from retrieval.store import PassageStore
from retrieval.wrappers import HitsOrError, with_note

TOKENS, LENGTHS = "tokens.f16", "tokens.lengths"  # float16 [tokens, dimension]; int32, one per passage
_BLOCK = 1 << 24  # products of tokens that are in memory at once: 64 MB
_SORT_BATCHES = 16  # batches that are ordered by length together
_ROUNDING = 1e-5  # more than a float32 product of two vectors is off, per token of a query
_MOST_UNDECIDED = 4096  # passages about the k-th place whose scores are computed anew
_AT_ONCE = 16  # queries
_ANYWHERE = Placement()


class LateEncoder(Encoder):
    """A model of sentence-transformers with a vector per token, of length 1."""

    is_late = True

    def __init__(self, name: str, max_tokens: int = 0, placement: Placement = _ANYWHERE) -> None:
        """Load a model, as :class:`Encoder` does; the default one has no vectors of tokens."""
        if name == "default":
            raise ConfigError(
                "an index of the kind 'late' wants an encoder with a vector per token, which the default one "
                "is not: name one, such as --encoder lightonai/GTE-ModernColBERT-v1."
            )
        super().__init__(name, max_tokens, placement)

    @staticmethod
    def _open_model(source: str, device: str) -> Any:
        from sentence_transformers import MultiVectorEncoder

        return MultiVectorEncoder(source, device=device)

    def _read_at_most(self, tokens: int) -> None:
        self._model[0].document_length = tokens

    @property
    def max_tokens(self) -> int:
        """The longest passage that is read whole, in tokens."""
        return self._limit("document")

    @property
    def max_query_tokens(self) -> int:
        """The longest query that is read whole, in tokens."""
        return self._limit("query")

    def _limit(self, kind: Kind) -> int:
        limit = getattr(self._model[0], f"{kind}_length", None)
        return min(int(limit or UNLIMITED), super().max_tokens)

    def encode_tokens(
        self, texts: Sequence[str], batch_size: int = 0, *, prompt: str, kind: Kind
    ) -> list[NDArray[np.float16]]:
        """Return the vectors of each text's tokens, [tokens, dimension], at least one.

        Arguments as of :meth:`encode`. Raises :class:`DataError` if one is not finite.
        """
        encode = self._model.encode_query if kind == "query" else self._model.encode_document
        nfc_texts = [unicodedata.normalize("NFC", text) for text in texts]
        with self._lock:
            matrices = encode(
                nfc_texts,
                prompt=prompt,
                batch_size=batch_size or self.batch_size,
                normalize_embeddings=True,
                show_progress_bar=False,
                convert_to_numpy=True,
            )
        for text, matrix in zip(texts, matrices, strict=True):
            if not np.isfinite(matrix).all():
                raise DataError(
                    f"the encoder '{self.name}' returned a vector that is not finite for the text "
                    f"'{text[:80]}'."
                )
        # A model may pass over all tokens of a text, such as punctuation: it then has a vector of zeros.
        none = np.zeros((1, self.dimension), np.float16)
        return [matrix.astype(np.float16) if len(matrix) else none for matrix in matrices]


def encode_tokens(
    store: PassageStore, encoder: LateEncoder, folder: Path, prompt: str, report: Callable[[str], None]
) -> None:
    """Write the token vectors of every passage's title, newline, text into ``folder``.

    What an interruption left of the same corpus, encoder and prompt is kept: all but the last passages.
    """
    done_rows = _mend(folder, encoder.dimension)
    progress, size = Progress(len(store), report), encoder.batch_size * _SORT_BATCHES
    progress.add(done_rows)
    with (folder / TOKENS).open("ab") as tokens, (folder / LENGTHS).open("ab") as lengths:
        for start in range(done_rows, len(store), size):
            texts = [passage.contents for passage in store.rows(start, start + size)]
            matrices = encoder.encode_tokens(texts, prompt=prompt, kind="document")
            tokens.write(np.concatenate(matrices).tobytes())
            tokens.flush()
            lengths.write(np.array([len(matrix) for matrix in matrices], np.int32).tobytes())
            lengths.flush()
            progress.add(len(texts), len(texts))
    progress.report_progress()


def _mend(folder: Path, dimension: int) -> int:
    """Cut off what was not written to its end; return of how many passages all vectors are there."""
    tokens, lengths = folder / TOKENS, folder / LENGTHS
    if not tokens.is_file() or not lengths.is_file():
        tokens.unlink(missing_ok=True)
        lengths.unlink(missing_ok=True)
        return 0
    counts = np.fromfile(lengths, np.int32)
    ends = np.cumsum(counts, dtype=np.int64) * dimension * 2
    whole = int(np.searchsorted(ends, tokens.stat().st_size, side="right"))
    for file, size in ((tokens, int(ends[whole - 1]) if whole else 0), (lengths, 4 * whole)):
        with file.open("r+b") as stream:
            stream.truncate(size)
    return whole


class TokenVectors:
    """The token vectors of an index, mapped into memory. Raises :class:`IndexMismatchError` if some lack."""

    def __init__(self, folder: Path, dimension: int, passages: int) -> None:
        lengths = np.fromfile(folder / LENGTHS, np.int32)
        self._ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        size = (folder / TOKENS).stat().st_size
        if len(lengths) != passages or size != 2 * dimension * int(self._ends[-1]):
            raise IndexMismatchError(
                f"the index '{folder}' has token vectors of {len(lengths):,} passages in {size:,} bytes, "
                f"which do not belong to its {passages:,} passages: build it again."
            )
        self._tokens: NDArray[np.float16] = np.memmap(
            folder / TOKENS, np.float16, "r", shape=(int(self._ends[-1]), dimension)
        )

    def nearest(self, queries: Sequence[NDArray[np.float16]], k: int) -> list[list[tuple[int, float]]]:
        """Return for each query the rows of the k passages with the highest MaxSim, and that, best first."""
        rough = self._rough([query.astype(np.float32) for query in queries])
        results = []
        for query, scores in zip(queries, rough, strict=True):
            rows = _candidates(scores, min(len(scores), k), 2 * _ROUNDING * len(query))
            exact = np.array([self.score(query, int(row)) for row in rows], np.float32)
            order = np.lexsort((rows, -exact))[:k]
            results.append([(int(rows[position]), float(exact[position])) for position in order])
        return results

    def score(self, query: NDArray[np.float16], row: int) -> float:
        """Return a query's MaxSim with one passage, in float64: the same whatever else is asked."""
        passage = self._tokens[self._ends[row] : self._ends[row + 1]].astype(np.float64)
        return float((query.astype(np.float64) @ passage.T).max(axis=1).sum())

    def _rough(self, queries: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        """Return the MaxSim of each query with each passage, [queries, passages]."""
        starts = np.concatenate([[0], np.cumsum([len(query) for query in queries])])
        query_tokens = np.concatenate(queries)
        scores = np.empty((len(queries), len(self._ends) - 1), np.float32)
        for first, last in self._blocks(max(1, _BLOCK // len(query_tokens))):
            begin, end = int(self._ends[first]), int(self._ends[last])
            products = query_tokens @ self._tokens[begin:end].astype(np.float32).T
            highest = np.maximum.reduceat(products, self._ends[first:last] - begin, axis=1)
            scores[:, first:last] = np.add.reduceat(highest, starts[:-1], axis=0)
        return scores

    def _blocks(self, tokens: int) -> Iterator[tuple[int, int]]:
        """Yield first and last row (exclusive) of blocks of passages with so many tokens, or of one."""
        first, passages = 0, len(self._ends) - 1
        while first < passages:
            last = int(np.searchsorted(self._ends, self._ends[first] + tokens, side="right")) - 1
            last = min(max(last, first + 1), passages)
            yield first, last
            first = last


def _candidates(scores: NDArray[np.float32], k: int, off: float) -> NDArray[np.int64]:
    """Return the rows that may belong to the k best, of scores that are half of ``off`` wrong at most.

    All that are as good as the k-th, so that fewer hits are the first of more; of very many, such as for a
    query without a token that counts, the first of the index.
    """
    last = -np.partition(-scores, k - 1)[k - 1]
    certain_rows = np.flatnonzero(scores > last + off)
    close_calls = np.flatnonzero((scores >= last - off) & (scores <= last + off))
    return np.concatenate([certain_rows, close_calls[: max(k, _MOST_UNDECIDED)]])


class LateSearcher:
    """A :class:`retrieval.wrappers.BatchSearcher` over token vectors."""

    def __init__(
        self, encoder: LateEncoder, vectors: TokenVectors, texts: PassageStore, query_prefix: str
    ) -> None:
        self._encoder, self._vectors, self._texts = encoder, vectors, texts
        self._query_prefix = query_prefix

    def search(self, queries: Sequence[str], k: int) -> Sequence[HitsOrError]:
        """Return for each query the k passages of the highest MaxSim, best first."""
        outcomes: list[HitsOrError] = []
        for start in range(0, len(queries), _AT_ONCE):
            some = queries[start : start + _AT_ONCE]
            tokens = self._encoder.encode_tokens(some, prompt=self._query_prefix, kind="query")
            for query, matches in zip(some, self._vectors.nearest(tokens, k), strict=True):
                hits = [Hit(self._texts.row(row), score) for row, score in matches]
                outcomes.append(with_note(hits, self._note(query)))
        return outcomes

    def _note(self, query: str) -> str:
        """Return how much of a query the encoder reads, if not all of it; else ""."""
        limit = self._encoder.max_query_tokens
        (tokens,) = self._encoder.count_tokens([self._query_prefix + query])
        return (
            f"the encoder read the first {limit:,} of the query's {tokens:,} tokens" if tokens > limit else ""
        )

    def passages(self, ids: Sequence[str]) -> dict[str, Passage]:
        """Return the passages with these ids by id, leaving out unknown ones."""
        return self._texts.passages(ids)

    def close(self) -> None:
        """Free the texts. Safe to call twice."""
        self._texts.close()
