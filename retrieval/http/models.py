"""Encoders and re-rankers behind a URL.

Encoders speak OpenAI's ``/v1/embeddings``, as vLLM, TEI, Ollama, llama.cpp and OpenAI do: {"model", "input"}
is answered with {"model", "data": [{"index", "embedding"}]}. Re-rankers speak ``/rerank``, as vLLM, Jina,
Cohere and llama.cpp do: {"model", "query", "documents", "top_n"} is answered with
{"model", "results": [{"index", "relevance_score"}]}. vLLM refuses what is too long unless
``truncate_prompt_tokens`` is -1.

Searches come from worker threads, so requests run on an event loop in a thread of its own, which all servers
of this process share.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import functools
import threading
import unicodedata
import weakref
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from corag.core.errors import BackendError, ConfigError, RequestRefusedError, SearchFailedError
from corag.core.seeds import stable_hash
from corag.core.web.json_client import DENIED, JsonClient, NoReplyError, RefusedError
from corag.core.web.replies import MalformedReplyError, value_at
from corag.core.web.servers import base_address, check_addresses
from retrieval.dense.encoder import Kind, TextEncoder, require_finite
from retrieval.dense.placement import Placement
from retrieval.dense.prompts import Prompts, prompts_by_card
from retrieval.search.rerankers import Pairs, ScoresOrError

_PAUSE_S = 0.5
_AT_ONCE = 8  # requests in flight: a server fills its batches from several
_TEXTS = 32  # of a request for vectors: what TEI takes
_BATCH = 256  # texts that are encoded at once: eight requests in flight
_TOO_MUCH = (400, 413, 422)  # servers disagree on the status for too many or too long texts
_EXAMPLE = "BAAI/bge-m3"

Result = TypeVar("Result")


class _ModelServer:
    """A server of one model. ``model``: the name that it is asked by, "" where the server alone knows."""

    def __init__(self, address: str, what: str, key_variable: str, placement: Placement) -> None:
        """``address``: with the model behind #. Raises :class:`ConfigError` if it holds a secret."""
        url, _, self.model = address.partition("#")
        check_addresses([url], what, f"the key in the environment variable {key_variable}")
        self.url, self._what = url.rstrip("/"), f"{what} at"
        self._is_named, self._is_vllm = bool(self.model), False
        self.client = JsonClient(
            [self.url],
            what=self._what,
            option="its address",
            timeout_s=placement.timeout_s,
            retries=placement.retries,
            connections=_AT_ONCE,
            pause_s=_PAUSE_S,
            key_variable=key_variable,
        )
        # By itself, too, when no index has the server any more: an encoder may be several indexes'.
        self._finalizer = weakref.finalize(self, _close_client, self.client)
        self._finalizer.atexit = False

    def close(self) -> None:
        """Close the connections. Safe to call twice."""
        self._finalizer()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Return what a coroutine of requests returns, from a thread without an event loop of its own."""
        future = asyncio.run_coroutine_threadsafe(work, _loop())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def find_model(self) -> dict[str, Any]:
        """Ask OpenAI's list of models which there are; return what each request has beside its texts.

        Raises :class:`BackendError` if nothing listens there, :class:`ConfigError` if the server has several
        models and none is named, or one and another is named.
        """
        owners: dict[str, Any] = {}
        try:
            owners = await self.client.open(f"{base_address(self.url)}/models", None, _read_models)
        except RefusedError:
            pass  # it has no list, or its key does not reach so far
        except NoReplyError as error:
            if error.fault == "unreachable":
                raise
        self._is_vllm = "vllm" in owners.values()
        # A server of one model may ignore the name that a request has, as llama.cpp does. One of several goes
        # by it and refuses others, and its list need not be whole (as of Azure's deployments).
        if len(owners) == 1:
            self._take(next(iter(owners)))
        elif owners and not self.model:
            raise ConfigError(
                f"{self._what} {self.url} serves {', '.join(list(owners)[:8])}: name one of these behind the "
                f"address, such as {self.url}#{next(iter(owners))}."
            )
        cut = {"truncate_prompt_tokens": -1} if self._is_vllm else {}
        return cut | ({"model": self.model} if self.model else {})

    async def first(self, request: Coroutine[Any, Any, tuple[str, Result]]) -> tuple[str, Result]:
        """Send the first request, whose reply may name the model.

        Raises :class:`BackendError` if it is refused, :class:`ConfigError` if the model is another than was
        named, or still unknown.
        """
        try:
            name, result = await request
        except RefusedError as error:
            if error.status in DENIED:
                raise BackendError(f"{error}.") from None
            raise BackendError(
                f"{error}: check the address, and the model's name behind it, such as "
                f"{self.url}#{self.model or _EXAMPLE}."
            ) from None
        # vLLM calls a model in replies by the first of its names, whichever was asked for.
        if name and not self._is_vllm:
            self._take(name)
        if not self.model:
            raise ConfigError(
                f"{self._what} {self.url} does not tell which model it serves: name it behind the address, "
                f"such as {self.url}#{_EXAMPLE}. What is made with one model is not searched with another."
            )
        return name, result

    def _take(self, model: str) -> None:
        """Take a model that the server serves for that which is asked for. Raises :class:`ConfigError`."""
        if self._is_named and _plain(model) != _plain(self.model):
            raise ConfigError(
                f"{self._what} {self.url} serves '{model}', but '{self.model}' is named behind its address: "
                f"write {self.url}#{model}, or serve the named model under its name."
            )
        self.model = self.model or model


class ServedEncoder(TextEncoder):
    """An encoder on a server. ``fingerprint`` is of the model's name and dimension, wherever it is served.

    Nothing of the model itself can be seen: opening an index compares a few vectors, too.
    """

    def __init__(self, address: str, placement: Placement) -> None:
        """Ask the server for its model and one vector.

        Args:
            address: http://host:port/v1, with #MODEL behind it where several models are served.
            placement: how many texts at once, and how long and often the server is asked.

        Raises:
            ConfigError: if the address holds a secret, the model must be named, or it is another.
            BackendError: if there is no such server.
        """
        self._server = _ModelServer(address, "the encoder", "CORAG_ENCODER_API_KEY", placement)
        self._route = f"{base_address(self._server.url)}/embeddings".removeprefix(self._server.url)
        self._settings = {"encoding_format": "base64"} | self._server.run(self._server.find_model())
        self._replied_model, vectors = self._server.run(self._server.first(self._send(["river"])))
        self.model = self._server.model
        self.dimension = vectors.shape[1]
        self.batch_size = placement.batch_size or _BATCH
        self.name = f"{self._server.url}#{self.model}"
        self.fingerprint = stable_hash(f"served|{self.model}|{self.dimension}")
        self.prompts = prompts_by_card(self.model) or Prompts()  # a server tells none

    def encode(
        self, texts: Sequence[str], batch_size: int = 0, *, prompt: str = "", kind: Kind | None = None
    ) -> NDArray[np.float32]:
        """Return one unit vector per text, shape [texts, dimension].

        Raises :class:`BackendError` if the server fails, :class:`RequestRefusedError` if it refuses a text.
        """
        if not texts:
            return np.empty((0, self.dimension), np.float32)
        # Characters composed (NFC): a query spells as a passage does.
        nfc_texts = [unicodedata.normalize("NFC", prompt + text) for text in texts]
        vectors = self._server.run(self._encode_all(nfc_texts))
        require_finite(vectors, texts, self.name)
        # OpenAI's, vLLM's and TEI's have length 1 but for their last bits, others' need not.
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.maximum(lengths, np.finfo(np.float32).tiny), np.float32)

    async def _encode_all(self, texts: Sequence[str]) -> NDArray[np.float32]:
        parts = [texts[start : start + _TEXTS] for start in range(0, len(texts), _TEXTS)]
        return np.concatenate(await asyncio.gather(*map(self._encode, parts)))

    async def _encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode the texts of a request; in two halves if they are refused, down to the one that is meant."""
        try:
            model, vectors = await self._send(texts)
        except RefusedError as refusal:
            if refusal.status not in _TOO_MUCH:
                raise BackendError(f"{refusal}.") from None
            if len(texts) == 1:
                raise RequestRefusedError(
                    f"{refusal}. It was for the text '{texts[0][:60]}' of {len(texts[0]):,} characters: if "
                    "that is too long, let the server cut it, or index shorter passages."
                ) from None
            half = len(texts) // 2
            return np.concatenate(
                await asyncio.gather(self._encode(texts[:half]), self._encode(texts[half:]))
            )
        if (model, vectors.shape[1]) != (self._replied_model, self.dimension):
            raise BackendError(
                f"the encoder at {self._server.url} answers as '{model}' with {vectors.shape[1]} dimensions "
                f"now, but was '{self._replied_model}' with {self.dimension}: serve the model that was "
                "opened."
            )
        return vectors

    async def _send(self, texts: Sequence[str]) -> tuple[str, NDArray[np.float32]]:
        body = {"input": list(texts), **self._settings}
        return await self._server.client.request(
            self._route, body, lambda reply: _read_vectors(reply, len(texts))
        )


class ServedReranker:
    """A re-ranker on a server. ``fingerprint`` is of the model's name: nothing else of it can be seen."""

    def __init__(self, address: str, placement: Placement) -> None:
        """Ask the server for its model and one score.

        Args:
            address: http://host:port, or all of the address to .../rerank; with #MODEL behind it where
                several models are served.
            placement: how long and how often the server is asked.

        Raises:
            ConfigError: if the address holds a secret, the model must be named, or it is another.
            BackendError: if there is no such server.
        """
        url, mark, model = address.partition("#")
        base = url.rstrip("/").removesuffix("/rerank")
        self._server = _ModelServer(
            f"{base}{mark}{model}", "the re-ranker", "CORAG_RERANKER_API_KEY", placement
        )
        self._settings = self._server.run(self._server.find_model())
        self._server.run(self._server.first(self._send("river", ["The Issel is a river."])))
        self.fingerprint = stable_hash(f"served|{self._server.model}")

    def score(self, items: Sequence[Pairs]) -> Sequence[ScoresOrError]:
        """Return for each query the scores of its passages, or why the server refuses it."""
        return self._server.run(self._score_all(items))

    def note(self, query: str) -> str:
        """Return "": how much it reads is the server's to know."""
        return ""

    def close(self) -> None:
        """Close the connections. Safe to call twice."""
        self._server.close()

    async def _score_all(self, items: Sequence[Pairs]) -> Sequence[ScoresOrError]:
        return await asyncio.gather(*(self._score(query, texts) for query, texts in items))

    async def _score(self, query: str, texts: Sequence[str]) -> ScoresOrError:
        try:
            return (await self._send(query, texts))[1]
        except RefusedError as refusal:
            message = f"{refusal}. It was for the query '{query[:80]}'."
            if refusal.status in _TOO_MUCH:
                return SearchFailedError(message)
            raise BackendError(message) from None

    async def _send(self, query: str, texts: Sequence[str]) -> tuple[str, list[float]]:
        body = {"query": query, "documents": list(texts), "top_n": len(texts), **self._settings}
        return await self._server.client.request(
            "/rerank", body, lambda reply: _read_scores(reply, len(texts))
        )


def _plain(model: str) -> str:
    """Return a model's name without what servers leave out: its owner or folder, and Ollama's tag."""
    return model.rstrip("/").rpartition("/")[2].lower().removesuffix(":latest")


def _read_models(reply: Any) -> dict[str, Any]:
    """Return the owner of each model that is listed."""
    models = value_at(reply, "data", kind=list)
    return {value_at(each, "id", kind=str): each.get("owned_by") for each in models}


def _name_in(reply: Any) -> str:
    """Return the model that a reply names, "" for none."""
    return str(reply.get("model") or "")


def _in_order(reply: Any, name: str, count: int, read: Callable[[Any], Result]) -> list[Result]:
    """Return what ``count`` numbered entries of a reply have, in the order of what they are for.

    Raises :class:`MalformedReplyError` if one is not there, or there twice.
    """
    entries = value_at(reply, name, kind=list)
    by_place = {value_at(each, "index", kind=int): read(each) for each in entries}
    if len(entries) != count or by_place.keys() != set(range(count)):
        raise MalformedReplyError(f"a reply whose {name} are numbered {sorted(by_place)}, for {count} texts")
    return [by_place[place] for place in range(count)]


def _read_scores(reply: Any, count: int) -> tuple[str, list[float]]:
    scores = _in_order(reply, "results", count, lambda each: value_at(each, "relevance_score", kind=float))
    return _name_in(reply), scores


def _read_vectors(reply: Any, count: int) -> tuple[str, NDArray[np.float32]]:
    """Return the model and the vectors, [count, dimension]: lists of numbers, or base64 of float32."""
    vectors = _in_order(
        reply, "data", count, lambda each: _read_vector(value_at(each, "embedding", kind=object))
    )
    if len({vector.shape for vector in vectors}) > 1 or not vectors[0].size:
        raise MalformedReplyError("a reply whose vectors are empty, or not of one length")
    return _name_in(reply), np.stack(vectors)


def _read_vector(value: Any) -> NDArray[np.float32]:
    try:
        if isinstance(value, str):
            return np.frombuffer(base64.b64decode(value, validate=True), "<f4").astype(np.float32)
        vector = np.array(value, np.float32)
    except (binascii.Error, ValueError, TypeError):
        raise MalformedReplyError("a reply whose vector is neither numbers nor base64 of float32") from None
    if vector.ndim != 1:
        raise MalformedReplyError("a reply whose vector is not a list of numbers")
    return vector


def _close_client(client: JsonClient) -> None:
    asyncio.run_coroutine_threadsafe(client.close(), _loop())


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """Return the loop of this process's requests to encoders and re-rankers, which ends with the process."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="model-servers", daemon=True).start()
    return loop
