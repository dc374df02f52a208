"""Documents that change under a service: it goes over to the new index, and each answer is from one index."""

import asyncio
import shutil
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from corag.core.runs.folder import read_rows
from corag.core.runs.manifest import Manifest
from corag.core.tools import SearchStep
from corag.generation.config import ModelConfig
from corag.service import following
from corag.service.http.app import create_app
from corag.service.http.gate import AccessRules
from corag.service.keys import Keys
from corag.service.options import AnswersOptions
from corag.service.serve import open_service
from eval.experiment import extensions  # noqa: F401 - methods' BM25 presets
from retrieval.config import IndexConfig, RetrieverConfig
from retrieval.index.build import build_index
from retrieval.search.pipeline import open_retriever
from tests.generation.test_openai_server import HOSTED, StandIn
from tests.retrieval.conftest import ignore
from tests.service.serving import until

pytestmark = pytest.mark.slow

BASE = tuple(f"base-{number}.txt" for number in range(6))


@pytest.fixture(autouse=True)
def looking_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "LOOK_EVERY_S", 0.1)


class Editions:
    """An index whose documents are replaced: each edition has a file of its own, and others that change.

    Attributes:
        by_fingerprint: the number of each edition by what its open index is identified by.
    """

    def __init__(self, folder: Path) -> None:
        self.docs, self.index = folder / "docs", folder / "index"
        self.docs.mkdir()
        self.by_fingerprint: dict[str, int] = {}

    async def build(self, number: int) -> None:
        """Build an edition in the place of the one that is there."""
        for name in BASE:
            (self.docs / name).write_text(f"The harvest of edition {number} in {name} was good.")
        for old in self.docs.glob("edition-*"):
            old.unlink()
        (self.docs / f"edition-{number}.txt").write_text(f"Zebras count the harvest of edition {number}.")
        await asyncio.to_thread(build_index, IndexConfig([str(self.docs)], str(self.index)), ignore)
        opened = await open_retriever(self.config)
        self.by_fingerprint[opened.fingerprint] = number
        await opened.close()

    @property
    def config(self) -> RetrieverConfig:
        return RetrieverConfig([str(self.index)])


@asynccontextmanager
async def reloading(editions: Editions, out: Path | str = "", **more):
    """Open a service over an index of editions and a scripted model server; yield it, its log, a client."""
    log: list[dict] = []
    with StandIn(HOSTED) as server:
        options = AnswersOptions(
            method=["one_step"],
            model=ModelConfig(backend="openai", urls=[server.url], retries=1),
            retriever=editions.config,
            out=str(out),
            **more,
        )
        async with open_service(
            options, lambda event, **told: log.append({"event": event, **told})
        ) as service:
            app = create_app(service, AccessRules(Keys()))
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://service", timeout=30
            ) as client:
                yield service, log, client


def events(log: list[dict], event: str) -> list[dict]:
    return [line for line in log if line["event"] == event]


async def ask(client: httpx.AsyncClient, number: int) -> httpx.Response:
    question = f"Do zebras count harvest {number} of the edition?"
    body = {"model": "one_step", "messages": [{"role": "user", "content": question}]}
    return await client.post("/v1/chat/completions", json=body)


async def test_under_load_no_question_fails_and_each_answer_is_from_the_index_that_its_row_names(tmp_path):
    editions, out = Editions(tmp_path), tmp_path / "runs"
    await editions.build(0)
    replies: list[httpx.Response] = []
    async with reloading(editions, out) as (_, log, client):
        stop = asyncio.Event()

        async def keep_asking(lane: int) -> None:
            number = 0
            while not stop.is_set():
                replies.append(await ask(client, 100_000 * lane + number))
                number += 1

        load = asyncio.gather(*(keep_asking(lane) for lane in range(6)))
        for number in range(1, 4):
            await editions.build(number)
            await until(lambda reached=number: len(events(log, "index_closed")) == reached, 30)
            answered = len(replies)
            await until(lambda reached=answered: len(replies) > reached + 12, 30)
        stop.set()
        await load
        state = (await client.get("/readyz")).json()
        assert state["status"] == "ready" and editions.by_fingerprint[state["index"]] == 3
    assert {reply.status_code for reply in replies} == {200}
    cited = {reply.json()["corag"]["id"]: reply.json()["corag"]["sources"] for reply in replies}
    rows = 0
    for folder in out.glob("one_step-*"):
        edition = editions.by_fingerprint[Manifest.read(folder).settings["retriever"]]
        files = {*BASE, f"edition-{edition}.txt"}
        for key, row in read_rows(folder).items():
            rows += 1
            assert {source["source"] for source in cited[key]} <= files
            hits = [hit for step in row.steps if isinstance(step, SearchStep) for hit in step.hits]
            assert f"edition-{edition}.txt" in {hit.passage.source for hit in hits} <= files
    assert rows == len(replies) and len(list(out.glob("one_step-*"))) == len(editions.by_fingerprint) == 4


async def test_a_question_ends_with_the_index_that_it_began_with(tmp_path):
    editions = Editions(tmp_path)
    await editions.build(0)
    async with reloading(editions) as (service, log, client):
        with service.index.in_use() as index:
            await editions.build(1)
            await until(lambda: bool(events(log, "index_taken")), 30)
            assert service.index is not index and not events(log, "index_closed")
            (hit,) = await index.retriever.search("zebras", 1)
            assert hit.passage.source == "edition-0.txt"
        await until(lambda: bool(events(log, "index_closed")), 30)
        (source, *_) = (await ask(client, 0)).json()["corag"]["sources"]
        assert source["source"] == "edition-1.txt"


async def test_an_index_that_cannot_be_opened_or_is_gone_leaves_the_old_one_in_use(tmp_path, monkeypatch):
    monkeypatch.setattr(following, "TRY_AGAIN_S", 0.2)
    editions = Editions(tmp_path)
    await editions.build(0)
    async with reloading(editions) as (_, log, client):
        copy = shutil.copytree(editions.index, tmp_path / "copy")
        shutil.rmtree(editions.index)
        await until(lambda: bool(events(log, "index_unusable")), 30)
        (copy / "passages.jsonl").write_text("torn")
        copy.rename(editions.index)
        await until(lambda: "passages.jsonl" in events(log, "index_unusable")[-1]["error"], 30)
        assert (await ask(client, 0)).status_code == 200
        shutil.rmtree(editions.index)
        await editions.build(1)
        await until(lambda: bool(events(log, "index_taken")), 30)


async def test_a_dense_index_is_taken_over_with_the_encoder_that_is_open(tmp_path):
    (tmp_path / "docs").mkdir()
    config = IndexConfig([str(tmp_path / "docs")], str(tmp_path / "dense"), kind="dense")
    encoders = []
    for place in ("Zanzibar", "Zambia"):
        (tmp_path / "docs/zebras.txt").write_text(f"Zebras live in {place}.")
        await asyncio.to_thread(build_index, config, ignore)
        encoders.append(await open_retriever(RetrieverConfig([config.out])))
    old, new = encoders
    one, other = [each.below[0].searcher.encoder for each in encoders]
    assert one is other, "memory for one of them is enough"
    hits = await asyncio.gather(*(each.search(f"zebras {n}", 1) for n in range(20) for each in encoders))
    assert {hit.passage.text for (hit,) in hits} == {f"Zebras live in {p}." for p in ("Zanzibar", "Zambia")}
    await old.close()
    assert (await new.search("zebras", 1))[0].passage.text == "Zebras live in Zambia."
    await new.close()
