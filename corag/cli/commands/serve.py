"""Serve an index over HTTP, so that many processes or machines search one copy of it.

corag serve indexes/world-bm25 --port 8100
corag ask "Who ...?" --retriever.url http://127.0.0.1:8100
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field, replace
from typing import Annotated

from corag.core.errors import ConfigError
from corag.core.options.classes import Options
from corag.core.options.names import Mark, NameOrPath
from eval.experiment import extensions  # noqa: F401 - methods' BM25 presets
from eval.experiment.opening import open_index_quietly
from retrieval.config import RetrieverConfig
from retrieval.http.server import serve


@dataclass(frozen=True)
class ServeOptions(Options):
    """Options of 'corag serve'."""

    index: list[NameOrPath] = field(default_factory=list)
    """one or more indexes, as in --retriever.index."""

    host: Annotated[str, Mark.PRIVATE] = "127.0.0.1"
    """the address to listen on."""

    port: int = 8100
    """the port to listen on; 0 takes a free one."""

    retriever: RetrieverConfig = field(default_factory=RetrieverConfig)
    """how to search, when the defaults do not do."""

    def __post_init__(self) -> None:
        if not self.index:
            raise ConfigError("no index was given: write corag serve INDEX.")


def main(config: ServeOptions) -> int:
    """Open the index and answer requests until interrupted."""
    asyncio.run(_serve(config))
    return 0


async def _serve(config: ServeOptions) -> None:
    retriever = await open_index_quietly(replace(config.retriever, index=config.index), part_alone=True)
    try:
        await serve(retriever, config.host, config.port, lambda line: print(line, file=sys.stderr))
    finally:
        await retriever.close()
