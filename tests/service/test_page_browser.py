"""The page in headless Chromium: asks, draws while growing, opens sources, cancels, loses its connection.

With CORAG_SCREENSHOTS=FOLDER it leaves pictures there.
"""

import asyncio
import os
import socket
import threading
import time
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.responses import StreamingResponse
from starlette.routing import Route

from corag.core.types import Passage
from corag.service.keys import Keys as ServiceKeys
from tests.eval.browser import CHROMIUM, DRIVER, Browser, Keys, NoAlertPresentException
from tests.fakes import kind
from tests.service.serving import PASSAGES, corag_preset, options, replies, served
from tests.service.test_documents import LEAVE, RIGHT, SICK, WRONG, Typist, from_documents, reader

pytestmark = pytest.mark.slow

QUESTION = "Who is the mayor of Karlen?"
EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if not CHROMIUM.exists() or not DRIVER.exists():
        pytest.skip(f"no browser: '{CHROMIUM}' and '{DRIVER}' are needed")
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.driver.quit()


class Held:
    """Lets the model go on, or holds it up at its second hop."""

    def __init__(self):
        self.free = threading.Event()
        self.free.set()
        self.evil = False

    async def pause(self, request):
        while not self.free.is_set() and "1. " in request.prompt.text:
            await asyncio.sleep(0.02)

    def reply(self, request):
        return EVIL if self.evil and kind(request) in ("NEXT", "FINAL", "ANSWER") else replies(request)


PRESETS = {
    "corag-greedy": corag_preset(max_hops=3),
    "corag-best-of-3": corag_preset(max_hops=2, strategy="best_of_n", chains=3, rank_by="vote"),
    "one-step": {"method": "one_step"},
}


@contextmanager
def in_thread(held, **more):
    """A service in a thread of its own, and a proxy below whose path it lies, too."""
    up, end = threading.Event(), threading.Event()
    known = {}

    async def serve():
        page = Passage("karlen", PASSAGES[0].title, PASSAGES[0].text, "towns.pdf", 3)
        passages = [page, *PASSAGES[1:], Passage("evil", EVIL, EVIL)]
        settings = {"pause": held.pause, "reply": held.reply, "passages": passages, **more}
        given = settings.pop("given", options(PRESETS))
        async with served(given, **settings) as running, below_path(running.url) as running.proxy:
            known["running"] = running
            up.set()
            while not end.is_set():
                await asyncio.sleep(0.05)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert up.wait(20)
    yield known["running"]
    end.set()
    thread.join(20)


@asynccontextmanager
async def below_path(target):
    """Yield the address of a reverse proxy that passes what is below /corag/ on, pieces as they come."""
    client = httpx.AsyncClient(base_url=target, timeout=60)

    async def forward(request):
        path = request.url.path.removeprefix("/corag")
        headers = {name: value for name, value in request.headers.items() if name != "host"}
        body = await request.body()
        sent = client.build_request(request.method, path, headers=headers, content=body)
        reply = await client.send(sent, stream=True)
        kept = {name: value for name, value in reply.headers.items() if name != "transfer-encoding"}
        return StreamingResponse(
            reply.aiter_raw(), reply.status_code, kept, background=BackgroundTask(reply.aclose)
        )

    app = Starlette(routes=[Route("/corag/{path:path}", forward, methods=["GET", "POST"])])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/corag/"
        server.should_exit = True
        await serving
    await client.aclose()


@pytest.fixture(scope="module")
def service():
    """A service, and what holds its model up."""
    held = Held()
    with in_thread(held) as running:
        yield running, held


@pytest.fixture
def page(browser, service):
    running, held = service
    held.free.set()
    held.evil = False
    browser.width(1280, 900)
    browser.driver.get("about:blank")
    browser.driver.get(running.url)
    browser.run("sessionStorage.clear()")
    browser.until("return document.querySelectorAll('#preset option').length === 3")
    browser.errors()
    yield browser
    held.free.set()


def ask(page, question=QUESTION, preset="corag-greedy"):
    page.choose("preset", preset)
    box = page.find("#question")
    box.clear()
    box.send_keys(question, Keys.ENTER)


def picture(page, name):
    if folder := os.environ.get("CORAG_SCREENSHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        time.sleep(0.3)
        page.driver.save_screenshot(str(Path(folder) / f"service-{name}.png"))


def states(page):
    return page.texts(".lane-head .tag")


def test_a_chain_draws_itself_while_it_grows(page, service):
    _, held = service
    held.free.clear()
    ask(page, preset="corag-best-of-3")
    page.until("return document.querySelectorAll('.lane .search').length >= 1")
    assert states(page) == ["thinking"], "hops are drawn before there is an answer"
    assert "tokens" in page.texts(".cost")[0]
    picture(page, "growing")
    held.free.set()
    page.until("return document.querySelectorAll('.answer:not([hidden])').length === 1")
    assert states(page) == ["answered"] and page.texts(".answer") == ["Ada Orm"]
    assert "chain 2" in page.text("article[aria-label='corag-best-of-3'] .chain")
    assert "Karlen" in page.texts(".sources")[0]
    searches = page.texts(".chain .chain .search, .chain li li .search")
    assert searches and all("passages: " in each for each in searches)
    assert not any("Where was" in each for each in searches), "the sub-query stands just above it"
    page.run("document.querySelector('.search details').open = true")
    page.run("document.querySelector('.hits details').open = true")
    page.until(
        "return document.querySelector('.hits .passage-text').textContent.includes('Karlen is a town')"
    )
    picture(page, "answered")
    page.width(360, 780, mobile=True)
    wide = """return [...document.querySelectorAll('body *')].filter((each) =>
        each.getBoundingClientRect().right > 361).map((each) => each.tagName + '.' + each.className)"""
    assert page.run(wide) == [], "nothing is wider than a phone"
    picture(page, "phone")
    assert page.errors() == []


def documents_page(page, answer, *, hurried=True):
    """Open the page below a path, of a service that answers from documents; return it and the model."""
    model = Typist(reader(answer), hurried)
    return model, in_thread(Held(), given=from_documents(), generator=model, passages=[LEAVE, SICK])


def test_below_a_path_an_answer_is_seen_while_it_is_written(page):
    model, serving = documents_page(page, RIGHT, hurried=False)
    with serving as running:
        page.driver.get(running.proxy)
        page.until("return document.querySelectorAll('#preset option').length === 2")
        ask(page, "How many days of leave do staff have?", "step")
        seen = []
        for _ in RIGHT.split():
            running.loop.call_soon_threadsafe(model.next_word.release)
            seen.append(
                page.until(
                    "const text = document.querySelector('.answer')?.textContent ?? ''; "
                    "return text.length > arguments[0] && text",
                    len(seen[-1]) if seen else 0,
                )
            )
            assert states(page) == ["writing"]
        assert seen == [" ".join(RIGHT.split()[:end]) for end in range(1, len(RIGHT.split()) + 1)]
        picture(page, "writing")
        running.loop.call_soon_threadsafe(model.next_word.release)
        page.until("return document.querySelector('.lane-head .tag').textContent === 'answered'")
        assert page.text(".answer").strip() == RIGHT
        assert page.errors() == []


def test_citations_open_their_sources_and_what_they_do_not_bear_out_is_marked(page):
    _, serving = documents_page(page, f"{RIGHT} {WRONG}")
    with serving as running:
        page.driver.get(running.proxy)
        page.until("return document.querySelectorAll('#preset option').length === 2")
        ask(page, "How many days of leave do staff have?", "step")
        page.until("return document.querySelector('.lane-head .tag').textContent === 'answered'")
        assert page.texts(".answer mark") == [WRONG] and RIGHT in page.text(".answer")
        assert 'does not have the words "forty days"' in page.text(".answer .fault")
        assert page.texts(".sources summary") == [
            "[1] Leave staff.pdf, page 3",
            "[2] Sick days staff.pdf, page 7",
        ]
        page.run("document.querySelector('.answer a').click()")
        page.until("return document.querySelector('#source-1').innerText.includes('thirty days of leave')")
        assert page.serious() == []
        picture(page, "citations")
        assert page.errors() == []


def test_a_form_asks_for_a_key(page, tmp_path):
    file = tmp_path / "keys.txt"
    file.write_text("alice 0123456789abcdef\n")
    with in_thread(Held(), keys=ServiceKeys(str(file))) as running:
        page.driver.get(running.url)
        page.until("return document.querySelector('#status').textContent === 'This service wants a key.'")
        assert page.run("return document.querySelector('#ask').hidden") and page.focused() == "key"
        page.press("wrong", Keys.ENTER)
        page.until("return document.querySelector('#status').textContent.includes('not known')")
        page.find("#key").clear()
        page.find("#key").send_keys("0123456789abcdef", Keys.ENTER)
        page.until("return !document.querySelector('#ask').hidden")
        ask(page)
        page.until("return document.querySelector('.answer')?.textContent === 'Ada Orm'")


def test_a_lost_connection_is_told_and_asking_again_works(page, service):
    _, held = service
    held.free.clear()
    ask(page)
    page.until("return document.querySelectorAll('.lane .search').length >= 1")
    page.driver.execute_cdp_cmd("Network.enable", {})
    condition = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    page.driver.execute_cdp_cmd("Network.emulateNetworkConditions", condition)
    ask_again = "return document.querySelector('.answer')?.textContent.includes('connection was lost')"
    try:
        page.press(Keys.ESCAPE)
        page.until("return document.querySelector('#send').disabled === false")
        ask(page)
        page.until(ask_again)
    finally:
        online = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        page.driver.execute_cdp_cmd("Network.emulateNetworkConditions", online)
    held.free.set()
    ask(page)
    page.until("return document.querySelector('.lane-head .tag').textContent === 'answered'")
    page.errors()


def test_nothing_that_passages_or_models_say_runs(page, service):
    _, held = service
    held.evil = True
    ask(page, EVIL)
    page.until("return document.querySelector('.lane-head .tag').textContent === 'answered'")
    page.run("document.querySelectorAll('.search details').forEach((each) => { each.open = true; })")
    time.sleep(0.2)
    assert page.text(".answer") == EVIL
    assert page.run("return document.querySelectorAll('#answers script, #answers img').length") == 0
    with pytest.raises(NoAlertPresentException):
        page.driver.switch_to.alert.accept()
    loaded = "return performance.getEntriesByType('resource').map((each) => new URL(each.name).origin)"
    assert set(page.run(loaded)) == {page.run("return location.origin")}, "nothing comes from elsewhere"
