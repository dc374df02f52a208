"""Models and indexes as objects: opened once, closed by a ``with`` block or at the end of the process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import cache
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from core.errors import ConfigError
from core.options import changed
from core.protocols import Generator, Retriever
from core.types import Hit, Passage
from eval.experiment.background import background
from generation.config import ModelConfig
from generation.open import open_generator
from retrieval.config import RetrieverConfig
from retrieval.open import open_retriever

Engine = TypeVar("Engine", bound=Generator | Retriever)
Options = TypeVar("Options", bound=ModelConfig | RetrieverConfig)


class _Pool(Generic[Options, Engine]):
    """The engines that are open in this process, by their options, and how many handles each has."""

    def __init__(self, open_one: Callable[[Options], Coroutine[Any, Any, Engine]]) -> None:
        self._open_one = open_one
        self._engines: dict[str, asyncio.Task[Engine]] = {}
        self._handles: dict[str, int] = {}

    async def take(self, options: Options) -> Engine:
        """Open what these options describe, or take what is open, or being opened, already."""
        key = repr(options)
        if key not in self._engines:
            self._engines[key] = asyncio.create_task(self._open_one(options))
        self._handles[key] = self._handles.get(key, 0) + 1
        try:
            return await asyncio.shield(self._engines[key])
        except BaseException:
            await self.give_back(options)
            raise

    async def give_back(self, options: Options) -> None:
        """Close an engine with its last handle."""
        key = repr(options)
        self._handles[key] -= 1
        if not self._handles[key]:
            await self._close(key)

    async def close_all(self) -> None:
        """Close what was forgotten."""
        for key in list(self._engines):
            await self._close(key)

    async def _close(self, key: str) -> None:
        del self._handles[key]
        opening = self._engines.pop(key)
        if opening.done() and not opening.cancelled() and opening.exception() is None:
            await opening.result().close()
        else:
            opening.cancel()


_models: _Pool[ModelConfig, Generator] = _Pool(open_generator)
_indexes: _Pool[RetrieverConfig, Retriever] = _Pool(open_retriever)


@cache
def _close_at_exit() -> None:
    async def close() -> None:
        await _models.close_all()
        await _indexes.close_all()

    background().at_exit(close)


class _Handle(Generic[Options, Engine]):
    """What models and indexes have in common: a ``with`` block closes them, a second close does nothing."""

    def __init__(self, pool: _Pool[Options, Engine], options: Options, engine: Engine) -> None:
        self.options = options
        self._pool = pool
        self._engine: Engine | None = engine

    @property
    def engine(self) -> Engine:
        """What methods are handed. Raises :class:`ConfigError` once this is closed."""
        if self._engine is None:
            raise ConfigError(f"{self!r} is closed: open it again.")
        return self._engine

    def close(self) -> None:
        """Close it; an engine that others opened alike goes on until they have closed it too."""
        background().run(self._closed())

    async def aclose(self) -> None:
        """Close it, from a coroutine."""
        await background().await_(self._closed())

    async def _closed(self) -> None:
        if self._engine is not None:
            self._engine = None
            await self._pool.give_back(self.options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class Model(_Handle[ModelConfig, Generator]):
    """A language model that is open. :func:`open_model` makes one."""

    def __repr__(self) -> str:
        adapter = f", adapter={self.options.adapter!r}" if self.options.adapter else ""
        closed = " (closed)" if self._engine is None else ""
        return f"<Model {self.options.name!r}{adapter}, {self.options.backend}>{closed}"


class Index(_Handle[RetrieverConfig, Retriever]):
    """Something to search that is open. :func:`open_index` makes one."""

    def __repr__(self) -> str:
        closed = " (closed)" if self._engine is None else ""
        return f"<Index {', '.join(self.options.index or self.options.url)}>{closed}"

    def search(self, query: str, k: int = 10) -> Sequence[Hit]:
        """Return up to k hits, best first."""
        return background().run(self._search(query, k))

    async def asearch(self, query: str, k: int = 10) -> Sequence[Hit]:
        """Return up to k hits, best first, from a coroutine."""
        return await background().await_(self._search(query, k))

    def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        """Return the passages with these ids, in this order; unknown ids are left out."""
        return background().run(self._passages(ids))

    async def _search(self, query: str, k: int) -> Sequence[Hit]:
        return await self.engine.search(query, k)

    async def _passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        return await self.engine.passages(ids)


def open_model(name: str = "default", **options: Any) -> Model:
    """Open a language model, or take the one that is open with the same options.

    Args:
        name: "default" (SmolLM2-135M-Instruct), a local folder or a Hugging Face name.
        options: those of :class:`generation.config.ModelConfig`, such as ``adapter="default"``,
            ``backend="transformers"`` or ``tensor_parallel=4``.

    Raises:
        ConfigError: for an unknown option, or a model that is not there.
        BackendError: if the engine does not start.

    vLLM starts processes that import the main module again, so a script needs ``if __name__ == "__main__":``.
    """
    return background().run(_model(name, options))


async def aopen_model(name: str = "default", **options: Any) -> Model:
    """Do what :func:`open_model` does, from a coroutine."""
    return await background().await_(_model(name, options))


async def _model(name: str, options: dict[str, Any]) -> Model:
    _close_at_exit()
    chosen = changed(ModelConfig(), {"name": name, **options})
    return Model(_models, chosen, await _models.take(chosen))


def open_index(*index: str, **options: Any) -> Index:
    """Open one or more indexes (several are fused by reciprocal rank), or search servers.

    Args:
        index: folders that 'corag index' or :func:`build_index` made, or names of Pyserini's prebuilt ones.
        options: those of :class:`retrieval.config.RetrieverConfig`, such as ``url=["http://..."]`` or
            ``bm25="ircot"``.

    Raises:
        ConfigError: for an unknown option.
        IndexMismatchError: for an index that is missing, incomplete or of another encoder.
    """
    return background().run(_index(index, options))


async def aopen_index(*index: str, **options: Any) -> Index:
    """Do what :func:`open_index` does, from a coroutine."""
    return await background().await_(_index(index, options))


async def _index(index: Sequence[str], options: dict[str, Any]) -> Index:
    _close_at_exit()
    chosen = changed(RetrieverConfig(), {"index": list(map(str, index)), **options})
    return Index(_indexes, chosen, await _indexes.take(chosen))
