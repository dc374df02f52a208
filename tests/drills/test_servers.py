"""What befalls a server while a run goes on: it is stopped, it dies, it comes back with something else."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse

from corag.core.errors import BackendError, RequestRefusedError
from corag.core.runs.folder import TRACES, read_rows
from retrieval.config import RetrieverConfig
from retrieval.search.pipeline import open_retriever
from tests.drills.answering import METHOD, ROOT, ended, started
from tests.failing_search import FAULTS as SEARCH_FAULTS
from tests.failing_search import Failing
from tests.generation import standing_in
from tests.generation.test_openai_server import HOSTED
from tests.generation.test_openai_server import StandIn as OpenAIStandIn
from tests.generation.test_server import StandIn, opened, request
from tests.messages import raises_message
from tests.retrieval.conftest import static_encoder, write_jsonl
from tests.retrieval.test_parts import built
from tests.story import BOOK, WORLD


@contextmanager
def searching(port: int = 0, name: str = "words") -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Serve the story's passages, under a fingerprint, in a process of its own; yield the address and it."""
    code = (
        "import asyncio, sys; from retrieval.http.server import serve; from tests.story import WORLD; "
        "from tests.fakes import WordRetriever; index = WordRetriever(WORLD); "
        "index.fingerprint = sys.argv[2]; "
        "asyncio.run(serve(index, '127.0.0.1', int(sys.argv[1]), lambda said: print(said, flush=True)))"
    )
    with told_address(code, str(port), name) as served:
        yield served


@contextmanager
def told_address(code: str, *words: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run code that serves in a process of its own; yield the address that it prints, and the process."""
    command = [sys.executable, "-c", code, *words]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield re.findall(r"http://\S+", server.stdout.readline())[0], server
    finally:
        server.kill()
        server.communicate()


def stop(server: subprocess.Popen[str]) -> None:
    """Stop a process, and wait until all of its threads stand still."""
    server.send_signal(signal.SIGSTOP)
    threads = list(Path(f"/proc/{server.pid}/task").glob("*/stat"))
    while any(each.read_text().rpartition(")")[2].split()[0] != "T" for each in threads):
        time.sleep(0.001)


def wait_for_lines(run: subprocess.Popen[str], traces: Path, count: int) -> None:
    while not (traces.exists() and traces.read_bytes().count(b"\n") >= count):
        assert run.poll() is None, run.communicate()
        time.sleep(0.01)


SEVEN = ("500", "503", "429", "truncated", "hang", "garbage", "no choices")
QUESTIONS = 60


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a server that hangs hang for longer than any of these runs takes."""
    monkeypatch.setattr(standing_in, "HANGS_S", 90.0)


def drawn(share: float, faults: Sequence[str]) -> Callable[[], str]:
    """Return what makes a share of all requests fail."""
    dice = random.Random(7)
    return lambda: dice.choice(faults) if dice.random() < share else ""


def command(folder: Path, model: str, search: str, *more: object) -> subprocess.Popen[str]:
    """Start 'corag run' on sixty questions."""
    records = [{"id": f"q{n}", "question": f"Is it so, {n}?", "answers": ["so"]} for n in range(QUESTIONS)]
    file = folder / "questions.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    words = [
        "--questions", file, "--method", METHOD, "--ircot.max_steps", 2, "--out", folder / "runs",
        "--model.backend", "openai", "--model.urls", model, "--retriever.url", search, *more,
    ]  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-m", "corag.cli", "run", *map(str, words)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.slow
def test_sixty_questions_outlive_fifteen_percent_of_seven_faults_at_both_servers(
    hanging: None, tmp_path: Path
) -> None:
    with OpenAIStandIn(HOSTED) as model, Failing() as search:
        model.faults, fault = drawn(0.15, SEVEN), drawn(0.15, SEARCH_FAULTS)
        search.faults = iter(fault, None)
        quick = "--model.timeout_s", 2, "--retriever.timeout_s", 2, "--retriever.retries", 5
        status, said = ended(command(tmp_path, model.url, search.url, *quick), 240)
    rows = read_rows(tmp_path / "runs" / METHOD)
    assert status == 0 and len(rows) == QUESTIONS, said
    assert not [row.error for row in rows.values() if row.error]
    for where in ("the model's servers", "the search servers"):
        (times,) = re.findall(rf"corag: (\d+) requests failed at {where} and were sent again", said)
        assert int(times) > 0


@pytest.mark.slow
def test_a_model_server_that_always_fails_ends_a_run_of_default_options_within_a_minute(
    hanging: None, tmp_path: Path
) -> None:
    with OpenAIStandIn(HOSTED) as model, Failing() as search:
        model.faults = drawn(1, SEVEN)
        status, said = ended(command(tmp_path, model.url, search.url), 60)
    (sentence,) = [line for line in said.splitlines() if "gave no usable reply in 6 attempts" in line]
    assert status == 1 and sentence.startswith(f"corag: the server {model.url}/v1/models")
    assert not (tmp_path / "runs" / METHOD).exists()


@pytest.mark.slow
def test_a_model_server_that_always_fails_from_then_on_ends_a_run_within_a_minute(
    hanging: None, tmp_path: Path
) -> None:
    with OpenAIStandIn(HOSTED) as model, Failing() as search:
        fault = drawn(1, SEVEN)
        model.faults = lambda: fault() if search.asked > 1 else ""  # the first is the greeting
        status, said = ended(command(tmp_path, model.url, search.url, "--model.timeout_s", 2), 60)
    (sentence,) = [line for line in said.splitlines() if "gave no usable reply in 6 attempts" in line]
    assert status == 1 and sentence.startswith("corag: ") and model.url in sentence
    assert not [row.error for row in read_rows(tmp_path / "runs" / METHOD).values() if row.error]


@pytest.mark.slow
def test_a_search_server_that_is_stopped_for_longer_than_the_limit(tmp_path: Path) -> None:
    with searching() as (url, server):
        run = started(tmp_path, "--search", url, "--pause", 0.1)
        wait_for_lines(run, tmp_path / METHOD / TRACES, 3)
        stop(server)
        time.sleep(4)  # two attempts of a second each, and the pause between them
        server.send_signal(signal.SIGCONT)
        assert ended(run)[0] == 0
        rows = read_rows(tmp_path / METHOD)
        failed = [row.error for row in rows.values() if row.error]
        assert len(rows) == 40 and 0 < len(failed) < 40
        assert all("no usable reply" in error and "raise timeout_s" in error for error in failed)
        assert ended(started(tmp_path, "--search", url))[0] == 0
    rows = read_rows(tmp_path / METHOD)
    assert {name: row.text for name, row in rows.items()} == {f"q{n}": f"A{n}" for n in range(40)}


@contextmanager
def serving(folder: str, port: int = 0) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Serve an index folder in a process of its own; yield the address and it."""
    code = (
        "import asyncio, sys; from retrieval.config import RetrieverConfig; "
        "from retrieval.http.server import serve; from retrieval.search.pipeline import open_retriever; "
        "run = asyncio.Runner().run; "
        "index = run(open_retriever(RetrieverConfig([sys.argv[1]]), part_alone=True)); "
        "run(serve(index, '127.0.0.1', int(sys.argv[2]), lambda said: print(said, flush=True)))"
    )
    with told_address(code, folder, str(port)) as served:
        yield served


@pytest.mark.slow
def test_a_part_that_ends_in_a_run_is_told_of_and_the_run_goes_on_when_it_is_back(tmp_path: Path) -> None:
    corpus = write_jsonl(tmp_path / "corpus.jsonl", WORLD)
    encoder = static_encoder(tmp_path / "encoder")
    parts = [built(corpus, encoder, tmp_path / f"part{number}", part=f"{number}/2") for number in (1, 2)]
    with serving(parts[0]) as (first, _):
        with serving(parts[1]) as (second, server):
            run = started(tmp_path / "runs", "--search", f"{first},{second}", "--pause", 0.1)
            wait_for_lines(run, tmp_path / "runs" / METHOD / TRACES, 3)
            server.kill()
            status, said = ended(run)
        assert status == 2 and f"{second}/search cannot be reached" in said
        done = read_rows(tmp_path / "runs" / METHOD)
        assert 0 < len(done) < 40 and not [row.error for row in done.values() if row.error]
        with serving(parts[1], int(second.rpartition(":")[2])):
            assert ended(started(tmp_path / "runs", "--search", f"{first},{second}"))[0] == 0
    rows = read_rows(tmp_path / "runs" / METHOD)
    assert {name: row.text for name, row in rows.items()} == {f"q{n}": f"A{n}" for n in range(40)}


@pytest.mark.slow
async def test_a_search_server_that_comes_back_with_another_index_is_refused() -> None:
    with searching() as (url, _):
        remote = await open_retriever(RetrieverConfig(url=[url], cache_size=0))
        assert [hit.passage for hit in await remote.search("orchard", 1)] == [BOOK]
    port = int(url.rpartition(":")[2])
    with searching(port, "another"):
        for asking in (remote.search("orchard", 1), remote.passages([BOOK.id])):
            with raises_message(BackendError):
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
            with raises_message((RequestRefusedError, BackendError)):
                await generator.generate(request(text="And now?"))
