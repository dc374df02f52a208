"""A service over the fake model, on a real port of this process."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx

from corag.core.protocols import Generator, Retriever
from corag.core.types import Passage
from corag.service.answering import AnswerService
from corag.service.http.gate import AccessRules, allowed_hosts
from corag.service.keys import Keys
from corag.service.options import AnswersOptions, read_presets
from corag.service.serve import serve_until_stopped
from tests.fakes import PROMPTS, ScriptedGenerator, WordRetriever, kind, passage

PASSAGES = [
    passage("Karlen", "Karlen is a town. Its mayor is Ada Orm."),
    passage("Ada Orm", "Ada Orm was born in Velt."),
    passage("Velt", "Velt lies on the river Iss."),
]
REPLIES = {"NEXT": "Who is the mayor of Karlen?", "ANSWER": "Ada Orm", "FINAL": "Ada Orm", "ENOUGH": "No"}


def corag_preset(**options: object) -> dict[str, object]:
    """A preset of CoRAG whose prompts say what they ask in their first word."""
    prompts = {f"corag.{name}": text for name, text in PROMPTS.items()}
    return {"method": "corag", **prompts, **{f"corag.{name}": value for name, value in options.items()}}


def replies(request) -> str:
    """Reply as a model that knows the way: every hop another sub-query."""
    text = request.prompt.text
    if kind(request) == "NEXT" and "Ada Orm" in text:
        return "Where was Ada Orm born?"
    return REPLIES.get(kind(request), f"about {text.split()[-1]}")


@dataclass
class Running:
    """A service that is up.

    Attributes:
        url: its address.
        log: what it logged.
    """

    url: str
    service: AnswerService
    generator: ScriptedGenerator
    log: list[dict]
    key: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    proxy: str = ""

    def client(self, **more) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.url, headers=self.headers, timeout=30, verify=False, **more)

    def logged(self, event: str) -> list[dict]:
        return [line for line in self.log if line["event"] == event]

    async def ask(self, question: str = "Who is the mayor of Karlen?", **more) -> httpx.Response:
        body = {"model": "corag", "messages": [{"role": "user", "content": question}], **more}
        async with self.client() as client:
            return await client.post("/v1/chat/completions", json=body)


def options(presets: dict | None = None, **more) -> AnswersOptions:
    """Options of a service with CoRAG, one-step retrieval and no retrieval as presets."""
    import json

    named = presets or {
        "plain": {"method": "closed_book"},
        "corag": corag_preset(max_hops=2),
        "sampled": corag_preset(max_hops=1, strategy="best_of_n", chains=2, rank_by="vote"),
    }
    return AnswersOptions(method=["corag"], presets=json.dumps(named), **more)


@asynccontextmanager
async def served(
    given: AnswersOptions | None = None,
    *,
    pause: Callable | None = None,
    generator: Generator | None = None,
    retriever: Retriever | None = None,
    passages: Sequence[Passage] = PASSAGES,
    reply: Callable = replies,
    keys: Keys | None = None,
    port: int = 0,
) -> AsyncIterator[Running]:
    """Serve until the block ends."""
    config = given or options()
    presets = read_presets(config)
    model = generator or ScriptedGenerator(reply, pause)
    index = retriever or WordRetriever(passages)
    log: list[dict] = []
    with socket.create_server(("127.0.0.1", port)) as listener:
        service = AnswerService(
            config, presets, model, index, lambda event, **told: log.append({"event": event, **told})
        )  # fmt: skip
        rules = AccessRules(keys or Keys(), allowed_hosts("127.0.0.1", config.hosts))
        up = asyncio.create_task(serve_until_stopped(service, rules, listener))
        running = Running(f"http://127.0.0.1:{listener.getsockname()[1]}", service, model, log)
        try:
            async with running.client() as client:
                while (await client.get("/healthz")).status_code != 200:
                    await asyncio.sleep(0.01)
            yield running
        finally:
            up.cancel()
            await asyncio.gather(up, return_exceptions=True)
            await service.close()


async def until(true: Callable[[], bool], seconds: float = 2.0) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.01)
