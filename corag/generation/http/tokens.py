"""Token ids from a server that tells them, where its tokenizer is not known here: llama.cpp's."""

from __future__ import annotations

import re

from corag.core.errors import RequestRefusedError
from corag.core.replies import list_at
from corag.generation.continuation import ANCHORS, ids_behind, last_words
from corag.generation.http.endpoints import Endpoints
from corag.generation.http.features import Server
from corag.generation.http.wire import TEMPLATE, TOKENIZE, read_template, tokenize_body
from corag.generation.special_names import space_out_names

_QUESTION_TURN = {"role": "user", "content": "Is it so?"}
_REPLY = "Certainly"  # a word that no chat template has of its own


class ServerTokens:
    """What servers make of texts, as :class:`corag.generation.rendering.Renderer` does it here."""

    def __init__(self, endpoints: Endpoints[Server], names: re.Pattern[str]) -> None:
        """``names``: of special tokens."""
        self._endpoints = endpoints
        self._names = names
        self._blank: str | None = None  # what begins each reply, once it is known

    async def tokenize(self, text: str, affinity: str, *, special: bool = False) -> list[int]:
        """Return a text's token ids, ``special``: with those that the server puts around it."""
        ids = await self._endpoints.request(
            TOKENIZE,
            lambda server: tokenize_body(server.model, text, special=special),
            lambda reply: list_at(reply, "tokens", kind=int),
            affinity,
        )
        return list(ids)

    async def target_ids(self, before: str, target: str, affinity: str, *, begins: bool) -> list[int]:
        """Return the token ids of a text as they follow the prompt, ``before``.

        ``begins``: the text begins a turn.
        """
        if not target or self._names.fullmatch(target):
            return await self.tokenize(target, affinity) if target else []
        text = space_out_names(target, self._names)
        if begins and not text[0].isspace():
            text = await self._blank_before_reply(affinity) + text
        for start in (last_words(before, self._names), *ANCHORS):
            whole = await self.tokenize(start + text, affinity)
            if (ids := ids_behind(await self.tokenize(start, affinity), whole)) is not None:
                return ids
        return await self.tokenize(text, affinity)

    async def end_of_turn(self, affinity: str) -> int:
        """Return the token that the chat template puts behind a reply."""
        text = await self._conversation(affinity)
        ids = await self.tokenize(text.partition(_REPLY)[2].lstrip(), affinity)
        if not ids:
            raise RequestRefusedError(
                "the server's chat template ends no reply, so the end of a turn cannot be scored."
            )
        return ids[0]

    async def _blank_before_reply(self, affinity: str) -> str:
        """Return the white space that the chat template writes between a question and its reply."""
        if self._blank is None:
            asking, whole = (
                await self._fill_template([_QUESTION_TURN], affinity),
                await self._conversation(affinity),
            )
            between = whole.removeprefix(asking).partition(_REPLY)[0]
            self._blank = between if whole.startswith(asking) and between.isspace() else ""
        return self._blank

    async def _conversation(self, affinity: str) -> str:
        # With a message behind it: else the reply would be one to go on with, which nothing ends.
        reply = {"role": "assistant", "content": _REPLY}
        return await self._fill_template(
            [_QUESTION_TURN, reply, {"role": "user", "content": "And this?"}], affinity
        )

    async def _fill_template(self, messages: list[dict[str, str]], affinity: str) -> str:
        body = {"messages": messages}
        return await self._endpoints.request(TEMPLATE, lambda _: body, read_template, affinity)
