"""Show the passages that an index has for some words: their files, titles, ids and scores.

corag search indexes/mine "how many days of leave"
corag search indexes/mine leave --k 3 --show_text 0 --json

A question's gold passages (supporting) are named as they are here: by file, by file and page, by title, or by
id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

from annotated_types import Ge

from corag.cli.result import CommandResult
from corag.core.errors import ConfigError
from corag.core.options.classes import Options
from corag.core.options.names import NameOrPath
from corag.core.protocols import search_note
from corag.core.types import Hit
from eval.experiment import extensions  # noqa: F401 - methods' BM25 presets
from eval.experiment.backends import open_index_or_client
from eval.tables.printing import TextConsole, one_line
from retrieval.config import RetrieverConfig


@dataclass(frozen=True)
class SearchOptions(Options):
    """Options of 'corag search'."""

    index: list[NameOrPath] = field(default_factory=list)
    """one or more indexes, or addresses of search servers, as in --retriever.index."""

    query: str = ""
    """the words to search for."""

    k: Annotated[int, Ge(1)] = 10
    """how many passages to show at most."""

    show_text: Annotated[int, Ge(0)] = 200
    """how many characters of each passage are shown; 0 for none. JSON has all of it."""

    retriever: RetrieverConfig = field(default_factory=RetrieverConfig)
    """how to search, when the defaults do not do."""

    ALIASES: ClassVar[dict[str, str]] = {"top_k": "k"}

    def __post_init__(self) -> None:
        if not self.index or not self.query.strip():
            missing = "query" if self.index else "index"
            raise ConfigError(f'no {missing} was given: write corag search INDEX "words".')


def main(config: SearchOptions) -> CommandResult:
    """Print the passages, best first."""
    hits = asyncio.run(_search(config))
    console = TextConsole(soft_wrap=True)
    if note := search_note(hits):
        console.print(f"({note})")
    for rank, hit in enumerate(hits, 1):
        passage = hit.passage
        console.print(f"{rank:>3}. {passage.citation or passage.id}", style="bold")
        console.print(f"     id {passage.id}, score {hit.score:.4f}", style="dim")
        if config.show_text and passage.text.strip():
            console.print(f"     {one_line(passage.text, config.show_text)}")
    if not hits:
        console.print(f"no passage of {', '.join(config.index)} has any of these words.")
    return CommandResult(0, [_record(rank, hit) for rank, hit in enumerate(hits, 1)])


async def _search(config: SearchOptions) -> Sequence[Hit]:
    async with open_index_or_client(replace(config.retriever, index=config.index)) as retriever:
        return await retriever.search(config.query, config.k)


def _record(rank: int, hit: Hit) -> dict[str, Any]:
    passage = hit.passage
    about = {"rank": rank, "score": hit.score, "id": passage.id, "title": passage.title}
    return about | {"source": passage.source, "page": passage.page, "text": passage.text}
