"""Defects of the tutorial code that recursive RAG is made after, each with what must happen instead."""

from dataclasses import replace
from itertools import count

import pytest

from corag.baselines.recursive.replies import find_references
from corag.core.types import Hit, Passage, Question
from tests.baselines.test_recursive import queries, replay
from tests.fakes import WordRetriever, passage
from tests.story import QUESTION, WORLD


class FreshIds(WordRetriever):
    """Gives a passage another id each time that it is found, as for documents without one."""

    numbers = count()

    async def search(self, query, k, hop=False):
        hits = await super().search(query, k)
        return [Hit(replace(hit.passage, id=f"random {next(self.numbers)}"), hit.score) for hit in hits]


def test_defect_1_references_keep_their_order_whatever_the_hash_seed():
    names = [f"Town number {number}" for number in range(40)]
    text = " ".join(f"See also {name}." for name in [*names, *reversed(names)])
    assert [reference for reference, _ in find_references(text)] == names


async def test_defect_2_a_document_without_an_id_is_known_by_its_content():
    judged = "ANSWERABLE: no\nNEXT_QUERY: The Glass Orchard novel"
    answer, generator, _ = await replay(
        [judged, "ANSWERABLE: yes", "Issel"], mode="multi_hop", k_per_step=1, retriever=FreshIds(WORLD)
    )
    assert len(answer.retrieval_path) == 2 and len(answer.passage_ids) == 1
    assert generator.prompts[-1].count("is a novel by Mara Velden") == 1


async def test_defect_3_documents_that_refer_to_each_other_do_not_loop():
    world = [
        passage("Beta town", "Stay. See also Alpha town."),
        passage("Alpha town", "Go there. See also Beta town."),
    ]
    answer, _, tools = await replay(
        ["x"],
        question=Question("q", "Go there"),
        mode="recursive",
        k=1,
        max_depth=50,
        retriever=WordRetriever(world),
    )
    assert queries(tools) == ["Go there", "Beta town", "Alpha town"]
    assert (answer.stopped, answer.passage_ids) == ("no_references", ("alpha town", "beta town"))


@pytest.mark.parametrize("mode", ["multi_hop", "self_query"])
async def test_defect_4_only_the_word_after_the_label_decides(mode):
    label = {"multi_hop": "ANSWERABLE", "self_query": "SUFFICIENT"}[mode]
    said = "no, although yes would be nice"
    judged = f"Yesterday's passages, yes, look fine.\n{label}: {said}\nNEXT_QUERY: Mara Velden"
    answer, _, tools = await replay([judged, f"{label}: yes, no doubt", "Issel"], mode=mode)
    assert (queries(tools), answer.stopped) == ([QUESTION.text, "Mara Velden"], "sufficient")


@pytest.mark.parametrize(
    "query", ["nonexistent rivers of Tarn Hollow", "None of them by Mara Velden", "Nonesuch House"]
)
async def test_defect_5_a_query_that_holds_the_letters_none_is_searched_for(query):
    answer, _, tools = await replay(
        [f"ANSWERABLE: no\nNEXT_QUERY: {query}", "ANSWERABLE: yes", "x"], mode="multi_hop"
    )
    assert queries(tools) == [QUESTION.text, query]
    for nothing in ("none", "None.", "N/A", "(none)", "-", "none, that is all"):
        answer, _, tools = await replay([f"ANSWERABLE: no\nNEXT_QUERY: {nothing}", "x"], mode="multi_hop")
        assert (queries(tools), answer.stopped) == ([QUESTION.text], "no_query"), nothing


async def test_defect_10_documents_are_shown_whole():
    long = Passage("1", "Orchard history", "glass orchard " * 800 + "The river is the Issel.")
    world = WordRetriever([long, passage("Orchard", "A glass orchard of the author."), *WORLD])
    _, generator, _ = await replay(["Issel"], mode="simple", retriever=world)
    assert long.text in generator.prompts[0]


@pytest.mark.parametrize(
    "reply",
    [
        "   ANSWERABLE: no\n   NEXT_QUERY: Mara Velden",
        "- ANSWERABLE: no\n- NEXT_QUERY: Mara Velden",
        "**ANSWERABLE:** no\n**NEXT_QUERY:** Mara Velden",
        "1. **Answerable**: No.\n2. **Missing**: the town\n3. **Next query**: “Mara Velden”",
        "> `answerable`: no\n> `next-query`: Mara Velden",
        "ANSWERABLE: no MISSING: the town NEXT_QUERY: Mara Velden",
        "### Answerable\nANSWERABLE: no\nNEXT_QUERY:\nMara Velden",
    ],
)
async def test_defect_12_labels_are_read_whatever_marks_surround_them(reply):
    answer, _, tools = await replay([reply, "* **ANSWERABLE: yes**", "x"], mode="multi_hop")
    assert (queries(tools), answer.stopped) == ([QUESTION.text, "Mara Velden"], "sufficient")


@pytest.mark.parametrize(
    "written",
    ["GAPS: people of Paris, Texas", "GAPS:\n- people of Paris, Texas", "GAP 1: people of Paris, Texas"],
)
async def test_defect_13_a_gap_with_a_comma_stays_whole(written):
    _, _, tools = await replay([f"SUFFICIENT: no\n{written}", "SUFFICIENT: yes", "x"], mode="self_query")
    assert queries(tools) == [QUESTION.text, "people of Paris, Texas"]
    _, _, tools = await replay(
        [f"SUFFICIENT: no\n{written}; a mayor", "SUFFICIENT: yes", "x"], mode="self_query"
    )
    assert queries(tools)[1:] == ["people of Paris, Texas", "a mayor"]
