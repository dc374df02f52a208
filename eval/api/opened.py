"""Models and indexes as objects: opened once, closed by a ``with`` block or at the end of the process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import fields
from functools import cache
from types import TracebackType
from typing import Any, Generic, Self, TypeVar
from weakref import WeakSet

from corag.core.errors import ConfigError, CoragError
from corag.core.own_objects import describe, register
from corag.core.protocols import Generator, Retriever
from corag.core.types import Hit, Passage
from corag.generation.config import ModelConfig
from corag.generation.engines import engine_of
from corag.generation.vllm_processes import refuse_unguarded_main, spare_children_interrupts
from eval.api.arguments import with_keywords
from eval.api.background import background
from eval.api.texts import index_of_texts
from eval.experiment.backends import identify_indexes, identify_weights
from eval.experiment.opening import open_index_quietly, open_model_quietly
from retrieval.config import RetrieverConfig

Engine = TypeVar("Engine", bound=Generator | Retriever)
Options = TypeVar("Options", bound=ModelConfig | RetrieverConfig)
_HandleT = TypeVar("_HandleT", "Model", "Index")


class Holder:
    """Whoever uses an engine that is open."""


class _Pool(Generic[Options, Engine]):
    """The engines that are open in this process, and the holders of each.

    One whose holders were all forgotten stays open, for the next to open it: a cell of a notebook that is
    run again takes seconds, not a minute. One whose last holder gives it back is closed.
    """

    def __init__(
        self,
        open_one: Callable[[Options], Coroutine[Any, Any, Engine]],
        contents: Callable[[Options], object],
    ) -> None:
        """``contents``: identifies the files that the options name."""
        self._open_one = open_one
        self._contents = contents
        self._engines: dict[str, asyncio.Task[Engine]] = {}
        self._holders: dict[str, WeakSet[Holder]] = {}
        self._closing: dict[str, asyncio.Task[None]] = {}

    def key_of(self, options: Options) -> str:
        """Tell engines apart: by options, by the places that these name from here, by what lies there now."""
        paths = [os.path.abspath(text) for text in _texts(options) if os.path.exists(text)]
        return f"{options!r} {paths} {self._contents(options)}"

    async def take(self, key: str, options: Options, holder: Holder) -> Engine:
        """Open what these options describe, or take what is open, or being opened, already."""
        while (closing := self._closing.get(key)) is not None:  # two of them might not fit in memory
            await asyncio.wait([closing])
        if key in self._engines and _has_failed(self._engines[key]):
            await self._close(key)
        if key not in self._engines:
            self._engines[key] = asyncio.create_task(self._open_one(options))
            self._holders[key] = WeakSet()
        opening = self._engines[key]
        self._holders[key].add(holder)
        try:
            return await asyncio.shield(opening)
        except BaseException:  # an error, or the caller gave up
            if self._engines.get(key) is opening:
                await self.give_back(key, holder)
            raise

    async def give_back(self, key: str, holder: Holder) -> None:
        """Close an engine with its last holder."""
        holders = self._holders.get(key, WeakSet())
        if holder in holders:
            holders.discard(holder)
            if not holders:
                await self._close(key)

    async def close_all(self) -> None:
        """Close what was forgotten."""
        for key in list(self._engines):
            await self._close(key)

    async def _close(self, key: str) -> None:
        del self._holders[key]
        opening = self._engines.pop(key)
        if not opening.done():
            opening.cancel()
        elif not opening.cancelled() and opening.exception() is None:
            self._closing[key] = asyncio.create_task(opening.result().close())
            try:
                await asyncio.shield(self._closing[key])
            finally:
                del self._closing[key]


def _texts(options: ModelConfig | RetrieverConfig) -> Iterator[str]:
    """Yield every text among some options."""
    for option in fields(options):
        value = getattr(options, option.name)
        if isinstance(value, str):
            yield value
        elif isinstance(value, list | tuple):
            yield from map(str, value)


def _has_failed(opening: asyncio.Task[Any]) -> bool:
    """Whether an engine is past use, as one whose process has died is."""
    return opening.done() and (
        opening.cancelled()
        or opening.exception() is not None
        or (isinstance(engine := opening.result(), Generator) and engine.failed)
    )


async def _open_model(options: ModelConfig) -> Generator:
    if engine_of(options).spawns_processes:
        spare_children_interrupts()
    return await open_model_quietly(options)


_models: _Pool[ModelConfig, Generator] = _Pool(
    _open_model, lambda options: identify_weights(options.name, options.adapter, backend=options.backend)
)
_indexes: _Pool[RetrieverConfig, Retriever] = _Pool(open_index_quietly, identify_indexes)


@cache
def _close_at_exit() -> None:
    async def close() -> None:
        await _models.close_all()
        await _indexes.close_all()

    background().at_exit(close)


async def _open_for(pool: _Pool[Options, Engine], options: Options, holder: Holder) -> tuple[str, Engine]:
    _close_at_exit()
    key = pool.key_of(options)
    return key, await pool.take(key, options, holder)


@asynccontextmanager
async def _lend(pool: _Pool[Options, Engine], options: Options) -> AsyncIterator[Engine]:
    holder = Holder()
    key, engine = await _open_for(pool, options, holder)
    try:
        yield engine
    finally:
        await pool.give_back(key, holder)


def lend_model(options: ModelConfig) -> AbstractAsyncContextManager[Generator]:
    """Lend a model for the length of a block, on the loop of this module: opened if it is not open."""
    return _lend(_models, options)


def lend_index(options: RetrieverConfig) -> AbstractAsyncContextManager[Retriever]:
    """Lend an index for the length of a block, on the loop of this module: opened if it is not open."""
    return _lend(_indexes, options)


class _Handle(Holder, Generic[Options, Engine]):
    """What models and indexes have in common: a ``with`` block closes them, a second close does nothing."""

    def __init__(self, pool: _Pool[Options, Engine], options: Options) -> None:
        self.options = options
        self.user_objects: Any = None  # what the user brought along
        self._pool = pool
        self._key = ""
        self._engine: Engine | None = None

    async def _take_engine(self) -> Self:
        self._key, self._engine = await _open_for(self._pool, self.options, self)
        return self

    @property
    def engine(self) -> Engine:
        """What methods get. Raises :class:`ConfigError` once this is closed."""
        if self._engine is None:
            raise ConfigError(f"{self!r} is closed: open it again.")
        return self._engine

    def close(self) -> None:
        """Close it; an engine that others opened alike goes on until they have closed it too."""
        background().run(self._give_back_engine())

    async def _give_back_engine(self) -> None:
        if self._engine is not None:
            self._engine = None
            await self._pool.give_back(self._key, self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Model(_Handle[ModelConfig, Generator]):
    """A language model that is open. :func:`open_model` makes one."""

    def __repr__(self) -> str:
        adapter = f", adapter={self.options.adapter!r}" if self.options.adapter else ""
        return f"<Model {self.options.name!r}{adapter}, {self.options.backend}>"


class Index(_Handle[RetrieverConfig, Retriever]):
    """Something to search that is open. :func:`open_index` makes one."""

    def __repr__(self) -> str:
        return f"<Index {', '.join(self.options.index or self.options.url)}>"

    def search(self, query: str, k: int = 10) -> Sequence[Hit]:
        """Return up to k hits, best first."""
        return background().run(self._search(query, k))

    def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        """Return the passages with these ids, in this order; unknown ids are left out."""
        return background().run(self._passages(ids))

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[Retriever]:
        """Lend what lies in the place of this index now, for the length of a block.

        An index that was built anew is followed; the one before closes with the last block that uses it.
        """
        _ = self.engine  # which refuses a closed one
        with suppress(CoragError, OSError):  # not complete: the one before is searched on
            if (newest := self._pool.key_of(self.options)) != self._key:
                await self._follow(newest)
        holder, key = Holder(), self._key
        engine = await self._pool.take(key, self.options, holder)
        try:
            yield engine
        finally:
            await self._pool.give_back(key, holder)

    async def _follow(self, key: str) -> None:
        engine = await self._pool.take(key, self.options, self)
        before, self._key, self._engine = self._key, key, engine
        if before != key:  # another call has not been quicker
            await self._pool.give_back(before, self)

    async def _search(self, query: str, k: int) -> Sequence[Hit]:
        async with self.lend() as engine:
            return await engine.search(query, k)

    async def _passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        async with self.lend() as engine:
            return await engine.passages(ids)


def open_model(name: Any = "default", **options: Any) -> Model:
    """Open a language model, or take the one that is open with the same options.

    Args:
        name: "default" (SmolLM2-135M-Instruct), a local folder or a Hugging Face name; or a function of
            a prompt, an object with such a ``generate``, or a generator of your own.
        options: those of :class:`corag.generation.config.ModelConfig`, such as ``adapter="default"``,
            ``backend="transformers"`` or ``tensor_parallel=4``; for an object of your own ``max_context``.

    Raises:
        ConfigError: for an unknown option, a model that is not there, or a script without
            ``if __name__ == "__main__":``, which vLLM needs.
        BackendError: if the engine does not start.

    Close it with a ``with`` block or :meth:`Model.close`; what is forgotten is closed when Python ends.
    """
    return background().run(model_handle(name, options)._take_engine())


def model_handle(name: Any, options: Mapping[str, Any]) -> Model:
    """Return a model that is not open yet, of its name and options or of an object of the user's."""
    if isinstance(name, str | os.PathLike):
        name_options: dict[str, Any] = {"name": os.fspath(name)}
    elif name is None:
        raise ConfigError('the model is None: give a name, such as "default", or an object of your own.')
    else:
        if unknown := [each for each in options if each not in ("max_context", "remember")]:
            raise ConfigError(
                f"'{unknown[0]}' is an option of models that corag opens itself: set it where your "
                f"{describe(name)} is made. Its options here are max_context and remember."
            )
        name_options = {"name": register(name), "backend": "python"}
    model = Model(_models, with_keywords(ModelConfig(), {**name_options, **options}).with_engine())
    model.user_objects = name  # known by its name as long as it lives
    if engine_of(model.options).spawns_processes:
        refuse_unguarded_main()  # here, since only the caller's thread knows which line of the script called
    return model


def open_index(*index: Any, **options: Any) -> Index:
    """Open one or more indexes (several are fused by reciprocal rank), or search servers.

    Args:
        index: folders that :func:`build_index` or 'corag index' made, or names of Pyserini's prebuilt ones;
            or functions of a query and k, and objects with such a ``search``; or a list of texts, records or
            passages, which is searched by BM25.
        options: those of :class:`retrieval.config.RetrieverConfig`, such as ``url=["http://..."]`` or
            ``bm25="ircot"``.

    Raises:
        ConfigError: for an unknown option, or an object that cannot be searched.
        IndexMismatchError: for an index that is missing, incomplete or of another encoder.
    """
    return background().run(_open_index(index, options))


async def _open_index(index: Sequence[Any], options: Mapping[str, Any]) -> Index:
    return await (await index_handle(index, options))._take_engine()


async def index_handle(index: Sequence[Any], options: Mapping[str, Any]) -> Index:
    """Return an index that is not open yet, of folders, objects of the user's and lists of texts."""
    names = {"index": [await asyncio.to_thread(_index_name, each) for each in index]} if index else {}
    handle = Index(_indexes, with_keywords(RetrieverConfig(), names | dict(options)))
    handle.user_objects = index  # known by their names as long as they live
    return handle


def _index_name(index: Any) -> str:
    if isinstance(index, str | os.PathLike):
        return os.fspath(index)
    if isinstance(index, list | tuple):
        return index_of_texts(index)
    if index is None:
        raise ConfigError("the index is None: give a folder, a list of texts, or an object of your own.")
    return register(index)


@asynccontextmanager
async def open_handle(handle: _HandleT) -> AsyncIterator[_HandleT]:
    """Open a model or an index for the length of a block, on the loop of this module."""
    await handle._take_engine()
    try:
        yield handle
    finally:
        await handle._give_back_engine()
