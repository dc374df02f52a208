"""A retriever whose later searches are encoded by another encoder than the question's own.

The second passage of a question is hard to find with words that only name the first one, so encoders are
trained for what a chain asks on the way (MDR, Xiong et al. 2021; Baleen, Khattab et al. 2021). Only queries
are encoded otherwise: the vectors of passages, their texts, fusion, links and re-ranking are the same.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from corag.core.errors import ConfigError, IndexMismatchError
from corag.core.protocols import Retriever
from corag.core.seeds import stable_hash
from corag.core.types import Hit, Passage
from retrieval.dense.encoder import HOP_ENCODER, Encoder, TextEncoder, encoder_folder
from retrieval.dense.placement import Placement
from retrieval.dense.search import DenseSearcher
from retrieval.index_manifest import IndexPart
from retrieval.wrappers import BatchedRetriever


class HopRetriever:
    """A retriever for what questions ask, and within it another, ``hops``, for what methods ask on the way.

    :meth:`corag.core.tools.Tools.search` chooses between them.
    """

    def __init__(self, first: Retriever, hops: Retriever, fingerprint: str = "") -> None:
        """``fingerprint``: of both, where it is known."""
        self._first = first
        self.hops = hops
        self.fingerprint = fingerprint or stable_hash(f"{first.fingerprint}|hops|{hops.fingerprint}")

    @property
    def retried(self) -> int:
        """How many requests had to be sent again to search servers."""
        return sum(int(getattr(each, "retried", 0)) for each in (self._first, self.hops))

    async def search(self, query: str, k: int) -> Sequence[Hit]:
        """Return up to k hits of a question, best first."""
        return await self._first.search(query, k)

    async def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        """Return the passages with these ids, in this order; unknown ids are left out."""
        return await self._first.passages(ids)

    async def close(self) -> None:
        """Free both; the vectors are the first one's."""
        await self.hops.close()
        await self._first.close()


def open_hop_encoder(name: str, placement: Placement) -> TextEncoder:
    """Open the encoder of later searches. Raises :class:`IndexMismatchError` if its passages changed, too."""
    if _training(name).get("passages", "frozen") != "frozen":
        raise IndexMismatchError(
            f"'{name}' was trained with its passages (passages 'trained'), so it finds nothing among the "
            "vectors of another encoder: build an index with it (corag index --kind dense --encoder "
            f"{name}) and search that, or train it with --passages frozen."
        )
    return Encoder(name, placement=placement)


def with_hop_encoder(retrievers: Sequence[Retriever], encoder: TextEncoder) -> list[Retriever]:
    """Return the retrievers with the queries of those over vectors encoded by this encoder.

    Raises :class:`IndexMismatchError` if its vectors are no queries of an index, or nothing says that they
    are; :class:`ConfigError` if none is over vectors of passages.
    """
    hop_retrievers = [_with_query_encoder(each, encoder) for each in retrievers]
    if all(one is other for one, other in zip(hop_retrievers, retrievers, strict=True)):
        raise ConfigError(
            f"the hop encoder '{encoder.name}' has no index to search: it is for an index with a vector per "
            "passage. Leave it out, or add such an index."
        )
    return hop_retrievers


def _with_query_encoder(retriever: Retriever, encoder: TextEncoder) -> Retriever:
    if not isinstance(retriever, BatchedRetriever) or not isinstance(retriever.searcher, DenseSearcher):
        return retriever
    base = retriever.searcher.encoder
    trained_for = _training(encoder.name).get("passage_encoder", "")
    if not trained_for and encoder.fingerprint != base.fingerprint and encoder.dimension == base.dimension:
        # A random model of the same dimension would be searched with, and find what looks like chance.
        raise IndexMismatchError(
            f"nothing says that the hop encoder '{encoder.name}' makes queries for passages of "
            f"'{base.name}': 'corag train encoder' writes it into {HOP_ENCODER} in the encoder's folder. If "
            "it was trained elsewhere, from that very encoder and with its passages frozen, write this file: "
            f'{{"passages": "frozen", "passage_encoder": "{base.fingerprint}"}}.'
        )
    trained_for = trained_for or base.fingerprint
    if (base.dimension, base.fingerprint) != (encoder.dimension, trained_for):
        raise IndexMismatchError(
            f"the hop encoder '{encoder.name}' makes queries of {encoder.dimension} dimensions for passages "
            f"of the encoder {trained_for}, but the index has those of '{base.name}' ({base.dimension} "
            f"dimensions, fingerprint {base.fingerprint}): train it from the index's own encoder."
        )
    searcher = retriever.searcher.with_query_encoder(encoder)
    how = f"hop queries by {encoder.fingerprint}{encoder.rounding}|{searcher.query_prefix}"
    part = retriever.part
    if part is not None:
        part = IndexPart(part.number, part.count, stable_hash(f"{part.whole}|{how}"))
    hops = BatchedRetriever(searcher, stable_hash(f"{retriever.fingerprint}|{how}"), part)
    hops.titles = retriever.titles
    return hops


def _training(name: str) -> dict[str, Any]:
    """Return what an encoder's folder says of its training; nothing for one that was not made here."""
    folder = encoder_folder(name)
    try:
        record: Any = json.loads((Path(folder) / HOP_ENCODER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}
