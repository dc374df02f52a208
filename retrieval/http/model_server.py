"""A server of an encoder or a re-ranker: its address, its key, the model that it serves.

Searches come from worker threads, so requests run on an event loop in a thread of its own, which all servers
of this process share.
"""

from __future__ import annotations

import asyncio
import functools
import threading
import weakref
from collections.abc import Coroutine
from typing import Any, TypeVar

from corag.core.errors import BackendError, ConfigError
from corag.core.json_client import DENIED, JsonClient, NoReplyError, RefusedError
from corag.core.replies import value_at
from corag.core.servers import check_schemes, contain_credentials
from retrieval.dense.placement import Placement

_PAUSE_S = 0.5
_AT_ONCE = 8  # requests in flight: a server fills its batches from several
EXAMPLE = "BAAI/bge-m3"

Result = TypeVar("Result")


class ModelServer:
    """A server that is asked for vectors or scores.

    Attributes:
        what: how messages call it.
        url: its address.
        model: the one that is asked for; "" where the server alone knows.
        is_vllm: whether it is vLLM, which refuses texts that are too long unless it is asked to cut them.
    """

    def __init__(self, address: str, what: str, key_variable: str, placement: Placement) -> None:
        """Prepare requests. Nothing is sent yet.

        Args:
            address: such as "http://host:8000/v1#BAAI/bge-m3": address and, behind #, the model.
            what: how messages call it, such as "the encoder".
            key_variable: environment variable that holds its API key, if it wants one.
            placement: how long and how often it is asked.

        Raises:
            ConfigError: for an address that holds a secret, or a proxy that cannot be used.
        """
        url, _, self.model = address.partition("#")
        if contain_credentials([url]):
            raise ConfigError(
                f"the address of {what} holds a user name, a password or a query: give the address alone, "
                f"and the key in the environment variable {key_variable}."
            )
        check_schemes([url], f"the address of {what}")
        self.url, self.what, self.is_vllm = url.rstrip("/"), f"{what} at", False
        self._named = self.model
        self.client = JsonClient(
            [self.url],
            what=self.what,
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

    async def find_model(self, models_url: str) -> None:
        """Ask OpenAI's list of models for the model, and whether the server is vLLM.

        Raises :class:`BackendError` if nothing listens there, :class:`ConfigError` if the server has several
        models and none is named, or one and another is named.
        """
        try:
            models = await self.client.open(models_url, None, _read_models)
        except RefusedError:
            return  # it has no list, or its key does not reach so far
        except NoReplyError as error:
            if error.fault == "unreachable":
                raise
            return
        names = list(models)
        self.is_vllm = "vllm" in models.values()
        # A server of one model may ignore the name that a request has, as llama.cpp does. One of several goes
        # by it and refuses others, and its list need not be whole (as of Azure's deployments).
        if len(names) == 1:
            self._check(names[0])
            self.model = self.model or names[0]
        elif names and not self.model:
            raise ConfigError(
                f"{self.what} {self.url} serves {', '.join(names[:8])}: name one of these behind the "
                f"address, such as {self.url}#{names[0]}."
            )

    def settle_model(self, reply_model: str) -> None:
        """Take the model's name from the first reply where nothing else told it.

        Raises :class:`ConfigError` if it is another than was named, or still unknown.
        """
        # vLLM calls a model in replies by the first of its names, whichever was asked for; providers may add
        # a version (text-embedding-ada-002-v2).
        if reply_model and not self.is_vllm and not reply_model.startswith(self._named or reply_model):
            self._check(reply_model)
        self.model = self.model or reply_model
        if not self.model:
            raise ConfigError(
                f"{self.what} {self.url} does not tell which model it serves: name it behind the address, "
                f"such as {self.url}#{EXAMPLE}. What is made with one model is not searched with another."
            )

    def refusal(self, error: RefusedError) -> BackendError:
        """Return what to raise if the very first request is refused."""
        if error.status in DENIED:
            return BackendError(f"{error}.")
        return BackendError(
            f"{error}: check the address, and the model's name behind it, such as "
            f"{self.url}#{self.model or EXAMPLE}."
        )

    def _check(self, model: str) -> None:
        if self._named and not _same_model(self._named, model):
            raise ConfigError(
                f"{self.what} {self.url} serves '{model}', but '{self._named}' is named behind its address: "
                f"write {self.url}#{model}, or serve the named model under its name."
            )


def _same_model(one: str, other: str) -> bool:
    """Whether two names may be of one model: a server may leave out the owner, or have its folder.

    >>> [_same_model("BAAI/bge-m3", name) for name in ("bge-m3:latest", "/models/BGE-M3", "BAAI/bge-m4")]
    [True, True, False]
    """
    first, second = (
        name.rstrip("/").rpartition("/")[2].lower().removesuffix(":latest") for name in (one, other)
    )
    return first == second


def _read_models(reply: Any) -> dict[str, Any]:
    """Return the owner of each model that is listed."""
    models = value_at(reply, "data", kind=list)
    names = [value_at(reply, "data", position, "id", kind=str) for position in range(len(models))]
    return {name: each.get("owned_by") for name, each in zip(names, models, strict=True)}


def _close_client(client: JsonClient) -> None:
    asyncio.run_coroutine_threadsafe(client.close(), _loop())


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """Return the loop of this process's requests to encoders and re-rankers, which ends with the process."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="model-servers", daemon=True).start()
    return loop
