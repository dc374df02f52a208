"""The real commands with the real small model, driven by the official openai and mcp clients."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import openai
import pytest
from mcp import Client, StdioServerParameters

from corag.cli.main import main
from corag.core.runs.folder import read_rows
from tests.serving import free_port

ROOT = Path(__file__).parents[2]
# Beside other tests two threads of torch would mostly wait for each other.
ONE_THREAD = os.environ | {"OMP_NUM_THREADS": "1"}
MODEL = ["--model.backend", "transformers", "--model.adapter", "default", "--model.max_context", "2048"]
PRESETS = {
    "closed-book": {"method": "closed_book", "closed_book.max_answer_tokens": 16},
    "corag": {"method": "corag", "corag.preset": "small_model", "corag.max_hops": 1},
    # Long enough to be left in the middle of a reply.
    "long": {"method": "closed_book", "closed_book.max_answer_tokens": 1500, "closed_book.reader": "cot"},
}
QUESTION = [{"role": "user", "content": "Where was the mayor of Karlen born?"}]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    corpus = folder / "corpus.jsonl"
    texts = {"Karlen": "Karlen is a town. Its mayor is Ada Orm.", "Ada Orm": "Ada Orm was born in Velt."}
    rows = [json.dumps({"id": name, "title": name, "text": text}) for name, text in texts.items()]
    corpus.write_text("\n".join(rows) + "\n")
    subprocess.run(
        [sys.executable, "-m", "corag.cli", "index", str(corpus), "--out", str(folder / "index")],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    return folder / "index"


@pytest.fixture(scope="module")
def server(index, tmp_path_factory):
    """A server process: its address, its runs, its log and itself."""
    folder, port = tmp_path_factory.mktemp("server"), free_port()
    (folder / "presets.yaml").write_text(json.dumps(PRESETS))
    command = [sys.executable, "-m", "corag.cli", "serve", "answers", *MODEL, "--port", str(port)]
    command += [
        "--index",
        str(index),
        "--presets",
        str(folder / "presets.yaml"),
        "--out",
        str(folder / "runs"),
    ]
    url, log = f"http://127.0.0.1:{port}", folder / "log"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            command, cwd=ROOT, stderr=stderr, stdout=subprocess.DEVNULL, env=ONE_THREAD
        )
    try:
        end = time.monotonic() + 480
        while not _ready(url):
            assert process.poll() is None and time.monotonic() < end, log.read_text()
            time.sleep(0.5)
        yield url, folder, log, process
    finally:
        process.kill()
        process.wait()


def _ready(url):
    try:
        return httpx.get(f"{url}/readyz").status_code == 200
    except httpx.TransportError:
        return False


def client_of(url):
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=240)


def test_the_clients_of_openai_ask_and_stream(server):
    url, *_ = server
    client = client_of(url)
    assert [model.id for model in client.models.list()] == list(PRESETS)
    whole = client.chat.completions.create(model="corag", messages=QUESTION)
    text = whole.choices[0].message.content
    assert text and whole.usage.total_tokens > 100 and whole.model_extra["corag"]["sources"]
    stream = client.chat.completions.create(model="corag", messages=QUESTION, stream=True)
    chunks = [chunk for chunk in stream if chunk.choices]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == text, "remembered, so equal"
    assert any(
        "searched: " in (chunk.choices[0].delta.model_extra or {}).get("reasoning_content", "")
        for chunk in chunks
    )


def test_a_stream_that_is_closed_frees_the_engine(server):
    url, folder, log, _ = server
    stream = client_of(url).chat.completions.create(model="long", messages=QUESTION, stream=True)
    next(iter(stream))
    time.sleep(0.5)
    stream.close()
    started = time.monotonic()
    while 'outcome="left",preset="long"' not in httpx.get(f"{url}/metrics").text:
        assert time.monotonic() < started + 30
        time.sleep(0.05)
    # The engine is free for others at once: it does not go on to the 1,500th token.
    begun = time.monotonic()
    client_of(url).chat.completions.create(
        model="closed-book", messages=[{"role": "user", "content": "Now?"}]
    )
    assert time.monotonic() - begun < 30
    (long,) = (folder / "runs").glob("long-*")
    (row,) = read_rows(long).values()
    assert row.error.startswith("CallerLeft") and row.seconds < 20
    assert QUESTION[0]["content"] not in log.read_text()


def test_a_signal_ends_it_after_the_last_answer_and_its_runs_can_be_read(server, capsys):
    url, folder, log, process = server
    body = {"model": "closed-book", "messages": [{"role": "user", "content": "Who was Ada Orm?"}]}

    async def ask_and_end():
        async with httpx.AsyncClient(timeout=60) as client:
            asking = asyncio.create_task(client.post(f"{url}/v1/chat/completions", json=body))
            while (
                "corag_in_flight 1.0" not in (await client.get(f"{url}/metrics")).text and not asking.done()
            ):
                await asyncio.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            return (await asking).status_code

    assert asyncio.run(ask_and_end()) == 200
    assert process.wait(120) == 0
    assert "Traceback" not in log.read_text()
    (run,) = (folder / "runs").glob("corag-????????")
    assert main(["table", str(run), "--ledger"]) == 0 and main(["table", str(run)]) == 0
    assert re.search(r"sub_query", capsys.readouterr().out)


def test_an_agent_starts_the_command_and_asks_over_its_standard_input(index):
    command = ["-m", "corag.cli", "serve", "answers", "--stdio", *MODEL, "--index", str(index)]
    command += ["--presets", json.dumps(PRESETS)]
    parameters = StdioServerParameters(command=sys.executable, args=command, env=ONE_THREAD, cwd=str(ROOT))

    async def talk():
        told = []

        async def progress(done, total, message):
            told.append(message)

        async with Client(parameters) as client:
            question = {"question": QUESTION[0]["content"], "preset": "corag"}
            answer = await client.call_tool("ask", question, progress_callback=progress)
            found = await client.call_tool("search", {"query": "mayor of Karlen", "k": 1})
            (hit,) = found.structured_content["hits"]
            return answer, told, hit

    answer, told, hit = asyncio.run(talk())
    assert not answer.is_error and answer.structured_content["preset"] == "corag"
    assert any("searched: " in each for each in told)
    assert hit["title"] == "Karlen" and "Ada Orm" in hit["text"]
