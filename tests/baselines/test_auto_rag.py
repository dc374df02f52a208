"""Auto-RAG replayed by hand: rounds, both caps, the early stop, and what the released code loses."""

import pytest

from corag.baselines.auto_rag import AutoRAGConfig, auto_rag, parse
from corag.core.tools import SearchStep, Tools
from tests.baselines import replaying
from tests.fakes import ScriptedGenerator, WordRetriever
from tests.story import QUESTION, WORLD


async def replay(replies, retriever=None, budget=0, **options):
    return await replaying.replay(auto_rag, AutoRAGConfig(**options), replies, retriever, budget)


def roles(tools):
    return [step.role for step in tools.steps if not isinstance(step, SearchStep)]


async def test_the_model_asks_twice_and_then_answers():
    answer, generator, tools = await replay(
        [
            "I need the author first.\nNeed Information: who wrote it\nQuery: The Glass Orchard novel",
            "The author is Mara Velden. Her birthplace is missing.\nRefined Query: Mara Velden born in Tarn "
            "Hollow",
            "Tarn Hollow lies on the Issel.\nFinal Answer: Issel.",
        ]
    )
    assert (answer.text, answer.stopped, answer.steps, answer.unparsable) == ("Issel", "answer", 3, 0)
    assert answer.queries == ("The Glass Orchard novel", "Mara Velden born in Tarn Hollow")
    assert [step.query for step in tools.steps if isinstance(step, SearchStep)] == list(answer.queries)
    assert roles(tools) == ["turn"] * 3
    assert sum(usage.total for usage in tools.ledger.values()) == tools.spent.total > 0
    # Two new documents a round at most; the dialogue only grows, so every prompt begins with the one before.
    assert answer.passage_ids == ("the glass orchard", "tarn hollow", "mara velden")
    first, second, third = generator.prompts
    assert second.startswith(first) and third.startswith(second)
    assert (
        "Retrieved Document_1:\nThe Glass Orchard\nThe Glass Orchard is a novel by Mara Velden.\n" in second
    )
    assert "Retrieved Document_2:\nMara Velden\n" in third
    turns = [message.role for message in generator.requests[-1].prompt.messages]
    assert turns == ["user", "assistant", "user", "assistant", "user"]


async def test_documents_may_be_named_but_the_next_one_is_not_made_up():
    replies = [
        "Query: The Glass Orchard novel\n\nRetrieved Document_1:\nIt was written by somebody else.",
        "According to Retrieved Document_1, it is by Mara Velden.\nQuery: Mara Velden born",
        "Retrieved Document_1: and Retrieved Document_2 tell it.\nFinal Answer: Issel",
    ]
    answer, generator, _ = await replay(replies)
    assert (answer.text, answer.steps, answer.unparsable) == ("Issel", 3, 0)
    assert answer.queries == ("The Glass Orchard novel", "Mara Velden born")
    assert (
        "somebody else" not in generator.prompts[-1]
        and "According to Retrieved Document_1, it" in generator.prompts[-1]
    )


async def test_an_answer_without_any_search():
    answer, _, tools = await replay(["That is well known.\nFinal Answer: Issel"])
    assert (answer.text, answer.stopped, answer.steps, answer.passage_ids) == ("Issel", "answer", 1, ())
    assert roles(tools) == ["turn"]


async def test_after_the_searches_the_model_writes_documents_and_then_has_to_answer():
    def reply(request):
        if "Paragraph:" in request.prompt.text:
            return "Tarn Hollow is on the Issel."
        if request.prompt.prefix:
            return "Issel."
        return "Still missing.\nQuery: Mara Velden"

    answer, generator, tools = await replay(reply, max_rounds=2, max_recalls=2)
    assert (answer.text, answer.stopped, answer.steps) == ("Issel", "max_rounds", 5)
    assert len(answer.queries) == 4 and sum(isinstance(step, SearchStep) for step in tools.steps) == 2
    assert roles(tools) == ["turn", "turn", "turn", "recall", "turn", "recall", "turn", "final"]
    assert "Query: Mara Velden" in generator.prompts[3] and QUESTION.text in generator.prompts[3]
    assert generator.requests[3].sampling.stop == (), "a document that the model writes may mention another"
    last = generator.requests[-1].prompt
    assert "Retrieved Document_4:" in last.text and "Tarn Hollow is on the Issel." in last.text
    assert last.prefix == "Still missing.\nQuery: Mara Velden\nFinal Answer:", (
        "its own turn goes on with the answer"
    )
    assert last.messages[-1].role == "user"


async def test_an_answer_found_after_the_searches_is_not_lost():
    replies = ["Query: Mara Velden", "Query: Tarn Hollow river", "A paragraph.", "Final Answer: Issel"]
    answer, _, tools = await replay(replies, max_rounds=1)
    assert (answer.text, answer.stopped) == ("Issel", "answer")
    assert roles(tools) == ["turn", "turn", "recall", "turn"]


async def test_the_released_code_leaves_a_dialogue_without_an_answer_empty():
    config = AutoRAGConfig(preset="released_code", max_rounds=2, max_recalls=0)
    generator = ScriptedGenerator(lambda request: "Query: Mara Velden")
    answer = await auto_rag(QUESTION, Tools(QUESTION, generator, WordRetriever(WORLD)), config)
    assert (answer.text, answer.stopped, len(generator.requests)) == ("", "max_rounds", 3)


async def test_a_turn_that_says_neither_looks_further_down_the_same_query():
    answer, _, tools = await replay(
        ["Query: Mara Velden", "I am not sure what to do.", "Final Answer: Issel"], documents_per_round=1
    )
    assert answer.queries == ("Mara Velden", "Mara Velden") and answer.unparsable == 1
    assert answer.passage_ids == ("the glass orchard", "mara velden")
    answer, _, tools = await replay(["Hm.", "Final Answer: Issel"])
    assert answer.queries == (QUESTION.text,), "before any query there is the question"
    assert sum(usage.total for usage in tools.ledger.values()) == tools.spent.total


async def test_without_a_query_no_document_is_written():
    answer, generator, tools = await replay(
        ["Query: Mara Velden", "So it must be the Issel.", "Issel"], max_rounds=1
    )
    assert (answer.text, answer.stopped, answer.unparsable) == ("Issel", "max_rounds", 1)
    assert roles(tools) == ["turn", "turn", "final"]
    assert generator.requests[-1].prompt.prefix == "So it must be the Issel.\nFinal Answer:"


@pytest.mark.parametrize(
    ("said", "answer", "query"),
    [
        ("query: mara velden", "", "mara velden"),
        ("**Refined Query**: _Mara Velden_", "", "Mara Velden"),
        ("Query: Mara\nFinal Answer: made up", "", "Mara"),
        ("Final Answer: Oslo.\n\nQuestion: another\nQuery: more", "Oslo", ""),
        ("FINAL ANSWER:\n  Oslo", "Oslo", ""),
        ("Need Information: where Mara was born", "", "where Mara was born"),
        ("Need Information: none\nQuery: none\nFinal Answer: Oslo", "Oslo", ""),
        ("1. Need Information: n/a\n2. **Query:**\n3. **Final Answer:** Oslo", "Oslo", ""),
        ("Need Information:\nQuery: Mara Velden", "", "Mara Velden"),
        ("Need Information: birthplace Query: Mara Velden", "", "Mara Velden"),
        ("Need Information: birthplace\nQuery: none", "", "birthplace"),
        ("Final Answer: None.\nQuery: Mara Velden", "", "Mara Velden"),
        ("Query: none\nFinal Answer: unknown", "unknown", ""),
        ("Need Information: none.", "", ""),
        ("I cannot give a final answer yet.", "", ""),
        ("Query:", "", ""),
        ("", "", ""),
    ],
)
def test_what_a_turn_decides(said, answer, query):
    assert parse(said) == (answer, query)
