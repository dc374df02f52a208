"""An encoder behind a URL: OpenAI's ``/v1/embeddings``, as vLLM, TEI, Ollama, llama.cpp and OpenAI speak it.

vLLM refuses a text that is too long unless ``truncate_prompt_tokens`` is -1; TEI takes 32 texts a request.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag.core.errors import BackendError, RequestRefusedError
from corag.core.json_client import RefusedError
from corag.core.replies import MalformedReplyError, value_at
from corag.core.seeds import stable_hash
from corag.core.servers import base_address
from retrieval.dense.encoder import Kind, TextEncoder, require_finite
from retrieval.dense.placement import Placement
from retrieval.dense.prompts import Prompts, prompts_by_card
from retrieval.http.model_server import ModelServer

KEY = "CORAG_ENCODER_API_KEY"
_TEXTS = 32  # of a request: what TEI takes
_BATCH = 256  # texts that are encoded at once: eight requests in flight
_TOO_MUCH = (400, 413, 422)  # servers disagree on the status for too many or too long texts
_Reply = tuple[str, NDArray[np.float32]]


class ServedEncoder(TextEncoder):
    """An encoder on a server. ``fingerprint`` is of the model's name and dimension, wherever it is served.

    Nothing of the model itself can be seen: who opens an index compares a few vectors, too.
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
        self._server = ModelServer(address, "the encoder", KEY, placement)
        base = base_address(self._server.url)
        self._url = f"{base}/embeddings"
        self._server.run(self._server.find_model(f"{base}/models"))
        self._options: dict[str, Any] = {"encoding_format": "base64"}
        if self._server.model:
            self._options["model"] = self._server.model
        if self._server.is_vllm:
            self._options["truncate_prompt_tokens"] = -1
        self._replied_model, vectors = self._server.run(self._open())
        self._server.settle_model(self._replied_model)
        self.model = self._server.model
        self.dimension = vectors.shape[1]
        self.batch_size = placement.batch_size or _BATCH
        self.name = f"{self._server.url}#{self.model}"
        self.fingerprint = stable_hash(f"served|{self.model}|{self.dimension}")

    def missing_prompts(self) -> Prompts | None:
        """Return the prompts that the model's card asks for, if it is known: a server tells none."""
        return prompts_by_card(self.model)

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

    async def _open(self) -> _Reply:
        """Ask for a first vector."""
        try:
            return await self._send(["river"])
        except RefusedError as refusal:
            raise self._server.refusal(refusal) from None

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
                f"the encoder at {self._url} answers as '{model}' with {vectors.shape[1]} dimensions now, "
                f"but was '{self._replied_model}' with {self.dimension}: serve the model that was opened."
            )
        return vectors

    async def _send(self, texts: Sequence[str]) -> _Reply:
        body = {"input": list(texts), **self._options}
        route = self._url.removeprefix(self._server.url)
        return await self._server.client.request(route, body, lambda reply: _read_vectors(reply, len(texts)))


def _read_vectors(reply: Any, count: int) -> _Reply:
    """Return the model that a reply names, "" for none, and its vectors, [count, dimension].

    They are lists of numbers, or base64 of float32. Raises :class:`MalformedReplyError` for anything else.
    """
    data = value_at(reply, "data", kind=list)
    if len(data) != count:
        raise MalformedReplyError(f"a reply with {len(data)} vectors for {count} texts")
    by_place: dict[int, NDArray[np.float32]] = {}
    for number, item in enumerate(data):
        position = item.get("index", number) if isinstance(item, dict) else number
        by_place[position] = _read_vector(value_at(reply, "data", number, "embedding", kind=object))
    if sorted(by_place, key=str) != sorted(range(count), key=str):
        raise MalformedReplyError("a reply whose vectors are not numbered as the texts are")
    if len({vector.shape for vector in by_place.values()}) > 1 or not by_place[0].size:
        raise MalformedReplyError("a reply whose vectors are empty, or not of one length")
    model = reply.get("model")
    return model if isinstance(model, str) else "", np.stack(
        [by_place[position] for position in range(count)]
    )


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
