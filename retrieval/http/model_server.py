"""A server of an encoder or a re-ranker: its address, the model that it serves, requests and tries again.

Searches come from worker threads, so requests run on an event loop in a thread of its own, which all servers
of this process share.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from corag.core.errors import BackendError, ConfigError
from corag.core.proxies import describe_proxy, open_client
from corag.core.replies import FaultError, StatusError, UnreachableError, send, value_at
from corag.core.servers import (
    StallNotifier,
    TryAgainError,
    check_schemes,
    contain_credentials,
    retrying,
)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
_AT_ONCE = 8  # requests in flight: a server fills its batches from several
_DENIAL_CODES = (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN)

Result = TypeVar("Result")


@dataclass(frozen=True)
class ServedModels:
    """What a server says of itself.

    Attributes:
        models: the names of its models, none if it does not list them.
        is_vllm: whether it is vLLM, which refuses texts that are too long unless it is asked to cut them.
        batch_size: texts of a request at most; 0 if it does not say so.
    """

    models: tuple[str, ...] = ()
    is_vllm: bool = False
    batch_size: int = 0


class ModelServer:
    """A server that is asked for vectors or scores.

    ``model``: the one that was named behind the address; "" for none.
    """

    def __init__(self, address: str, what: str, key_variable: str, *, timeout_s: float, retries: int) -> None:
        """Prepare requests. Nothing is sent yet.

        Args:
            address: such as "http://host:8000/v1#BAAI/bge-m3": address and, behind #, the model.
            what: how messages call it, such as "the encoder".
            key_variable: environment variable that holds its API key, if it wants one.
            timeout_s: seconds to wait for a reply.
            retries: times that a request is sent again.

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
        self.url = url.rstrip("/")
        self.what, self._key_variable, self._retries = what, key_variable, retries
        key = os.environ.get(key_variable, "")
        self._client = open_client(
            [self.url],
            # Waiting for a free connection is our own load, not the server's fault: it has no limit.
            timeout=httpx.Timeout(timeout_s, connect=min(10.0, timeout_s), pool=None),
            limits=httpx.Limits(max_connections=_AT_ONCE, max_keepalive_connections=_AT_ONCE),
            headers={"Authorization": f"Bearer {key}"} if key else {},
        )
        self._stalls = StallNotifier(self.url)
        # By itself, too, when nobody has the server any more: an encoder may be several indexes'.
        self._finalizer = weakref.finalize(self, _close_client, self._client)
        self._finalizer.atexit = False

    @property
    def root(self) -> str:
        """The address without a path."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

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

    async def post(self, url: str, body: dict[str, Any], parse: Callable[[Any], Result]) -> Result:
        """Send a request, again after a pause if it fails; return what ``parse`` takes out of the reply.

        Raises :class:`BackendError` if every attempt failed, or the key is refused;
        :class:`corag.core.replies.StatusError` if the request is.
        """

        async def attempt(number: int) -> Result:
            try:
                return await send(self._client, url, body, parse, on_reply)
            except FaultError as fault:
                raise TryAgainError(self._error(url, fault, number + 1)) from None

        with self._stalls.waiting() as on_reply:
            try:
                return await retrying(
                    attempt, self._retries + 1, first_pause_s=_FIRST_PAUSE_S, longest_pause_s=_LONGEST_PAUSE_S
                )
            except StatusError as refusal:
                if refusal.status not in _DENIAL_CODES:
                    raise
                raise BackendError(
                    f"{self.what} at {url} wants an API key ({refusal}): put it into the environment "
                    f"variable {self._key_variable}."
                ) from None

    async def describe(self, models_url: str) -> ServedModels:
        """Return what the server says of itself, by OpenAI's list of models or TEI's /info.

        Raises :class:`BackendError` if nothing listens there.
        """
        served_models = await self._look_up(models_url, _read_models)
        if served_models is not None:
            return served_models
        return await self._look_up(f"{self.root}/info", _read_info) or ServedModels()

    def choose_model(self, served_models: ServedModels, example: str) -> str:
        """Return the model to ask for: that which was named, or the only one that is served; "" if unknown.

        Raises :class:`ConfigError` if there are several, or the only one is another than was named.
        """
        # A server of one model may ignore the name that a request has, as TEI and llama.cpp do. One of
        # several goes by it and refuses others, and its list need not be whole (as of Azure's deployments).
        names = served_models.models
        if self.model and len(names) == 1 and not _same_model(self.model, names[0]):
            raise self._other_model(names[0])
        if self.model or len(names) < 2:
            return self.model or "".join(names)
        raise ConfigError(
            f"{self.what} at {self.url} serves {', '.join(names[:8])}: name one of these behind the "
            f"address, such as {self.url}#{example or names[0]}."
        )

    def require_model(self, model: str, served_models: ServedModels, reply_model: str) -> str:
        """Return the name of the model, by user, list or reply, "" where one of them has none.

        Raises :class:`ConfigError` if none of them has, and if another model than the named one replied.
        """
        # vLLM calls a model in replies by the first of its names, whichever was asked for; providers may add
        # a version (text-embedding-ada-002-v2).
        is_checked = self.model and reply_model and not served_models.is_vllm
        if is_checked and not (reply_model.startswith(self.model) or _same_model(self.model, reply_model)):
            raise self._other_model(reply_model)
        if not (model := model or reply_model):
            raise ConfigError(
                f"{self.what} at {self.url} does not tell which model it serves: name it behind the address, "
                f"such as {self.url}#BAAI/bge-m3. What is made with one model is not searched with another."
            )
        return model

    def refusal(self, url: str, error: StatusError) -> BackendError:
        """Return what to raise if the very first request is refused."""
        return BackendError(
            f"{self.what} at {url} refused the first request ({error}): check the address, and the model's "
            f"name behind # ('{self.model}')."
            if self.model
            else f"{self.what} at {url} refused the first request ({error}): check the address; the model's "
            f"name may stand behind it, such as {self.url}#BAAI/bge-m3."
        )

    def _other_model(self, model: str) -> ConfigError:
        return ConfigError(
            f"{self.what} at {self.url} serves '{model}', but '{self.model}' is named behind its address: "
            f"write {self.url}#{model}, or serve the named model under its name."
        )

    async def _look_up(self, url: str, parse: Callable[[Any], Result]) -> Result | None:
        try:
            return await send(self._client, url, None, parse)
        except UnreachableError as fault:
            raise self._error(url, fault, 1) from None
        except (FaultError, StatusError):
            return None  # it has no such address, or its key does not reach so far

    def _error(self, url: str, fault: FaultError, attempts: int) -> BackendError:
        proxy = describe_proxy(url)
        through = f" through the proxy {proxy}" if proxy else ""
        if isinstance(fault, UnreachableError):
            return BackendError(
                f"{self.what} at {url} cannot be reached{through} ({fault}): start its server, or correct "
                "the address."
            )
        return BackendError(
            f"{self.what} at {url} gave no usable reply{through} in {attempts} attempt{'s' * (attempts > 1)} "
            f"({fault}): look at its server's log, or correct the address."
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


def _read_models(reply: Any) -> ServedModels:
    models = value_at(reply, "data", kind=list)
    names = tuple(value_at(reply, "data", position, "id", kind=str) for position in range(len(models)))
    return ServedModels(names, is_vllm=any(each.get("owned_by") == "vllm" for each in models))


def _read_info(reply: Any) -> ServedModels:
    """Read what TEI tells of itself."""
    name = reply.get("served_model_name") if isinstance(reply, dict) else None
    if not isinstance(name, str):
        name = value_at(reply, "model_id", kind=str)
    size = reply.get("max_client_batch_size")
    return ServedModels((name,), batch_size=size if isinstance(size, int) else 0)


def _close_client(client: httpx.AsyncClient) -> None:
    asyncio.run_coroutine_threadsafe(client.aclose(), _loop())


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """Return the loop of this process's requests to encoders and re-rankers, which ends with the process."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="model-servers", daemon=True).start()
    return loop
