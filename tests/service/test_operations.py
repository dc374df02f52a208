"""What keeps a service up: limits, keys, doors, metrics, faults, its end."""

import asyncio
import gzip
import json
import os
import re
import signal
import socket
from contextlib import suppress
from types import SimpleNamespace

import httpx
import pytest

from corag.cli.main import main
from corag.core.errors import ConfigError
from corag.core.runs.folder import read_rows
from corag.generation.cached import CachedGenerator
from corag.generation.config import ModelConfig
from corag.service import records
from corag.service.http.gate import allowed_hosts
from corag.service.keys import Keys
from corag.service.options import AnswersOptions, Limits, read_presets
from corag.service.serve import listening_to_signals
from tests.fakes import ScriptedGenerator, WordRetriever
from tests.messages import raises_message
from tests.service.serving import PASSAGES, options, served, until

PLAIN = {"plain": {"method": "closed_book"}}
KEYS = ("alpha", "0123456789abcdef-alpha"), ("beta", "0123456789abcdef-beta")


@pytest.fixture
def keys(tmp_path):
    file = tmp_path / "keys.txt"
    file.write_text("# who may ask\n" + "".join(f"{name} {key}\n" for name, key in KEYS))
    return Keys(str(file))


async def slow(request):
    await asyncio.sleep(0.05)


async def test_overload_gives_only_429s_and_finished_answers():
    given = options(PLAIN, limits=Limits(in_flight=4, queue=4))
    async with served(given, pause=slow, reply=lambda request: "yes") as running:
        asked = await asyncio.gather(*(running.ask(f"Is it {n}?", model="plain") for n in range(80)))
        statuses = [reply.status_code for reply in asked]
        assert set(statuses) == {200, 429} and 8 <= statuses.count(200) < 80
        refused = [reply for reply in asked if reply.status_code == 429]
        assert all(1 <= int(reply.headers["retry-after"]) <= 60 for reply in refused)
        assert all(reply.json()["error"]["type"] == "rate_limit_error" for reply in refused)
        admission = running.service.admission
        assert (admission.claims, admission.answering) == (0, 0), "nothing is lost or left"
        assert (await running.ask("Is it over?", model="plain")).status_code == 200
        assert len(running.logged("answered")) == statuses.count(200) + 1


async def test_who_waits_too_long_or_leaves_the_queue_is_counted_and_makes_room(tmp_path):
    let_go = asyncio.Event()

    async def pause(request):
        await let_go.wait()

    given = options(PLAIN, limits=Limits(in_flight=1, queue=2, answer_s=0.5), out=str(tmp_path))
    async with served(given, pause=pause, reply=lambda request: "yes") as running:
        first, second, third = (asyncio.create_task(running.ask(f"{n}?", model="plain")) for n in range(3))
        await until(lambda: running.service.admission.waiting == 2)
        third.cancel()
        await until(lambda: running.service.admission.waiting == 1)
        assert [line["calls"] for line in running.logged("left")] == [0]
        assert {(await first).status_code, (await second).status_code} == {504}
        seconds = [(line["waited_s"] >= 0.4, line["seconds"] >= 0.4) for line in running.logged("timed_out")]
        assert sorted(seconds) == [(False, True), (True, False)], "the second only waited"
        let_go.set()
        assert (await running.ask(model="plain")).status_code == 200
    (folder,) = tmp_path.glob("plain-*")
    errors = [row.error.partition(":")[0] for row in read_rows(folder).values()]
    assert sorted(errors) == ["", "CallerLeft", "TimedOut", "TimedOut"]


async def test_a_key_has_its_share_and_strangers_are_refused(keys):
    given = options(PLAIN, limits=Limits(per_key=2))
    async with served(given, pause=slow, reply=lambda request: "yes", keys=keys) as running:
        for wrong in (None, "Bearer", "Bearer nonsense", f"Basic {KEYS[0][1]}", f"Bearer {KEYS[0][1]}x"):
            running.headers = {"authorization": wrong} if wrong else {}
            reply = await running.ask(model="plain")
            assert (reply.status_code, reply.json()["error"]["code"]) == (401, "invalid_api_key")
            assert reply.headers["www-authenticate"] == "Bearer"
        async with running.client() as client:
            running.headers = {}
            for path in ("/v1/models", "/metrics", "/mcp", "/v1/passages/karlen"):
                assert (await client.get(path, headers={"authorization": "Bearer no"})).status_code == 401
            assert (await client.get("/healthz")).status_code == (await client.get("/")).status_code == 200
        running.headers = {"authorization": f"Bearer {KEYS[0][1]}"}
        replies_ = await asyncio.gather(*(running.ask(f"Is it {n}?", model="plain") for n in range(6)))
        assert sorted(reply.status_code for reply in replies_) == [200] * 2 + [429] * 4
        running.headers = {"authorization": f"bearer {KEYS[1][1]}"}
        assert (await running.ask(model="plain")).status_code == 200
        assert {line["key"] for line in running.logged("answered")} == {"alpha", "beta"}
        assert not any(key in json.dumps(running.log) for _, key in KEYS)


@pytest.mark.parametrize(
    "text",
    ["# nothing\n", "a b c\n", "0123456789abcdef-alone\n", "a 0123456789abcd\u00e9f\n"],
)
def test_a_file_without_usable_keys_is_refused_without_showing_one(tmp_path, text):
    file = tmp_path / "keys.txt"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        Keys(str(file))
    assert "0123456789abcdef" not in str(refused.value)


async def test_large_bodies_and_other_bodies_are_refused_and_unfinished_ones_take_no_place():
    async with served(options(PLAIN), reply=lambda request: "yes") as running, running.client() as client:
        kind = {"content-type": "application/json"}

        async def much():
            for _ in range(100):
                yield b" " * 1_000_000

        host, port = running.url.removeprefix("http://").split(":")
        # The connection may be closed while it is still sent.
        with suppress(httpx.TransportError):
            streamed = await client.post("/v1/chat/completions", content=much(), headers=kind)
            assert streamed.status_code == 413
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 100\r\n\r\n{"
        )
        text = await client.post("/v1/chat/completions", content="{}", headers={"content-type": "text/plain"})
        assert text.status_code == 415
        assert (await client.get("/v1/chat/completions")).status_code == 405
        for path in ("/nothing", "/assets/../service.py", "/assets/%2e%2e/keys.py", "/v1/models/none"):
            assert (await client.get(path)).status_code == 404
        assert (await running.ask(model="plain")).status_code == 200
        assert running.service.admission.claims == 0
        writer.close()


async def test_other_names_and_other_pages_are_not_let_in():
    async with served(options(PLAIN)) as running, running.client() as client:
        assert (await client.get("/v1/models", headers={"host": "evil.example"})).status_code == 421
        for odd in ("[", "[::1", "a b", "x" * 5000):
            assert (await client.get("/v1/models", headers={"host": odd})).status_code in (400, 421)
        foreign = {"origin": "https://evil.example", "access-control-request-method": "POST"}
        assert "access-control-allow-origin" not in (await client.get("/v1/models", headers=foreign)).headers
        assert (await client.options("/v1/chat/completions", headers=foreign)).status_code == 405
    assert allowed_hosts("0.0.0.0", []) == frozenset(), "a service for other machines has any name"
    assert "proxy.example" in allowed_hosts("0.0.0.0", ["proxy.example"])


async def test_every_reply_is_safe_to_show(keys):
    async with served(options(PLAIN), keys=keys) as running, running.client() as client:
        for path in ("/", "/assets/service.js", "/v1/models", "/healthz", "/nothing"):
            headers = (await client.get(path)).headers
            assert "default-src 'none'" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff" and "server" not in headers


async def test_metrics_count_by_role_and_stage():
    async with served() as running, running.client() as client:
        ledger = (await running.ask()).json()["corag"]["usage"]
        lines = (await client.get("/metrics")).text.splitlines()
        prompt = float(ledger["final"]["prompt"])
        assert f'corag_tokens_total{{kind="prompt",role="final"}} {prompt}' in lines
        assert 'corag_questions_total{outcome="answered",preset="corag"} 1.0' in lines
        assert any(line.startswith('corag_seconds_count{stage="search"}') for line in lines)
        assert 'corag_requests_total{route="/v1/chat/completions",status="200"} 1.0' in lines
        assert "corag_ready 1.0" in lines and "corag_in_flight 0.0" in lines


async def test_questions_are_logged_only_if_asked_for():
    async with served() as running:
        await running.ask("Who is secretive?")
        assert "secretive" not in json.dumps(running.log)
    async with served(options(log_questions=True)) as running:
        await running.ask("Who is secretive?")
        assert running.logged("answered")[0]["question"] == "Who is secretive?"


async def test_what_was_served_is_a_run_that_outlives_a_restart(tmp_path, capsys):
    given = options(out=str(tmp_path))
    ids = []
    for number in range(3):
        async with served(given) as running:
            ids.append((await running.ask(f"Who is the mayor of Karlen {number}?")).json()["corag"]["id"])
    (folder,) = tmp_path.glob("corag-*")
    assert [row.question.id for row in read_rows(folder).values()] == ids
    run, report = str(folder), str(tmp_path / "report.html")
    for words in (["table", run], ["table", run, "--ledger"], ["table", run, "--report", report]):
        assert await asyncio.to_thread(main, words) == 0
    assert (tmp_path / "report.html").stat().st_size > 10_000
    assert "3" in capsys.readouterr().out


async def test_other_settings_go_on_in_a_folder_of_their_own(tmp_path):
    for budget, fingerprint in ((0, "one"), (5_000, "one"), (5_000, "other"), (0, "one")):
        retriever = WordRetriever(PASSAGES)
        retriever.fingerprint = fingerprint
        given = options(out=str(tmp_path), budget=budget)
        async with served(given, retriever=retriever) as running:
            assert (await running.ask()).status_code == 200
    rows = [len(read_rows(folder)) for folder in tmp_path.glob("corag-*")]
    assert sorted(rows) == [1, 1, 2], "the same settings go on in the same folder"
    assert len(list(tmp_path.glob("plain-*"))) == 2, "what searches nothing does not depend on the index"


async def test_the_end_waits_for_answers_and_refuses_new_ones():
    reached = asyncio.Event()

    async def pause(request):
        reached.set()
        await asyncio.sleep(0.3)

    async with served(options(PLAIN), pause=pause, reply=lambda request: "yes") as running:
        asking = asyncio.create_task(running.ask(model="plain"))
        await reached.wait()
        running.generator.failed = True  # an engine that has ended ends the service, after its last answer
        async with running.client() as client:
            assert (await client.get("/readyz")).status_code == 503
        assert (await asking).status_code == 200
        await until(lambda: _refuses(running.url), 3)


async def test_a_stream_that_outlasts_the_end_is_closed_with_an_error(capsys):
    reached = asyncio.Event()

    async def pause(request):
        reached.set()
        await asyncio.Event().wait()

    async with served(options(PLAIN, limits=Limits(shutdown_s=1)), pause=pause) as running:
        asking = asyncio.create_task(running.ask(model="plain", stream=True))
        await reached.wait()
    *_, last, done = (await asyncio.wait_for(asking, 60)).text.split("\n\n")[:-1]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "shutting_down"
    assert done == "data: [DONE]" and "ASGI" not in capsys.readouterr().err


def _refuses(url):
    host, port = url.removeprefix("http://").split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) != 0


async def test_a_servers_replies_are_forgotten_once_nobody_waits():
    """Another model may be loaded behind the address, which only a new request can show."""
    texts = iter(["old", "new", "newer"])
    remote = ModelConfig(backend="openai", name="m", urls=("http://127.0.0.1:9",))
    inner = ScriptedGenerator(lambda request: next(texts))
    async with served(options(PLAIN, model=remote), generator=CachedGenerator(inner)) as running:
        for text in ("old", "new"):
            assert (await running.ask(model="plain")).json()["choices"][0]["message"]["content"] == text
    async with served(options(PLAIN), generator=CachedGenerator(inner)) as running:
        for _ in range(2):  # nothing can take the place of a model in this process
            assert (await running.ask(model="plain")).json()["choices"][0]["message"]["content"] == "newer"


def test_presets_may_not_change_what_they_share():
    with raises_message(ConfigError):
        read_presets(AnswersOptions(presets='{"a": {"method": "corag", "model.name": "x"}}'))
    with raises_message(ConfigError):
        read_presets(AnswersOptions(presets="none.yaml"))
    found = read_presets(AnswersOptions(method=["corag", "one_step"]))
    assert list(found) == ["corag", "one_step"]


def test_a_taken_port_is_told_before_an_engine_is_opened(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = ["serve", "answers", "--method", "closed_book", "--port", str(taken.getsockname()[1])]
        assert main(command) == 2
    assert "Choose another host or port" in capsys.readouterr().err


async def test_keys_are_read_again_when_their_file_changes_and_at_a_signal(tmp_path, keys, monkeypatch):
    file = tmp_path / "keys.txt"
    async with served(options(PLAIN), reply=lambda request: "yes", keys=keys) as running:

        async def statuses():
            asked = []
            for _, key in (*KEYS, ("gamma", "0123456789abcdef-gamma")):
                running.headers = {"authorization": f"Bearer {key}"}
                asked.append((await running.ask(model="plain")).status_code)
            return asked

        assert await statuses() == [200, 200, 401]
        file.write_text("alpha 0123456789abcdef-alpha\ngamma 0123456789abcdef-gamma\n")
        assert await statuses() == [200, 401, 200], "beta is let in no more, and nothing was restarted"
        file.write_text("short\n")
        assert await statuses() == [200, 401, 200], "a mistake locks nobody out"
    monkeypatch.setattr("corag.service.keys._state", lambda path: None)  # a change that none can see
    file.write_text("gamma 0123456789abcdef-gamma\n")
    with listening_to_signals(SimpleNamespace(handle_exit=None), keys):
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: keys.caller("Bearer 0123456789abcdef-alpha") is None)
        assert keys.caller("Bearer 0123456789abcdef-gamma") == "gamma"


async def test_answers_are_kept_for_so_many_days(tmp_path, monkeypatch):
    kept = options(PLAIN, out=str(tmp_path), keep_days=2)
    monkeypatch.setattr(records, "today", lambda: "2026-11-27")
    (tmp_path / "notes-2026-01-01").mkdir()
    async with served(kept, reply=lambda request: "yes") as running:
        for day in ("27", "28", "29", "30"):
            monkeypatch.setattr(records, "today", lambda day=day: f"2026-11-{day}")
            assert (await running.ask(model="plain")).status_code == 200
        assert running.logged("not_recorded") == []
    days = sorted(folder.name.removeprefix("plain-")[9:] for folder in tmp_path.glob("plain-*"))
    assert days == ["2026-11-28", "2026-11-29", "2026-11-30"]
    assert [len(read_rows(folder)) for folder in tmp_path.glob("plain-*")] == [1, 1, 1]
    assert (tmp_path / "notes-2026-01-01").exists(), "what is not ours stays"


async def test_requests_have_ids_and_failed_ones_are_logged_with_their_code():
    async with served(options(PLAIN), reply=lambda request: "yes") as running, running.client() as client:
        running.headers = {"x-request-id": "trace-7"}
        assert (await running.ask(model="plain")).headers["x-request-id"] == "trace-7"
        assert running.logged("answered")[0]["request"] == "trace-7"
        refused = await running.ask(model="none")
        assert (refused.status_code, refused.headers["x-request-id"]) == (404, "trace-7")
        await client.get("/v1/nothing", headers={"x-request-id": "not an id"})
        await client.get("/v1/nothing", headers={"host": "evil.example"})
        *_, first, second, third = running.logged("request")
        assert (first["request"], first["code"], first["status"]) == ("trace-7", "model_not_found", 404)
        assert second["code"] == "not_found" and re.fullmatch("[0-9a-f]{16}", second["request"])
        assert third["code"] == "unknown_host"


async def test_bodies_in_gzip_are_read_and_other_encodings_are_refused():
    given = options(PLAIN, limits=Limits(body_kb=10))
    body = json.dumps({"model": "plain", "messages": [{"role": "user", "content": "Is it?"}]}).encode()
    async with served(given, reply=lambda request: "yes") as running, running.client() as client:

        async def status(content, encoding):
            headers = {"content-type": "application/json", "content-encoding": encoding}
            return (await client.post("/v1/chat/completions", content=content, headers=headers)).status_code

        assert await status(gzip.compress(body), "gzip") == 200
        assert await status(gzip.compress(body + b" " * 50_000_000), "gzip") == 413, "after unpacking"
        assert await status(body, "gzip") == await status(gzip.compress(body)[:20], "gzip") == 400
        assert await status(body, "identity") == 200
        assert await status(body, "br") == 415
