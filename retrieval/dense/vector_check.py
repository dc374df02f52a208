"""Are stored vectors those that an encoder makes? A few passages are encoded again and compared.

A wrong pooling, a wrong prefix or another order of the rows has the right count and dimension, and finds what
looks like chance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag.core.errors import IndexMismatchError
from corag.core.types import Passage
from retrieval.dense.encoder import TextEncoder

_SAMPLE_SIZE = 12  # passages
_SAME_COSINE = 0.99  # cosine of two encodings of a text in float32, bfloat16 or float16: .999 and more
_SURE_COSINE = 0.9995  # with this no other prefix is looked for
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
_PREFIXES = ("", "passage: ", "query: ", "search_document: ")  # of E5, nomic and others


def sample_rows(rows: int) -> list[int]:
    """Return the rows that are compared: spread evenly, the first and the last among them."""
    return sorted({round(position) for position in np.linspace(0, rows - 1, min(rows, _SAMPLE_SIZE))})


@dataclass(frozen=True)
class _Agreement:
    """Cosines of stored vectors with those of passages encoded after a prefix."""

    prefix: str
    cosines: NDArray[np.float32]

    @property
    def median(self) -> float:
        return float(np.median(self.cosines))

    @property
    def same(self) -> int:
        return int((self.cosines >= _SAME_COSINE).sum())

    @property
    def holds(self) -> bool:
        return self.same >= _SHARE * len(self.cosines)


def check_vectors(
    what: str,
    passages: Sequence[Passage],
    read: Callable[[int], NDArray[np.float32]],
    rows: int,
    encoder: TextEncoder,
    prefix: str | None,
    advice: str = "",
) -> None:
    """Raise :class:`IndexMismatchError` unless stored vectors are the encoder's of their passages.

    Args:
        what: the vectors, for the sentence.
        passages: those of :func:`sample_rows`.
        read: returns the stored vector of a row, [dimension].
        rows: how many vectors there are.
        encoder: what is to encode the queries.
        prefix: what stood before every passage; None if that is not known, and any will do.
        advice: a further sentence on what may be wrong.
    """
    places = sample_rows(rows)
    vectors = np.stack([read(row) for row in places])
    prefixes = [prefix] if prefix is not None else _known_prefixes(encoder)
    agreement = max(
        (_compare(passages, vectors, encoder, each) for each in prefixes), key=lambda each: each.median
    )
    if agreement.holds and (prefix is None or agreement.median >= _SURE_COSINE):
        return
    if prefix is not None:
        others = [each for each in _known_prefixes(encoder) if each != prefix]
        best = max(
            (_compare(passages, vectors, encoder, each) for each in others), key=lambda each: each.median
        )
        if best.holds and best.median - agreement.median > 1 - _SURE_COSINE:
            raise IndexMismatchError(
                f"{what} were made with {best.prefix!r} before every passage, and passage_prefix is "
                f"{prefix!r}: encoded again with the first, {len(places)} passages have a median cosine of "
                f"{best.median:.4f} with their vectors, with the second {agreement.median:.4f}. Give "
                f"passage_prefix={best.prefix!r}."
            )
        if agreement.holds:
            return
    raise IndexMismatchError(
        f"{what} are not those that the encoder '{encoder.name}' makes of the passages: of {len(places)} "
        f"that were encoded again {agreement.same} have a cosine of {_SAME_COSINE} or more with the vector "
        f"of their row (median {agreement.median:.3f}). {_advice(agreement, passages, read, rows, encoder)}"
        + (advice and f" {advice}")
    )


def _known_prefixes(encoder: TextEncoder) -> list[str]:
    card = encoder.missing_prompts()
    encoder_prefixes = (encoder.prompts.document, card.document if card else "")
    return list(dict.fromkeys((*encoder_prefixes, *_PREFIXES)))


def _advice(
    agreement: _Agreement,
    passages: Sequence[Passage],
    read: Callable[[int], NDArray[np.float32]],
    rows: int,
    encoder: TextEncoder,
) -> str:
    """Say what may be wrong: above all, whether the vectors are in place but for a row or two."""
    if agreement.same:
        return "Those that agree are in place: check the order of the files, and that the corpus is the same."
    places = sample_rows(rows)
    for offset in (-1, 1, -2, 2):
        inside = [position for position, row in enumerate(places) if 0 <= row + offset < rows]
        if not inside:
            continue
        vectors = np.stack([read(places[position] + offset) for position in inside])
        if _compare([passages[position] for position in inside], vectors, encoder, agreement.prefix).holds:
            where = "before" if offset < 0 else "behind"
            return (
                f"They are those of the row {abs(offset)} {where} it: the corpus has a record more or less "
                "than the one that the vectors were made of."
            )
    return "Check the encoder (its weights, its pooling), the prefix, and that the corpus is in their order."


def _compare(
    passages: Sequence[Passage], vectors: NDArray[np.float32], encoder: TextEncoder, prefix: str
) -> _Agreement:
    """Return how the passages agree best, by whichever way of putting title and text together."""
    best = None
    for layout in _LAYOUTS:
        new_vectors = encoder.encode([layout(each) for each in passages], prompt=prefix, kind="document")
        cosines = np.array([_cosine(*pair) for pair in zip(new_vectors, vectors, strict=True)], np.float32)
        this = _Agreement(prefix, cosines)
        if best is None or this.median > best.median:
            best = this
        if best.holds and best.median >= _SURE_COSINE:
            break
    assert best is not None
    return best


def _cosine(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    length = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / length if length else 0.0


def check_compressed(
    what: str,
    passages: Sequence[Passage],
    index: Any,
    encoder: TextEncoder,
    prefix: str | None,
    advice: str = "",
) -> None:
    """Raise :class:`IndexMismatchError` unless a FAISS index finds a few passages by their own vectors.

    For those that keep no vectors to compare. The arguments are those of :func:`check_vectors`; the index is
    made to look deeper than searches do, and stays so.
    """
    import faiss

    for name, value in (("nprobe", 64), ("efSearch", 128)):
        try:
            faiss.ParameterSpace().set_index_parameter(index, name, value)
        except RuntimeError:  # of another type of index
            continue
    rows, hits = sample_rows(int(index.ntotal)), 0
    near = min(_NEAREST_HITS, max(2, int(index.ntotal) // 50))
    for start in [prefix] if prefix is not None else _known_prefixes(encoder):
        for layout in _LAYOUTS:
            vectors = encoder.encode([layout(each) for each in passages], prompt=start, kind="document")
            _, nearest = index.search(vectors, near)
            hits = max(hits, sum(row in some for row, some in zip(rows, nearest.tolist(), strict=True)))
            if hits >= _SHARE * len(rows):
                return
    before = f" with {prefix!r} before each" if prefix is not None else ""
    raise IndexMismatchError(
        f"{what} are not those that the encoder '{encoder.name}' makes of the passages{before}: of "
        f"{len(rows)} that were encoded again {hits} are among the {near} that their vector finds. Check "
        "the encoder (its weights, its pooling), the prefix, and that the corpus is in their order."
        + (advice and f" {advice}")
    )
