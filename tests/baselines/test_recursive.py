"""Recursive RAG replayed by hand: each mode over two steps and more, its caps and stops, malformed replies,
empty retrieval.
"""

import pytest

from corag.baselines.recursive.config import RecursiveConfig
from corag.baselines.recursive.method import recursive
from corag.baselines.recursive.replies import find_references
from corag.core.tools import GenerateStep, SearchStep, Tools
from corag.core.types import Question
from tests.fakes import ScriptedGenerator, WordRetriever, passage
from tests.story import NOISE, QUESTION, WORLD

PUMPS = passage("Pumps", "Pumps move water. See also Valve manual.")
VALVES = passage("Valve manual", "Valves close pipes. For more information, see Seal catalogue; it is long.")
SEALS = passage(
    "Seal catalogue", "Seals are flat ([gasket notes](notes/gasket_(flat).md)). They refer to it."
)
GASKETS = passage("Gasket notes", "Gaskets are made of cork.")
LIBRARY = [GASKETS, SEALS, VALVES, PUMPS]  # of equal hits the earlier one wins, so that references lead on
LEAFLETS = "one two three four five six seven".split()
HOW = Question("q2", "Which pumps move water?", ("cork",))


async def replay(replies, *, question=QUESTION, retriever=None, budget=0, **options):
    generator = ScriptedGenerator(replies)
    tools = Tools(question, generator, retriever or WordRetriever(WORLD), budget=budget)
    answer = await recursive(question, tools, RecursiveConfig(**options))
    calls = [step for step in tools.steps if isinstance(step, GenerateStep)]
    assert tools.spent.total == sum(step.usage.total for step in calls), "the ledger is the sum of all calls"
    assert tools.spent.calls == len(calls) == len(generator.requests)
    assert len(answer.passage_ids) == len(set(answer.passage_ids))
    return answer, generator, tools


def queries(tools):
    return [step.query for step in tools.steps if isinstance(step, SearchStep)]


# Recursive: following references


async def follow(world=LIBRARY, **options):
    options = {"mode": "recursive", "k": 1, **options}
    return await replay(["cork"], question=HOW, retriever=WordRetriever(world), **options)


async def test_references_end_by_themselves_at_the_cap_of_documents_or_with_nothing_found():
    answer, _, tools = await follow(max_depth=9)
    assert (answer.steps, answer.stopped) == (4, "no_references") and queries(tools)[3] == "gasket notes"
    answer, _, tools = await follow(max_depth=9, max_documents=2)
    assert (answer.passage_ids, answer.stopped) == (("pumps", "valve manual"), "max_documents")
    assert len(queries(tools)) == 2, "nothing is searched for that could not be kept"
    answer, _, _ = await follow([])
    assert (answer.text, answer.passage_ids, answer.stopped) == ("cork", (), "no_references")


async def test_five_references_of_a_step_are_followed_at_the_same_time():
    hub = passage(
        "Pumps", "Which pumps move water? " + " ".join(f"See also leaflet {name}." for name in LEAFLETS)
    )
    _, _, tools = await follow([hub], max_depth=2)
    assert queries(tools) == [HOW.text, *(f"leaflet {name}" for name in LEAFLETS[:5])]
    assert [step.path for step in tools.steps[1:3]] == ["step 2/query 1", "step 2/query 2"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SEE ALSO: Mara Velden.", ["Mara Velden"]),
        ("It refers to the U.S. Army. It left.", ["the U.S. Army"]),
        ("Referring to St. Louis (Missouri), he sang.", ["St. Louis (Missouri), he sang"]),
        ("as described in Section 12. Then for details see\nAnnex B\nMore.", ["Section 12", "Annex B"]),
        ("For further information please read the annual report!", ["the annual report"]),
        ("For more information see also Tarn Hollow; it is old.", ["Tarn Hollow"]),
        ("See also [Mara](m.md) and [Tarn Hollow](t.md 'a town').", ["Mara", "Tarn Hollow"]),
        (
            "![a photograph](p.png) refer to it. See also Rye. He was referred to us. Oversee also nothing "
            "here.",
            [],
        ),
        ("See also Emma Woodhouse. See also Emma Woodhouse.", ["Emma Woodhouse"]),
    ],
)
def test_what_counts_as_a_reference(text, found):
    assert [reference for reference, _ in find_references(text)] == found


# Multi_hop and self_query: rounds of searching and judging

WHO = "ANSWERABLE: no\nMISSING: where the author was born\nNEXT_QUERY: Mara Velden is a writer born where"
TOWN = "ANSWERABLE: no\nMISSING: the river\nNEXT_QUERY: Tarn Hollow lies on which river"


async def test_multi_hop_searches_for_what_is_missing_until_the_cap():
    answer, generator, tools = await replay([WHO, TOWN, "Issel"], mode="multi_hop", k_per_step=1)
    assert queries(tools) == [
        QUESTION.text,
        "Mara Velden is a writer born where",
        "Tarn Hollow lies on which river",
    ]
    assert (answer.text, answer.steps, answer.stopped) == ("Issel", 3, "max_steps")
    assert answer.passage_ids == ("the glass orchard", "mara velden", "tarn hollow")
    assert [step.role for step in tools.steps if isinstance(step, GenerateStep)] == [
        "judge",
        "judge",
        "reader",
    ]
    assert "2. Mara Velden is a writer born where" in generator.prompts[1], "the searches so far are shown"
    assert generator.prompts[1].endswith(f"Question: {QUESTION.text}")


async def test_multi_hop_stops_early():
    answer, generator, _ = await replay([WHO, "ANSWERABLE: yes", "Issel"], mode="multi_hop", max_hops=9)
    assert (answer.steps, answer.stopped, len(generator.requests)) == (2, "sufficient", 3)
    answer, _, _ = await replay([WHO, WHO, "Issel"], mode="multi_hop", max_hops=9)
    assert (answer.steps, answer.stopped) == (2, "repeated_query")
    answer, generator, _ = await replay(["Issel"], mode="multi_hop", k_per_step=3, max_documents=3)
    assert (answer.steps, answer.stopped, len(generator.requests)) == (1, "max_documents", 1)


@pytest.mark.parametrize("mode", ["multi_hop", "self_query"])
async def test_a_judgement_that_cannot_be_read_ends_the_search_and_is_counted(mode):
    answer, _, _ = await replay(["The passages tell of a novel.", "Issel"], mode=mode)
    assert (answer.text, answer.stopped, answer.steps, answer.malformed) == ("Issel", "malformed", 1, 1)
    answer, _, _ = await replay(["", "Issel"], mode=mode)
    assert (answer.stopped, answer.malformed) == ("malformed", 1)


@pytest.mark.parametrize("mode", ["multi_hop", "self_query"])
async def test_the_model_may_search_on_when_nothing_was_found(mode):
    judged = "SUFFICIENT: no\nFOLLOW_UP: sand"
    replies = [judged if mode == "self_query" else "NEXT_QUERY: sand", "ANSWERABLE: yes", "unknown"]
    answer, _, tools = await replay(
        replies, question=Question("q", "Why?"), mode=mode, retriever=WordRetriever([NOISE])
    )
    assert (queries(tools), answer.passage_ids, answer.stopped) == (
        ["Why?", "sand"],
        ("glassware",),
        "sufficient",
    )


async def test_self_query_stops_early():
    answer, _, _ = await replay(["SUFFICIENT: yes\nGAPS: none", "Issel"], mode="self_query")
    assert (answer.text, answer.steps, answer.stopped) == ("Issel", 1, "sufficient")
    answer, _, _ = await replay(["SUFFICIENT: no\nGAPS: none", "Issel"], mode="self_query")
    assert (answer.steps, answer.stopped) == (1, "no_query")


# Auto


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("What is the relationship between A and B?", "multi_hop"),
        ("Compare A with B.", "multi_hop"),
        ("how DID Rainfall Affect wheat?", "multi_hop"),
        ("word " * 21, "recursive"),
        ("Who? Where?", "self_query"),
        ("Who is incomparable?", "simple"),
    ],
)
async def test_words_of_the_question_choose_the_mode(text, mode):
    config = RecursiveConfig()
    question = Question("q", text)
    tools = Tools(question, ScriptedGenerator(lambda request: "SUFFICIENT: yes"), WordRetriever(WORLD))
    answer = await recursive(question, tools, config)
    assert answer.mode == mode


# Budgets


async def test_the_reader_leaves_out_the_oldest_passages_that_cannot_be_afforded():
    options = {"mode": "simple", "k": 3, "max_answer_tokens": 8}
    free, _, tools = await replay(["Issel"], **options)
    most = tools.cost(tools.generator.requests[0].prompt, 8)
    answer, generator, _ = await replay(["Issel"], budget=most - 1, **options)
    assert free.stopped == "read"
    assert (answer.text, answer.stopped, answer.passage_ids) == ("Issel", "budget", free.passage_ids)
    shown = [place.title for place in WORLD if f"Wikipedia Title: {place.title}" in generator.prompts[0]]
    assert 0 < len(shown) < 3 and "The Glass Orchard" not in shown
