"""The encoder of later searches: another than the question's own, among the same vectors.

The second passage of a question is hard to find with words that only name the first one, so encoders are
trained for what a chain asks on the way (MDR, Xiong et al. 2021; Baleen, Khattab et al. 2021). Only queries
are encoded otherwise: the vectors of passages, their texts, fusion, links and re-ranking are the same.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from corag.core.errors import ConfigError, IndexMismatchError
from corag.core.seeds import stable_hash
from retrieval.dense.encoder import HOP_ENCODER, Encoder, TextEncoder, encoder_folder
from retrieval.dense.placement import Placement
from retrieval.dense.search import DenseSearcher
from retrieval.search.batched import BatchedRetriever
from retrieval.search.stage import SearchStage


def open_hop_encoder(name: str, placement: Placement) -> TextEncoder:
    """Open the encoder of later searches. Raises :class:`IndexMismatchError` if its passages changed, too."""
    if _training(name).get("passages", "frozen") != "frozen":
        raise IndexMismatchError(
            f"'{name}' was trained with its passages (passages 'trained'), so it finds nothing among the "
            "vectors of another encoder: build an index with it (corag index --kind dense --encoder "
            f"{name}) and search that, or train it with passages=frozen."
        )
    return Encoder(name, placement=placement)


def set_hop_encoder(indexes: Sequence[SearchStage], encoder: TextEncoder) -> None:
    """Let this encoder make the queries that are asked on the way, of the indexes over vectors.

    Raises :class:`IndexMismatchError` if its vectors are no queries of an index, or nothing says that they
    are; :class:`ConfigError` if none is over vectors of passages.
    """
    is_used = False
    for index in indexes:
        if isinstance(index, BatchedRetriever) and isinstance(index.searcher, DenseSearcher):
            _require_same_passages(encoder, index.searcher.encoder)
            searcher = index.searcher.with_query_encoder(encoder)
            how = f"hop queries by {encoder.fingerprint}{encoder.rounding}|{searcher.query_prefix}"
            part = index.part and replace(index.part, whole=stable_hash(f"{index.part.whole}|{how}"))
            index.set_hop_searcher(searcher, stable_hash(f"{index.fingerprint}|{how}"), part)
            is_used = True
    if not is_used:
        raise ConfigError(
            f"the hop encoder '{encoder.name}' has no index to search: it is for an index with a vector per "
            "passage. Leave it out, or add such an index."
        )


def _require_same_passages(encoder: TextEncoder, base: TextEncoder) -> None:
    """Raise :class:`IndexMismatchError` unless an encoder is for passages that another one encoded."""
    trained_for = _training(encoder.name).get("passage_encoder", encoder.fingerprint)
    if (base.dimension, base.fingerprint) != (encoder.dimension, trained_for):
        # A random model of the same dimension would be searched with, and find what looks like chance.
        raise IndexMismatchError(
            f"nothing says that the hop encoder '{encoder.name}' ({encoder.dimension} dimensions) makes "
            f"queries for passages of '{base.name}' ({base.dimension} dimensions): 'corag train encoder' "
            f"writes it into {HOP_ENCODER} in the encoder's folder. If it was trained elsewhere, from that "
            'very encoder and with its passages frozen, write this file: {"passages": "frozen", '
            f'"passage_encoder": "{base.fingerprint}"}}.'
        )


def _training(name: str) -> dict[str, Any]:
    """Return what an encoder's folder says of its training; nothing for one that was not made here."""
    folder = encoder_folder(name)
    try:
        record: Any = json.loads((Path(folder) / HOP_ENCODER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}
