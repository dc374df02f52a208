"""More requests at once than this process may open files: the limit is raised, else some wait."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from starlette.requests import Request
from starlette.responses import Response

from tests.generation.test_openai_server import EVERYTHING, StandIn

pytestmark = pytest.mark.slow

ASK = """
import asyncio, resource, sys
from corag.core.protocols import GenerateRequest, Sampling
from corag.generation.config import ModelConfig
from corag.generation.http.engine import HttpGenerator
from tests.fakes import chat_prompt

resource.setrlimit(resource.RLIMIT_NOFILE, (256, int(sys.argv[2])))

async def main():
    config = ModelConfig(backend="openai", urls=(sys.argv[1],), retries=int(sys.argv[3]))
    generator = await HttpGenerator.open(config, tokenizer="")
    asked = [GenerateRequest(chat_prompt(f"Who wrote part {n}?"), Sampling(8)) for n in range(400)]
    replies = await asyncio.gather(*map(generator.generate, asked))
    print(len(replies), "replies", resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    await generator.close()

asyncio.run(main())
"""


class Slow(StandIn):
    """A server that replies to its chat's requests only after all that can be there at once are there."""

    async def _answer(self, request: Request) -> Response:
        if request.url.path.endswith("/chat/completions"):
            await asyncio.sleep(1)
        return await super()._answer(request)


@pytest.mark.parametrize(("hard", "retries"), [(4096, 2), (256, 1)])
def test_requests_beyond_the_limit_of_open_files_are_answered(hard: int, retries: int) -> None:
    with Slow(EVERYTHING) as server:
        command = [sys.executable, "-c", ASK, server.url, str(hard), str(retries)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, f"400 replies {hard}\n"), done.stderr
