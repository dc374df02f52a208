"""Answers from documents: sentences that cite passages by their numbers in the final prompt."""

from __future__ import annotations

import re
from functools import partial

import pytest

from corag.baselines.one_step import OneStepConfig, one_step
from corag.chains.config import CoRAGConfig
from corag.chains.method import corag
from corag.core.citations import REFUSAL, check_citations
from corag.core.runner import answer_question
from corag.core.runs.rows import Row
from corag.core.tools import Tools
from corag.core.types import Passage
from ircot.method import IRCoTConfig, ircot
from tests.fakes import ScriptedGenerator, WindowedGenerator, WordRetriever, words
from tests.story import QUESTION, WORLD

LEAVE = Passage("leave", "Leave", "Staff have thirty days of leave. It is booked with HR.")
SICK = Passage("sick", "Sick days", "A doctor's note is “due on day 3”.")


@pytest.mark.parametrize(
    ("answer", "faults"),
    [
        ("Staff have thirty days [1].", [""]),
        ("Staff have thirty days. [1] A note is due [2].", ["", ""]),
        ('They have "Thirty  days of leave" [1], and a note is "due on day 3" [2].', [""]),
        ('They have "sixty days" [1].', ['the passage that it cites does not have the words "sixty days"']),
        (
            'It is "booked with HR" [2].',
            ['the passage that it cites does not have the words "booked with HR"'],
        ),
        ('It is "booked with HR" [1, 2].', [""]),
        ("Staff have thirty days.", ["it cites no passage"]),
        ("Staff have thirty days [3].", ["it cites a passage that was not shown"]),
        ("Staff have thirty days [0].", ["it cites a passage that was not shown"]),
        ("Thirty days [1]. Ask first.\nA note is due [2].", ["", "it cites no passage", ""]),
        ('It says "Staff have thirty days of leave." [1] A note is due [2].', ["", ""]),
        ('It says "Staff have thirty days of leave." A note is due [2].', ["it cites no passage", ""]),
        ('A pipe is 5" wide [2]. Ask first. Another is 6" wide [2].', ["", "it cites no passage", ""]),
        (
            'It says "Staff have thirty days of leave. Ever" [1].',
            ['the passage that it cites does not have the words "Staff have thirty days of leave. Ever"'],
        ),
        (REFUSAL, []),
        ("  THE DOCUMENTS DO NOT ANSWER THIS QUESTION.", []),
        (f"{REFUSAL} It is thirty [1].", ["it cites no passage", ""]),
        ("", []),
    ],
)
def test_each_sentence_is_checked_against_the_passages_that_it_cites(answer: str, faults: list[str]) -> None:
    assert [claim.fault for claim in check_citations(answer, [LEAVE, SICK])] == faults


METHODS = {
    "one_step": (one_step, OneStepConfig(k=3), []),
    "ircot": (
        ircot,
        IRCoTConfig(k_per_step=2, max_steps=2),
        ["Mara Velden wrote it.", "So the answer is: x."],
    ),
    "corag": (
        corag,
        CoRAGConfig(max_hops=2, passages_per_hop=1, search_depth=3, context_passages=3),
        ["Who wrote The Glass Orchard?", "Mara Velden", "Where was Mara Velden born?", "Tarn Hollow"],
    ),
}


@pytest.mark.parametrize(
    ("quote", "stands"),
    [
        ("15 days", True), ("5 days", False), ("1,250 euros", True), ("250 euros", False), ("1,25", False),
        ("lawful", False), ("湖南", True),
    ],
)  # fmt: skip
def test_a_quote_is_of_whole_words_and_numbers(quote: str, stands: bool) -> None:
    passage = Passage(
        "1", "Rules", "Within 15 days 1,250 euros are due. Smoking is unlawful. 长沙是湖南省的省会。"
    )
    (claim,) = check_citations(f'It is "{quote}" [1].', [passage])
    assert (claim.fault == "") == stands


@pytest.mark.parametrize("name", METHODS)
async def test_a_number_in_the_final_prompt_is_the_place_among_the_passages_shown(name: str) -> None:
    method, config, replies = METHODS[name]
    reply = "The river is the Issel [2].\nIt runs to the sea, as [1] says."
    grown: list[str] = []
    generator = ScriptedGenerator([*replies, reply])
    tools = Tools(QUESTION, generator, WordRetriever(WORLD), watch_answer=grown.append)
    answer = await method(QUESTION, tools, config.for_documents())
    assert answer.text == reply, "the whole reply is the answer"
    assert grown[-1] == reply and "The river" in grown and len(grown) == len(reply.split())
    shown = re.findall(r"^\[(\d+)\] .*\n(.*)$", generator.prompts[-1], re.MULTILINE)
    texts = {each.id: each.text for each in WORLD}
    assert len(shown) > 1
    assert shown == [(str(i), texts[key]) for i, key in enumerate(answer.shown_ids, 1)]


def test_what_was_chosen_stays_as_it_is() -> None:
    assert OneStepConfig(qa_prompt="chat_cot").for_documents().qa_prompt == "chat_cot"
    assert OneStepConfig(max_answer_tokens=30).for_documents().max_answer_tokens == 30
    assert OneStepConfig(demonstrations="default").for_documents() == OneStepConfig(demonstrations="default")


@pytest.mark.parametrize(
    ("name", "short_of"), [("one_step", "budget"), ("one_step", "window"), ("ircot", "window")]
)
async def test_a_number_of_a_passage_that_was_left_out_names_none(name: str, short_of: str) -> None:
    method, config, replies = METHODS[name]
    replies = [*replies, "It is the Issel [1]. It runs to the sea [3]."]

    async def answer(generator: ScriptedGenerator, budget: int = 0) -> Row:
        tools = Tools(QUESTION, generator, WordRetriever(WORLD), budget=budget)
        method_of_question = partial(method, config=config.for_documents())
        return await answer_question(QUESTION, method_of_question, tools, cites=True)

    row = await answer(generator := ScriptedGenerator(replies))
    assert row.answer is not None and len(row.answer.shown_ids) == len(row.answer.passage_ids) == 3
    prompt, most = generator.requests[-1].prompt, generator.requests[-1].sampling.max_tokens
    if short_of == "budget":
        row = await answer(ScriptedGenerator(replies), Tools(QUESTION, generator).cost(prompt, most) - 1)
    else:
        row = await answer(WindowedGenerator(replies, words(prompt.text) + most - 1))
    assert row.answer is not None and row.answer.shown_ids == row.answer.passage_ids[:2]
    assert row.citations[-1].fault == "it cites a passage that was not shown"
