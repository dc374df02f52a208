"""Are stored vectors those that an encoder makes? A few passages are encoded again and compared.

A wrong pooling, a wrong prefix or another order of the rows has the right count and dimension, and finds what
looks like chance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag.core.errors import IndexMismatchError
from corag.core.types import Passage
from retrieval.dense.encoder import TextEncoder

_SAMPLE_SIZE = 12  # passages
_SAME_COSINE = 0.995  # two encodings of a text in float32, bfloat16 or float16 have .999 and more
_SHARE = 0.75  # of the passages: some may have been cut elsewhere, or written a little differently
_NEAREST_HITS = 10  # hits of a compressed index among which a passage's own row has to be
# How title and text were put together for the encoder: ours, FlashRAG's and Search-R1's, others'.
_LAYOUTS: tuple[Callable[[Passage], str], ...] = (
    lambda passage: passage.contents,
    lambda passage: f'"{passage.title}"\n{passage.text}',
    lambda passage: f"{passage.title} {passage.text}",
    lambda passage: f"{passage.title} [SEP] {passage.text}",  # DPR's pairs
    lambda passage: passage.text,
)


def sample_rows(rows: int) -> list[int]:
    """Return the rows that are compared: spread evenly, the first and the last among them."""
    return sorted({round(position) for position in np.linspace(0, rows - 1, min(rows, _SAMPLE_SIZE))})


def check_vectors(
    what: str,
    passages: Sequence[Passage],
    vectors: NDArray[np.float32],
    encoder: TextEncoder,
    prefix: str,
    advice: str = "",
) -> None:
    """Raise :class:`IndexMismatchError` unless stored vectors are the encoder's of their passages.

    Args:
        what: the vectors, for the sentence.
        passages: those of :func:`sample_rows`.
        vectors: what is stored for them, [passages, dimension].
        encoder: what is to encode the queries.
        prefix: what stood before every passage.
        advice: a further sentence on what may be wrong.
    """
    _check(
        what,
        passages,
        lambda encoded: (_of_length_one(encoded) * _of_length_one(vectors)).sum(1) >= _SAME_COSINE,
        encoder,
        prefix,
        f"have a cosine of {_SAME_COSINE} or more with the vector of their row",
        advice,
    )


def _of_length_one(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, np.finfo(np.float32).tiny), np.float32)


def check_compressed(
    what: str, passages: Sequence[Passage], index: Any, encoder: TextEncoder, prefix: str, advice: str = ""
) -> None:
    """Raise :class:`IndexMismatchError` unless a FAISS index finds a few passages by their own vectors.

    For those that keep no vectors to compare. The arguments are those of :func:`check_vectors`.
    """
    rows = np.array(sample_rows(int(index.ntotal)))[:, None]
    near = min(_NEAREST_HITS, max(2, int(index.ntotal) // 50))
    _check(
        what,
        passages,
        lambda encoded: (index.search(encoded, near)[1] == rows).any(1),
        encoder,
        prefix,
        f"are among the {near} that their vector finds",
        advice,
    )


def _check(
    what: str,
    passages: Sequence[Passage],
    agree: Callable[[NDArray[np.float32]], NDArray[np.bool_]],
    encoder: TextEncoder,
    prefix: str,
    expected: str,
    advice: str,
) -> None:
    """Raise unless most passages agree, by whichever way of putting title and text together."""
    most = 0
    for layout in _LAYOUTS:
        encoded = encoder.encode([layout(each) for each in passages], prompt=prefix, kind="document")
        most = max(most, int(agree(encoded).sum()))
        if most >= _SHARE * len(passages):
            return
    before = f", with {prefix!r} before each" if prefix else ""
    raise IndexMismatchError(
        f"{what} are not those that the encoder '{encoder.name}' makes of the passages{before}: of "
        f"{len(passages)} that were encoded again {most} {expected}. Check the encoder (its weights, its "
        "pooling), the prefix, and that the corpus is in their order." + (advice and f" {advice}")
    )
