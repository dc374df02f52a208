"""Search-o1 replayed by hand: two searches, both caps, the early stop, and tags, boxes and headers that are
not as they should.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag.baselines.search_o1 import (
    NOTHING_HELPFUL,
    Search,
    SearchO1Config,
    final_information,
    last_box,
    last_query,
    outline_reasoning,
    search_o1,
)
from corag.core.errors import RequestRefusedError
from corag.core.tools import SearchStep
from tests.baselines import replaying
from tests.fakes import ScriptedGenerator, WindowedGenerator, WordRetriever, passage, words
from tests.story import WORLD

WHO, WHERE = "author of The Glass Orchard", "birthplace of writer Mara Velden"
ASKS_WHO = f"First the author. <|begin_search_query|>{WHO}"
ASKS_WHERE = f"Now her birthplace.\n<|begin_search_query|> {WHERE} "
FOUND = "Document 1 is right.\n**Final Information**\n\n"
SOLUTION = [
    ASKS_WHO,
    f"{FOUND}Mara Velden\nwrote it.",
    ASKS_WHERE,
    f"{FOUND}She was born in Tarn Hollow.",
    r"It lies on the river \boxed{\text{Issel}}.",
]
RESULT = "<|end_search_query|>\n\n<|begin_search_result|>{}<|end_search_result|>\n\n"


async def replay(replies, config=None, *given, **named):
    return await replaying.replay(search_o1, config or SearchO1Config(k=1), replies, *given, **named)


async def test_two_searches_then_the_answer():
    answer, generator, tools = await replay(SOLUTION)
    assert (answer.text, answer.stopped, answer.steps) == ("Issel", "end", 3)
    assert answer.searches == (
        Search(WHO, "Mara Velden wrote it.", ("the glass orchard",)),
        Search(WHERE, "She was born in Tarn Hollow.", ("mara velden",)),
    )
    assert answer.passage_ids == ("the glass orchard", "mara velden")
    assert [step.query for step in tools.steps if isinstance(step, SearchStep)] == [WHO, WHERE]
    # The reasoning goes on in the model's own turn, with the result in it.
    first, _, second, documents, third = generator.prompts
    reasoning = ASKS_WHO + RESULT.format("Mara Velden wrote it.")
    assert generator.requests[2].prompt.prefix == reasoning and second == f"{first}\n\n{reasoning}"
    assert generator.requests[4].prompt.prefix == reasoning + ASKS_WHERE + RESULT.format(
        "She was born in Tarn Hollow."
    )
    assert third.startswith(first)
    # The reader of documents sees the reasoning in steps, the query and the documents.
    assert f"Step 1: {ASKS_WHO}" in documents and "Mara Velden is a writer" in documents
    assert documents.endswith(f"Search query: {WHERE}")
    assert generator.requests[0].sampling.stop == ("<|end_search_query|>", "<|begin_search_result|>")
    assert {role: usage.calls for role, usage in tools.ledger.items()} == {"reasoning": 3, "documents": 2}
    assert sum(usage.total for usage in tools.ledger.values()) == tools.spent.total > 0


async def test_answering_at_once_searches_nothing():
    answer, _, _ = await replay([r"I know: \boxed{Issel}"])
    assert (answer.text, answer.stopped, answer.steps, answer.searches) == ("Issel", "end", 1, ())


async def test_searches_beyond_the_limit_and_repeated_ones_get_a_note():
    query = "<|begin_search_query|>{}"
    replies = [
        ASKS_WHO,
        FOUND + "Mara.",
        query.format(WHO),
        query.format(WHERE),
        FOUND + "Tarn.",
        query.format("a river"),
        r"\boxed{Issel}",
    ]
    answer, generator, tools = await replay(replies, SearchO1Config(k=1, max_searches=2))
    assert [search.refused for search in answer.searches] == ["", "repeated", "", "limit"]
    assert sum(isinstance(step, SearchStep) for step in tools.steps) == 2
    assert tools.ledger["documents"].calls == 2, "notes cost no call"
    prefix = generator.requests[-1].prompt.prefix
    assert "searched before" in prefix and prefix.endswith(
        RESULT.format("No more searches are allowed: go on with what is known.")
    )
    assert (answer.text, answer.steps) == ("Issel", 5)


async def test_turns_are_capped_and_an_answer_forced():
    replies = [
        text for number in range(3) for text in (f"<|begin_search_query|>glass {number}", FOUND + "Sand.")
    ]
    answer, generator, tools = await replay([*replies, "Issel"], SearchO1Config(k=1, max_turns=3))
    assert (answer.text, answer.stopped, answer.steps, len(answer.searches)) == ("Issel", "max_turns", 3, 3)
    assert generator.prompts[-1].endswith("\\boxed{") and generator.requests[-1].sampling.stop == ("\n",)
    assert tools.ledger["forced_answer"].calls == 1 and tools.spent.calls == 7


@pytest.mark.parametrize("query", ["", "  ", "author of\nOr rather, I should think about it more."])
async def test_a_malformed_query_ends_the_reasoning(query):
    answer, _, tools = await replay([f"Hm. <|begin_search_query|>{query}", "Issel"])
    assert (answer.text, answer.stopped, answer.steps) == ("Issel", "malformed", 1)
    assert not any(isinstance(step, SearchStep) for step in tools.steps)


async def test_reasoning_without_an_answer_and_reasoning_that_does_not_end():
    answer, _, _ = await replay(["It is the Issel.", "Issel"])
    assert (answer.text, answer.stopped) == ("Issel", "end")

    class Endless(ScriptedGenerator):
        def _completion(self, text, sampling):
            completion = super()._completion(text, sampling)
            return completion if "Issel" in text else type(completion)(text, (), "length")

    answer, _, _ = await replay([], generator=Endless(["And so on <|begin_search_query|>the au", "Issel"]))
    assert (answer.text, answer.stopped, answer.searches) == ("Issel", "length", ())


@pytest.mark.parametrize(
    "reply",
    ["Issel", "Issel}", r"\text{Issel}} is the river.", r" \text{Issel}", "Issel}\nOr not.", "Issel."],
)
async def test_a_forced_answer_ends_with_its_box(reply):
    answer, _, _ = await replay(["It is a river.", reply])
    assert (answer.text, answer.stopped) == ("Issel", "end")


async def test_nothing_found_costs_no_call():
    answer, generator, tools = await replay([ASKS_WHO, SOLUTION[-1]], retriever=WordRetriever([]))
    assert answer.searches == (Search(WHO, NOTHING_HELPFUL),) and answer.text == "Issel"
    assert generator.requests[1].prompt.prefix == ASKS_WHO + RESULT.format(NOTHING_HELPFUL)
    assert "documents" not in tools.ledger


async def test_documents_that_do_not_help_and_boxes_in_them():
    trap = passage("Glass", r"The Glass Orchard is \boxed{wrong}.")
    replies = [
        ASKS_WHO,
        "I only rambled.",
        ASKS_WHERE,
        FOUND + r"It says \boxed{wrong}.",
        "No idea.",
        "Issel",
    ]
    answer, _, _ = await replay(replies, retriever=WordRetriever([trap, *WORLD]))
    assert [search.result for search in answer.searches] == [NOTHING_HELPFUL, r"It says \boxed{wrong}."]
    assert answer.text == "Issel"


def solve(request):
    """Reply by the place in the reasoning, so that any budget can be tried."""
    prompt, prefix = request.prompt.text, request.prompt.prefix
    if prefix.endswith("\\boxed{"):
        return "Issel"
    if not prefix and "Documents:" in prompt:
        return SOLUTION[1 if prompt.endswith(WHO) else 3]
    return SOLUTION[2 * prefix.count("<|begin_search_result|>")]


async def test_reasoning_that_outgrows_the_window_is_concluded_from_its_newest_turns():
    def in_window(request):
        if words(request.prompt.text) > window:
            raise RequestRefusedError("too long")
        return solve(request)

    window = 10_000
    _, whole, _ = await replay(in_window)
    window = words(whole.prompts[-1]) - 1
    answer, generator, _ = await replay(in_window)
    assert (answer.text, answer.stopped, answer.steps) == ("Issel", "window", 2)
    assert generator.requests[-1].prompt.prefix.startswith(ASKS_WHERE), "the oldest turn is left out"
    window = 10
    with pytest.raises(RequestRefusedError):
        await replay(in_window)


async def test_a_full_window_cuts_the_question_so_the_reasoning_ends_before():
    config = SearchO1Config(k=1, max_turn_tokens=20, max_result_tokens=20, max_answer_tokens=20)
    _, whole, _ = await replay(solve, config)
    answer, generator, _ = await replay(
        [], config, generator=WindowedGenerator(solve, words(whole.prompts[-1]) + 19)
    )
    assert (answer.text, answer.stopped, answer.steps) == ("Issel", "window", 2)
    asked = [
        request.prompt.prefix for request in generator.requests if request.prompt.prefix.endswith("\\boxed{")
    ]
    assert [text.startswith(ASKS_WHO) for text in asked] == [True, False], (
        "the oldest turn is left out, as the window cut it"
    )
    answer, _, _ = await replay([], config, generator=WindowedGenerator(solve, words(whole.prompts[0]) + 19))
    assert answer.steps == 1, "a question that is too long by itself is asked as far as it fits"


async def test_released_code_samples_and_forces_nothing():
    config = SearchO1Config(preset="released_code", k=1)
    answer, generator, _ = await replay([*SOLUTION[:2], "It is the Issel."], config)
    assert (answer.text, answer.stopped) == ("", "end")
    samplings = [request.sampling for request in generator.requests]
    assert {(s.temperature, s.top_p, s.top_k, s.repetition_penalty, s.max_tokens) for s in samplings} == {
        (0.7, 0.8, 20, 1.05, 20_480)
    }
    assert len({s.seed for s in samplings}) == 3
    greedy = (await replay(SOLUTION))[1].requests[0].sampling
    assert (greedy.temperature, greedy.top_p, greedy.top_k, greedy.repetition_penalty) == (0, 1, 0, 1)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{Issel}.", "Issel"),
        (r"\boxed{A} or {b} and \boxed{x_{1}} {y}", "x_{1}"),
        (r"\boxed{\text{the Issel}}", "the Issel"),
        (r"\boxed{Issel} as said, \boxed{}", "Issel"),
        ("\\boxed{Issel\nand more", "Issel"),
        (r"\boxed{\boxed{Issel}}", "Issel"),
        ("no box", ""),
        (r"\boxed", ""),
    ],
)
def test_boxes(text, answer):
    assert last_box(text) == answer


texts = st.text("ab {}\\\n", max_size=20)


@given(texts, st.text("ab1_ ", min_size=1).map(str.strip).filter(bool), texts)
def test_a_box_is_found_in_any_text(before, answer, after):
    assert last_box(f"{before}\\boxed{{{answer}}}{after}") == answer


@given(st.lists(st.sampled_from(["\\boxed{", "{", "}", "\n", " ", "x", "\\text{"]), max_size=12))
def test_boxes_are_found_without_fail(pieces):
    found = last_box("".join(pieces))
    assert found == found.strip()


def test_queries_headers_and_outlines():
    assert last_query("no query") is None
    assert last_query("<|begin_search_query|>a <|begin_search_query|> b ") == "b"
    assert final_information("**Final Information**\nx") == "x", "nothing need stand before the header"
    assert final_information("a\nFinal information: x\n\ny") == "x y"
    assert final_information("Final Information\nold\n### Final Information\n```new```") == "new"
    assert final_information("**Final Information**\n") == final_information("nothing") == NOTHING_HELPFUL
    lines = ["start", "b", "c", "<|begin_search_query|>q", "e", "f", "g", "h", "end"]
    steps = outline_reasoning("\n\n".join(lines)).split("\n\n")
    assert [step.rpartition(": ")[2] for step in steps] == [
        "start",
        "...",
        "<|begin_search_query|>q",
        "...",
        "f",
        "g",
        "h",
        "end",
    ]
    assert outline_reasoning("") == ""
