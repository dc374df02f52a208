"""What befalls a server while a run goes on: it is stopped, it dies, it comes back with something else."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse

from core.errors import BackendError, RequestRefusedError
from core.runs.folder import TRACES, read_rows
from retrieval.config import RetrieverConfig
from retrieval.open import open_retriever
from tests.drills.answering import METHOD, ROOT, ended, started
from tests.generation.test_server import StandIn, opened, request
from tests.story import BOOK


@contextmanager
def searching(port: int = 0, name: str = "words") -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Serve the story's passages, under a fingerprint, in a process of its own; yield the address and it."""
    code = (
        "import asyncio, sys; from retrieval.http.server import serve; from tests.story import WORLD; "
        "from tests.fakes import WordRetriever; index = WordRetriever(WORLD); "
        "index.fingerprint = sys.argv[2]; "
        "asyncio.run(serve(index, '127.0.0.1', int(sys.argv[1]), lambda said: print(said, flush=True)))"
    )
    command = [sys.executable, "-c", code, str(port), name]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield re.findall(r"http://\S+", server.stdout.readline())[0], server
    finally:
        server.kill()
        server.communicate()


def wait_for_lines(run: subprocess.Popen[str], traces: Path, count: int) -> None:
    while not (traces.exists() and traces.read_bytes().count(b"\n") >= count):
        assert run.poll() is None, run.communicate()
        time.sleep(0.01)


@pytest.mark.slow
def test_a_search_server_that_is_stopped_for_longer_than_the_limit(tmp_path: Path) -> None:
    with searching() as (url, server):
        run = started(tmp_path, "--search", url, "--pause", 0.1)
        wait_for_lines(run, tmp_path / METHOD / TRACES, 3)
        server.send_signal(signal.SIGSTOP)
        time.sleep(4)  # two attempts of a second each, and the pause between them
        server.send_signal(signal.SIGCONT)
        assert ended(run)[0] == 0
        rows = read_rows(tmp_path / METHOD)
        failed = [row.error for row in rows.values() if row.error]
        assert len(rows) == 40 and 0 < len(failed) < 40
        assert all("did not answer within 1 s: raise timeout_s" in error for error in failed)
        assert ended(started(tmp_path, "--search", url))[0] == 0
    rows = read_rows(tmp_path / METHOD)
    assert {name: row.text for name, row in rows.items()} == {f"q{n}": f"A{n}" for n in range(40)}


@pytest.mark.slow
def test_a_search_server_that_is_killed_ends_the_run_in_a_sentence(tmp_path: Path) -> None:
    with searching() as (url, server):
        run = started(tmp_path, "--search", url, "--pause", 0.1)
        wait_for_lines(run, tmp_path / METHOD / TRACES, 3)
        server.kill()
        status, said = ended(run)
    assert (
        status == 2 and f"{url}/search cannot be reached" in said and "is the search server running" in said
    )
    assert not [row.error for row in read_rows(tmp_path / METHOD).values() if row.error]


@pytest.mark.slow
async def test_a_search_server_that_comes_back_with_another_index_is_refused() -> None:
    with searching() as (url, _):
        remote = await open_retriever(RetrieverConfig(url=[url], cache_size=0))
        assert [hit.passage for hit in await remote.search("orchard", 1)] == [BOOK]
    port = int(url.rpartition(":")[2])
    with searching(port, "another"):
        for asking in (remote.search("orchard", 1), remote.passages([BOOK.id])):
            with pytest.raises(BackendError, match=r"another index now \(another\) than .* began \(words\)"):
                await asking
    with searching(port):
        assert len(await remote.search("orchard", 1)) == 1
    await remote.close()


class Restarting(StandIn):
    """A server that refuses models that it does not have, as vLLM's does."""

    async def _complete(self, asked: Request) -> Any:
        if (wanted := (await asked.json())["model"]) not in self.models:
            return JSONResponse({"error": {"message": f"The model `{wanted}` does not exist."}}, 404)
        return await super()._complete(asked)


async def test_a_model_server_that_comes_back_with_another_model_says_so() -> None:
    with Restarting(("only",)) as server:
        async with opened(server, retries=0) as generator:
            await generator.generate(request())
            server.models = ("another",)
            with pytest.raises((RequestRefusedError, BackendError), match="model `only` does not exist"):
                await generator.generate(request(text="And now?"))
