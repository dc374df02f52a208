"""Recursive RAG's four modes on a small corpus whose pages refer to each other, by traces checked by hand.

Also what the tutorial does and the default does not: a single follow-up.
"""

from corag.baselines.recursive.config import RecursiveConfig
from corag.baselines.recursive.method import recursive
from corag.core.tools import Tools
from corag.core.types import Question
from tests.baselines.test_recursive import replay
from tests.fakes import ScriptedGenerator, WordRetriever, passage

MILL = passage("Orne Mill", "Orne Mill grinds flour. Its miller is unknown. See also Brask family.")
BRASK = passage("Brask family", "The Brask family came from Lund ([the census](c.md)). See also Orne Mill.")
CENSUS = passage("The census", "It counts 40 households. For more information, see parish book.")
BOOK = passage("Parish book", "A parish book of 1702 names Ada Brask as the founder.")
OVEN = passage("Town oven", "Bread is baked in the town oven. Jon Pell set it up.")
CORPUS = [BOOK, CENSUS, BRASK, MILL, OVEN]  # of equal hits the earlier one wins
ASKED = Question("q", "Who founded Orne Mill, which grinds flour?", ("Ada Brask",))


async def on_the_corpus(replies, **options):
    options = {"k": 1, "k_per_step": 1, **options}
    return await replay(replies, question=ASKED, retriever=WordRetriever(CORPUS), **options)


def path_of(answer):
    """What was searched for: its step in the trace, round, reason, query, and what it was first to find."""
    return [(step.path, step.depth, step.why, step.query, step.found) for step in answer.retrieval_path]


def references_of(answer):
    return [(each.passage_id, each.reference, each.why, each.followed) for each in answer.references_found]


# The four modes


async def test_the_trace_of_simple():
    answer, _, _ = await on_the_corpus(["Ada Brask"], mode="simple")
    assert path_of(answer) == [("step 1", 1, "question", ASKED.text, ("orne mill",))]
    assert (answer.references_found, answer.depth) == ((), 1), "nobody looks for references"
    assert answer.context_length == len(f"{MILL.title}\n{MILL.text}")


async def test_the_trace_of_recursive():
    answer, _, tools = await on_the_corpus(["Ada Brask"], mode="recursive")
    assert path_of(answer) == [
        ("step 1", 1, "question", ASKED.text, ("orne mill",)),
        ("step 2", 2, "reference", "Brask family", ("brask family",)),
        ("step 3/query 1", 3, "reference", "the census", ("the census",)),
        ("step 3/query 2", 3, "reference", "Orne Mill", ()),
    ]
    assert [step.path for step in tools.steps][:4] == [step.path for step in answer.retrieval_path]
    assert references_of(answer) == [
        ("orne mill", "Brask family", "see also", True),
        ("brask family", "the census", "link", True),
        ("brask family", "Orne Mill", "see also", True),
        ("the census", "parish book", "for more information, see", False),
    ]
    assert [each.depth for each in answer.references_found] == [1, 2, 2, 3]
    assert (answer.depth, answer.steps, answer.stopped) == (3, 3, "max_depth")
    assert answer.context_length == sum(len(each.contents) for each in (MILL, BRASK, CENSUS))


async def test_a_trace_says_which_references_were_not_followed():
    deep = {"mode": "recursive", "max_depth": 9}
    answer, _, _ = await on_the_corpus(["x"], **deep, max_references=1)
    assert references_of(answer)[1:3] == [
        ("brask family", "the census", "link", True),
        ("brask family", "Orne Mill", "see also", False),
    ]
    answer, _, _ = await on_the_corpus(["x"], **deep, max_documents=2)
    assert [each.followed for each in answer.references_found] == [True, False, False]
    assert answer.stopped == "max_documents"
    there_and_back = Question("q", "Brask family", ())
    answer, _, _ = await replay(
        ["x"], question=there_and_back, retriever=WordRetriever([BRASK, MILL]), k=2, mode="recursive"
    )
    assert references_of(answer)[2] == ("orne mill", "Brask family", "see also", False), "searched for before"


async def test_the_trace_of_self_query():
    gaps = "SUFFICIENT: no\nGAP: family\nFOLLOW_UP: Brask family\nGAP: book\nFOLLOW_UP: parish book"
    answer, _, _ = await on_the_corpus([gaps, "SUFFICIENT: yes", "Ada Brask"], mode="self_query")
    assert path_of(answer) == [
        ("step 1", 1, "question", ASKED.text, ("orne mill",)),
        ("step 2/query 1", 2, "follow_up", "Brask family", ("brask family",)),
        ("step 2/query 2", 2, "follow_up", "parish book", ("parish book",)),
    ]
    assert (answer.depth, answer.stopped) == (2, "sufficient")


# As the tutorial does it


async def test_the_preset_searches_once_for_what_a_judgement_misses():
    config = RecursiveConfig(preset="tutorial")
    gaps = "SUFFICIENT: no\nGAP: family\nFOLLOW_UP: Brask family\nGAP: book\nFOLLOW_UP: parish book"
    tools = Tools(
        Question("q", "Who founded Orne Mill? Which mill?"),
        ScriptedGenerator([gaps, "SUFFICIENT: yes", "Ada Brask."]),
        WordRetriever(CORPUS),
    )
    answer = await recursive(tools.question, tools, config)
    assert answer.mode == "self_query"
    assert [search.query for search in answer.retrieval_path[1:]] == ["Brask family"], "the first gap's only"
