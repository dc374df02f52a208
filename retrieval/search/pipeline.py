"""A search is put together here, from its options: (indexes | servers) -> links -> re-ranker -> cache.

Indexes are fused, or are the parts of one. Links stand before the re-ranker, which sees what they bring.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from corag.core.errors import ConfigError
from corag.core.own_objects import find_user_object, identify, is_user_object
from corag.core.system.installation import require
from retrieval.config import RetrieverConfig
from retrieval.dense.open_encoder import packages_of
from retrieval.http.client import connect
from retrieval.index.manifest import IndexPart, require_all_parts
from retrieval.index.store import has_store
from retrieval.search.batched import BatchedRetriever
from retrieval.search.cached import CachedRetriever
from retrieval.search.folders import open_index
from retrieval.search.function_retriever import own_retriever
from retrieval.search.hop_encoder import open_hop_encoder, set_hop_encoder
from retrieval.search.joined import FusedRetriever, PartsRetriever
from retrieval.search.links import LinkedRetriever, LinkRules
from retrieval.search.rerank import RerankedRetriever
from retrieval.search.stage import SearchStage
from retrieval.search.titles import StoredTitles


async def open_retriever(config: RetrieverConfig, *, part_alone: bool = False) -> SearchStage:
    """Open the indexes or search servers of a configuration, fused, reranked and cached as it says.

    ``part_alone``: whether a part of an index may be opened without the others, to be served.

    Raises :class:`IndexMismatchError` for an index that is missing, incomplete or built with another encoder,
    :class:`corag.core.errors.BackendError` if there is no Java or no server answers, :class:`ConfigError` for
    settings that clash.
    """
    if bool(config.index) == bool(config.url):
        raise ConfigError(
            "give the retriever either `index` (folders or names) or `url` (search servers), and not both."
        )
    if config.reranker:
        require(f"the re-ranker '{config.reranker}'", *packages_of(config.reranker))
    if config.url:
        return await asyncio.to_thread(_complete, [await connect(config)], config, part_alone=False)
    return await asyncio.to_thread(lambda: _complete(_open_each(config), config, part_alone))


def _open_each(config: RetrieverConfig) -> list[SearchStage]:
    return [_open_own(name) if is_user_object(name) else open_index(name, config) for name in config.index]


def _open_own(name: str) -> SearchStage:
    target, identity = find_user_object(name, "retriever.index"), identify(name)
    return own_retriever(target, identity.text if identity else "")


def _complete(sources: Sequence[SearchStage], config: RetrieverConfig, part_alone: bool) -> SearchStage:
    """Put the stages of a search over what is open."""
    if config.hop_encoder:
        set_hop_encoder(sources, open_hop_encoder(config.hop_encoder, config.placement))
    stage = _join(sources, config, part_alone)
    if config.links == "titles":
        folders = [each.folder for each in sources if isinstance(each, BatchedRetriever)]
        titles = [StoredTitles(folder) for folder in folders if has_store(folder)]
        elsewhere = len(titles) < len(sources)
        stage = LinkedRetriever(stage, titles, LinkRules.from_config(config), elsewhere=elsewhere)
    if config.reranker:
        stage = RerankedRetriever(stage, config.reranker, config.rerank_depth, config.placement)
    return CachedRetriever(stage, config.cache_size)


def _join(sources: Sequence[SearchStage], config: RetrieverConfig, part_alone: bool) -> SearchStage:
    """Return one search over all that is searched."""
    if len(sources) == 1 and (part_alone or sources[0].part is None):
        if sources[0].part is not None:
            _refuse_to_hide_part(sources[0].part, config)
        return sources[0]
    parts = {name: each.part for name, each in zip(config.index, sources, strict=True)}
    if not any(parts.values()):
        return FusedRetriever(sources, depth=config.fusion_depth)
    holders = require_all_parts(parts)
    by_name = dict(zip(config.index, sources, strict=True))
    whole = next(part.whole for part in parts.values() if part is not None)
    return PartsRetriever([by_name[names[0]] for names in holders.values()], whole)


def _refuse_to_hide_part(part: IndexPart, config: RetrieverConfig) -> None:
    """Raise :class:`ConfigError` for what is not of one part, which a client merges with others by scores."""
    options = {"reranker": "", "links": "none"}
    if names := [name for name, unset in options.items() if vars(config)[name] != unset]:
        raise ConfigError(
            f"'{config.index[0]}' is part {part} of an index and is to be served alone, but "
            f"retriever.{names[0]} is for all parts together: give it to the client, which asks all parts."
        )
