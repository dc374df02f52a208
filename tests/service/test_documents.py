"""Answers from documents: they are streamed as they are written, cite passages by number, and are checked."""

import asyncio
import json
import re
from dataclasses import replace

import pytest
from mcp import Client

from corag.core.citations import REFUSAL
from corag.core.runs.folder import read_rows
from corag.core.types import Passage
from corag.service.citations import without_sources
from corag.service.options import AnswersOptions, read_presets
from tests.fakes import ScriptedGenerator
from tests.service.serving import corag_preset, options, replies, served
from tests.service.test_chat import client_of

LEAVE = Passage("leave", "Leave", "Staff have thirty days of leave. It is booked with HR.", "staff.pdf", 3)
SICK = Passage("sick", "Sick days", "A doctor's note is due on day 3 of leave.", "staff.pdf", 7)
RIGHT = 'Staff have "thirty days of leave" [1].'
WRONG = 'It is "forty days" [2].'
QUESTION = "How many days of leave do staff have?"
PRESETS = {"step": {"method": "one_step"}, "ircot": {"method": "ircot", "ircot.max_steps": 1}}


class Typist(ScriptedGenerator):
    """Writes a reply word by word, each once it is let to."""

    def __init__(self, reply, hurried=False):
        super().__init__(reply)
        self.next_word = asyncio.Semaphore(10**6 if hurried else 0)

    async def generate(self, request):
        if request.watch is None:
            return await super().generate(request)
        words = str(self._reply(request)).split(" ")
        for number in range(1, len(words) + 1):
            await self.next_word.acquire()
            text = " ".join(words[:number])
            if any(stop in text for stop in request.sampling.stop):
                break
            request.watch(text)
        await self.next_word.acquire()
        return await super().generate(replace(request, watch=None))


def reader(answer):
    """Reply with an answer to the final prompt, which wants citations."""
    return lambda request: answer if "such as [2]" in request.prompt.text else replies(request)


def from_documents(presets=None, **more):
    return options(presets or PRESETS, prompts="documents", **more)


async def chunks_of(running, **more):
    text = (await running.ask(QUESTION, **{"model": "step", "stream": True, **more})).text
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


def content_of(chunks):
    return [
        delta for c in chunks for choice in c.get("choices", ()) if (delta := choice["delta"].get("content"))
    ]


@pytest.mark.parametrize("preset", ["step", "ircot", "corag"])
async def test_the_answer_is_seen_word_by_word_while_the_model_still_writes(preset, tmp_path):
    answer = f"{RIGHT} A note is due on day 3 [2]."
    model = Typist(reader(answer))
    presets = PRESETS | {"corag": {"method": "corag", "corag.max_hops": 1}}
    given = from_documents(presets, out=str(tmp_path))
    async with (
        served(given, generator=model, passages=[LEAVE, SICK]) as running,
        client_of(running) as client,
    ):
        question = [{"role": "user", "content": QUESTION}]
        model.next_word.release()
        stream = await client.chat.completions.create(model=preset, messages=question, stream=True)
        words = []
        async for chunk in stream:
            if content := chunk.choices[0].delta.content:
                words.append(content)
                assert len(words) > 1 or content == "Staff", "nothing else was written yet"
                model.next_word.release()
                if len(words) == len(answer.split()):
                    model.next_word.release()
            reasoning = (chunk.choices[0].delta.model_extra or {}).get("reasoning_content", "")
            assert answer not in reasoning, "what was shown as the answer is not shown as a thought, too"
        assert len(words) == len(answer.split()) and "".join(words) == answer
    (folder,) = tmp_path.glob(f"{preset}-*")
    (row,) = read_rows(folder).values()
    assert row.text == answer


async def test_an_answer_that_is_chosen_at_the_end_is_streamed_whole():
    best = {"corag.strategy": "best_of_n", "corag.chains": 3, "corag.rank_by": "vote", "corag.max_hops": 1}
    presets = {"step": {"method": "corag", **best}}
    model = Typist(reader(RIGHT), hurried=True)
    async with served(from_documents(presets), generator=model, passages=[LEAVE, SICK]) as running:
        assert content_of(await chunks_of(running)) == [RIGHT]
    async with served(
        options(PRESETS), reply=lambda request: "So the answer is: 30 days", passages=[LEAVE]
    ) as running:
        assert content_of(await chunks_of(running)) == ["30 days"], "it is taken out of a reply"


async def test_a_stop_string_is_not_shown_by_its_beginning():
    model = Typist(reader("Ask HR first , please"), hurried=True)
    async with served(from_documents(), generator=model, passages=[LEAVE]) as running:
        assert content_of(await chunks_of(running, stop=["first , p"])) == ["Ask", " HR"]


async def test_a_reply_that_was_begun_anew_and_otherwise_ends_in_an_error():
    class Lost(ScriptedGenerator):
        async def generate(self, request):
            if request.watch is not None:
                request.watch("Forty")
                request.watch("Thirty")
                request.watch(self.again)
            return await super().generate(replace(request, watch=None))

    for again, seen in (("Thirty days [1].", []), ("Forty days [1].", ["Forty", " days [1]."])):
        model = Lost(reader(again))
        model.again = again
        async with served(from_documents(), generator=model, passages=[LEAVE]) as running:
            chunks = await chunks_of(running)
            assert content_of(chunks) == (seen or ["Forty"])
            errors = [chunk["error"]["code"] for chunk in chunks if "error" in chunk]
            assert errors == ([] if seen else ["answer_lost"])


async def test_citations_are_checked_and_sources_have_their_numbers(tmp_path):
    given = from_documents(out=str(tmp_path), sources=3)
    answer = f"{RIGHT} {WRONG} Ask your manager."
    async with served(given, reply=reader(answer), passages=[LEAVE, SICK]) as running:
        body = (await running.ask(QUESTION, model="step")).json()
        extension, prompt = body["corag"], running.generator.prompts[-1]
        shown = re.findall(r"^\[(\d)\] (.*)$", prompt, re.MULTILINE)
        assert [(str(each["number"]), each["title"]) for each in extension["sources"]] == shown
        faults = [(claim["numbers"], bool(claim["fault"])) for claim in extension["citations"]]
        assert faults == [([1], False), ([2], True), ([], True)]
        text = body["choices"][0]["message"]["content"]
        assert text.startswith(
            f"{answer}\n\nSources:\n- [1] Leave (staff.pdf, page 3)\n- [2] Sick days (staff.pdf"
        )
        assert "To check:\n- It is" in text and "- Ask your manager. (it cites no passage)" in text
        assert without_sources(text) == answer, "a client sends it back as an earlier turn"
        async with Client(f"{running.url}/mcp") as agent:
            found = (
                await agent.call_tool("ask", {"question": QUESTION, "preset": "step"})
            ).structured_content
        assert [source["number"] for source in found["sources"]] == [1, 2] and len(found["doubts"]) == 2
    (folder,) = tmp_path.glob("step-*")
    row = next(iter(read_rows(folder).values()))
    assert [bool(claim.fault) for claim in row.citations] == [False, True, True]


async def test_a_refusal_cites_nothing_and_has_no_list():
    async with served(from_documents(sources=3), reply=reader(REFUSAL), passages=[LEAVE]) as running:
        body = (await running.ask(QUESTION, model="step")).json()
        assert body["choices"][0]["message"]["content"] == REFUSAL
        assert body["corag"]["citations"] == [] and "number" not in body["corag"]["sources"][0]


@pytest.mark.parametrize("preset", [*PRESETS, "corag"])
async def test_no_prompt_says_that_a_document_is_wikipedia(preset):
    given = from_documents(PRESETS | {"corag": {"method": "corag"}})
    async with served(given, reply=reader(RIGHT), passages=[LEAVE]) as running:
        assert (await running.ask(QUESTION, model=preset)).status_code == 200
        assert any(LEAVE.text in prompt for prompt in running.generator.prompts)
        assert "Wikipedia" not in "".join(running.generator.prompts)


def test_a_preset_keeps_what_it_states():
    own = {"step": {"method": "one_step", "one_step.qa_prompt": "chat_cot"}, "react": {"method": "react"}}
    corag = {"small": {"method": "corag", "corag.preset": "small_model"}, "own": corag_preset()}
    presets = read_presets(from_documents(own | corag))
    assert presets["step"].options.qa_prompt == "chat_cot" and not presets["step"].options.cites
    assert presets["small"].options.cites and presets["small"].options.max_answer_tokens == 400
    assert not presets["own"].options.cites and not presets["react"].options.cites


def test_prompts_for_documents_are_the_default_for_an_index_of_documents_alone(tmp_path):
    from retrieval.config import IndexConfig
    from retrieval.index.build import build_index
    from tests.retrieval.conftest import ignore

    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/staff.md").write_text("# Leave\nStaff have thirty days.")
    (tmp_path / "corpus.jsonl").write_text('{"id": "1", "title": "Leave", "text": "Thirty days."}\n')
    docs, corpus = str(tmp_path / "a"), str(tmp_path / "b")
    build_index(IndexConfig([str(tmp_path / "docs")], docs), ignore)
    build_index(IndexConfig([str(tmp_path / "corpus.jsonl")], corpus), ignore)

    def cites(*indexes, **more):
        given = {"method": ["one_step"], "retriever.index": list(indexes), **more}
        (preset,) = read_presets(AnswersOptions(**given)).values()
        return preset.options.cites

    assert cites(docs) and not cites(corpus) and not cites(docs, corpus) and not cites()
    assert not cites(docs, prompts="short") and cites(corpus, prompts="documents")
    assert not cites(docs, **{"model.adapter": "one_step"}), "it was trained for another prompt"
