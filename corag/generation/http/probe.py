"""The requests by which a server is probed when it is opened: what must answer, and what may refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import httpx

from corag.core.errors import BackendError
from corag.core.replies import StatusError
from corag.generation.config import ModelConfig
from corag.generation.http.endpoints import FaultyServerError, send_opening
from corag.generation.http.features import Features
from corag.generation.http.wording import Wording

_OPTIONAL_RETRIES = 4  # of what a server may not support: some say so with a status like that of a fault
PROMPT = "The river runs through the valley to the"
MESSAGES = [{"role": "user", "content": PROMPT}]

Result = TypeVar("Result")


class Probe:
    """The requests to one server while it is opened; ``preset`` says what it supports, as far as known."""

    def __init__(
        self, client: httpx.AsyncClient, url: str, config: ModelConfig, preset: Features | None
    ) -> None:
        self.client, self.url, self.config, self.preset = client, url, config, preset
        self.refusal = ""  # what the server answered when it last refused
        self.wording = Wording(opening=True)

    async def require(
        self, route: str, body: dict[str, Any] | None, parse: Callable[[Any], Result]
    ) -> Result:
        """Request what must be there. Raises as :func:`send_opening`."""
        return await self._send(route, body, parse, self.config.retries)

    async def attempt(
        self, route: str, body: dict[str, Any], parse: Callable[[Any], Result]
    ) -> Result | None:
        """Request what may be refused, if only by failing every time; None then."""
        retries = min(self.config.retries, _OPTIONAL_RETRIES)
        try:
            return await self._send(route, body, parse, retries)
        except (StatusError, FaultyServerError) as refusal:
            self.refusal = str(refusal)
            return None

    async def look_up(self, route: str, body: dict[str, Any] | None = None) -> Any:
        """Request what only some programs have; None if this one has not, whatever it answers."""
        try:
            return await self._send(route, body, lambda reply: reply, 1)
        except (StatusError, BackendError):
            return None

    async def _send(
        self, route: str, body: dict[str, Any] | None, parse: Callable[[Any], Result], retries: int
    ) -> Result:
        return await send_opening(self.client, self.url, route, body, parse, retries, self.wording)
