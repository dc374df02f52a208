"""DRAG and IterDRAG replayed by hand: what a prompt shows in which order, sub-queries, caps and budgets."""

import pytest

from corag.baselines.drag import DRAGConfig, drag
from corag.baselines.iterdrag import IterDRAGConfig, IterDRAGHop, iterdrag
from corag.core.errors import DataError
from corag.core.tools import SearchStep
from corag.core.types import Passage
from tests.baselines.replaying import replay
from tests.fakes import ScriptedGenerator, WordRetriever, passage, words
from tests.messages import raises_message
from tests.story import DEMONSTRATIONS, QUESTION, WORLD

ALPHA = passage("Alpha", "Alpha was founded by Beta, says the corpus.")
STEPS = """# METADATA: {"qid": "d1"}
Wikipedia Title: Alpha
Alpha was founded by Beta.

Q: Where was the one who founded Alpha born?
A: Follow up: Who founded Alpha?
Intermediate answer: Beta.
Follow up: Where was Beta born?
Intermediate answer: Gamma.
So the final answer is: Gamma."""


WHO, WHERE = "Who wrote The Glass Orchard?", "Where was the writer Mara Velden born?"


def asking(times, replies):
    """A model that would rather ask on until it has asked so many sub-queries."""

    def log_likelihood(request):
        wants_to_answer = request.prompt.prefix.count("Follow up:") >= times
        return -1.0 if wants_to_answer == (request.target == "So") else -2.0

    return ScriptedGenerator(replies, log_likelihood=log_likelihood)


async def iterate(times, replies, config=None, *given, **named):
    return await replay(
        iterdrag, config or IterDRAGConfig(), (), *given, generator=asking(times, replies), **named
    )


def searched(tools):
    return [step.query for step in tools.steps if isinstance(step, SearchStep)]


def in_order(text, *parts):
    """Whether a text has these parts, in this order."""
    places = [text.find(part) for part in parts]
    return -1 not in places and places == sorted(places)


@pytest.fixture
def demonstrations(tmp_path):
    file = tmp_path / "demonstrations.txt"
    file.write_text(
        DEMONSTRATIONS + "\n\n\n" + DEMONSTRATIONS.replace("Alpha", "Delta").replace('"d1"', '"d2"')
    )
    return str(file)


async def test_one_prompt_with_the_best_document_next_to_the_question():
    answer, generator, tools = await replay(
        drag, DRAGConfig(documents=3), ["Issel.\nBecause it flows there."]
    )
    assert (answer.text, answer.stopped, answer.steps, answer.documents) == ("Issel", "read", 1, 3)
    assert answer.passage_ids == ("the glass orchard", "tarn hollow", "glassware"), "best first in the trace"
    assert in_order(
        generator.prompts[0], "Title: Glassware", "Title: Tarn Hollow", "Title: The Glass", QUESTION.text
    )
    assert tools.ledger["reader"] == tools.spent and tools.spent.calls == 1


async def test_demonstrations_are_shown_with_what_is_found_for_them(demonstrations):
    retriever = WordRetriever([*WORLD, ALPHA])
    config = DRAGConfig(documents=1, demonstrations=demonstrations)
    answer, generator, tools = await replay(drag, config, ["Issel"], retriever)
    assert searched(tools) == [QUESTION.text, "Who founded Alpha?", "Who founded Delta?"]
    assert answer.passage_ids == ("the glass orchard",), "recall is about the question's own documents"
    assert answer.demonstrations == 2
    assert tools.passages_read.leading_to(answer, QUESTION.text) == answer.passage_ids, (
        "nor are theirs sources"
    )
    shown = generator.prompts[0]
    assert in_order(
        shown,
        "says the corpus.",
        "Question: Who founded Alpha?\nAnswer: Beta\n",
        "Question: Who founded Delta?",
    )
    assert in_order(
        shown, "Question: Who founded Delta?\nAnswer: Beta\n", "The Glass Orchard is a novel", QUESTION.text
    )
    config = DRAGConfig(
        documents=1, demonstrations=demonstrations, demonstration_documents="file", demonstration_count=1
    )
    _, generator, tools = await replay(drag, config, ["Issel"], retriever)
    assert searched(tools) == [QUESTION.text]
    assert "Alpha was founded by Beta.\n\nQuestion: Who founded Alpha?" in generator.prompts[0]
    assert "Delta" not in generator.prompts[0]


@pytest.mark.parametrize(
    ("left_out", "demonstrations_left", "documents_left"),
    [(0, 2, 3), (1, 1, 3), (2, 0, 3), (3, 0, 2), (5, 0, 0)],
)
async def test_a_budget_leaves_out_demonstrations_first_and_then_the_worst_documents(
    demonstrations, left_out, demonstrations_left, documents_left
):
    config = DRAGConfig(
        documents=3, demonstrations=demonstrations, demonstration_documents="file", max_answer_tokens=10
    )
    _, generator, tools = await replay(drag, config, ["Issel"])
    prompt = generator.requests[0].prompt
    segments = sorted(
        (s for s in prompt.messages[0].segments if s.drop is not None), key=lambda segment: segment.drop
    )
    budget = tools.cost(prompt, 10) - sum(words(segment.text) for segment in segments[:left_out])
    answer, generator, tools = await replay(drag, config, ["Issel"], budget=budget)
    assert (answer.demonstrations, answer.documents) == (demonstrations_left, documents_left)
    assert tools.spent.total <= budget and answer.text == "Issel"
    shown = generator.prompts[0]
    assert ("Title: The Glass Orchard" in shown) == (documents_left > 0) and QUESTION.text in shown
    assert ("Title: Glassware" in shown) == (documents_left > 2)


async def test_no_documents_and_no_search(demonstrations):
    options = {"documents": 0, "demonstrations": demonstrations}
    answer, generator, tools = await replay(drag, DRAGConfig(**options), ["Issel"])
    assert (answer.text, answer.stopped, answer.passage_ids, answer.documents) == ("Issel", "read", (), 0)
    assert searched(tools) == [] and answer.demonstrations == 2
    shown = generator.prompts[0]
    assert in_order(shown, "Question: Who founded Alpha?", "Question: Who founded Delta?", QUESTION.text)
    answer, bare, _ = await replay(drag, DRAGConfig(**options, demonstration_count=0), ["Issel"])
    assert answer.demonstrations == 0 and "Who founded Alpha?" not in bare.prompts[0], "the paper's m = 0"
    assert "Title:" not in shown and "no documents were found" not in shown, "none were looked for"
    answer, _, tools = await iterate(
        1, [f"Follow up: {WHO}", "Mara Velden.", "Hm.", "Issel"], IterDRAGConfig(documents=0)
    )
    assert (answer.text, answer.steps, searched(tools)) == ("Issel", 1, [])


async def test_documents_are_cut_at_1024_words():
    long = Passage("long", "River", " ".join(f"river{number}" for number in range(1100)) + " flows")
    _, generator, _ = await replay(drag, DRAGConfig(), ["x"], WordRetriever([long]))
    assert "river1023" in generator.prompts[0] and "river1024" not in generator.prompts[0]


async def test_two_sub_queries_whose_documents_stay_and_then_the_answer():
    replies = [
        f"Follow up: {WHO}",
        " Mara Velden.\n",
        f"Follow up: {WHERE}",
        " Tarn Hollow.",
        "So the final answer is: Issel.",
    ]
    answer, generator, tools = await iterate(2, replies, IterDRAGConfig(documents=2))
    assert (answer.text, answer.stopped, answer.steps) == ("Issel", "answer", 2)
    assert searched(tools) == [QUESTION.text, WHO, WHERE]
    assert answer.passage_ids == ("the glass orchard", "mara velden", "tarn hollow"), (
        "each once, the searches in turn"
    )
    assert answer.sub_queries == (
        IterDRAGHop(WHO, (), "Mara Velden."),
        IterDRAGHop(WHERE, ("mara velden",), "Tarn Hollow."),
    )
    calls = {role: usage.calls for role, usage in tools.ledger.items()}
    assert calls == {"step": 3, "intermediate": 2}, "a model that keeps to the form is asked once for a line"
    # Documents stay: best last within a search, the newest search last, the transcript behind the question.
    last = generator.requests[-1].prompt
    assert in_order(
        last.text, "Title: Tarn Hollow", "Title: The Glass Orchard", "Title: Mara Velden", QUESTION.text
    )
    assert last.text.count("Title: Tarn Hollow") == 1
    lines = f"Follow up: {WHO}\nIntermediate answer: Mara Velden.\n"
    begun = [request.prompt.prefix for request in generator.requests]
    assert begun[:4] == [
        "",
        f"Follow up: {WHO}\nIntermediate answer:",
        lines,
        f"{lines}Follow up: {WHERE}\nIntermediate answer:",
    ]
    assert last.prefix == f"{lines}Follow up: {WHERE}\nIntermediate answer: Tarn Hollow.\n"
    assert "Title: Mara Velden" not in generator.prompts[2] and "Title: Mara Velden" in generator.prompts[3]


async def test_for_a_model_out_of_the_form_the_likelier_of_the_two_openings_is_written():
    replies = ["I need the writer.", WHO, "Mara Velden.", "The river is", "Issel"]
    answer, generator, tools = await iterate(1, replies)
    assert (answer.text, answer.stopped, answer.steps) == ("Issel", "answer", 1)
    later = f"Follow up: {WHO}\nIntermediate answer: Mara Velden.\n"
    assert [(request.target, request.prompt.prefix) for request in generator.scored] == [
        (target, prefix) for prefix in ("", later) for target in ("Follow", "So")
    ]
    begun = [request.prompt.prefix for request in generator.requests]
    assert begun == [
        "",
        "Follow up:",
        later[: -len(" Mara Velden.\n")],
        later,
        f"{later}So the final answer is:",
    ]
    calls = {role: usage.calls for role, usage in tools.ledger.items()}
    assert calls == {"step": 2, "opening": 4, "follow_up": 1, "intermediate": 1, "final": 1}


async def test_the_cap_asks_for_the_final_answer():
    def reply(request):
        prefix = request.prompt.prefix
        return "Issel" if prefix.endswith("is:") else f"Who is Mara Velden {prefix.count('Follow')}?"

    answer, generator, tools = await iterate(9, reply, IterDRAGConfig(documents=1, max_iterations=3))
    assert (answer.text, answer.stopped, answer.steps) == ("Issel", "max_iterations", 3)
    assert (
        len(searched(tools)) == 4
        and tools.ledger["follow_up"].calls == 3
        and tools.ledger["final"].calls == 1
    )
    assert len(generator.scored) == 6, "there is nothing to choose after the last sub-query"


@pytest.mark.parametrize(
    "reply",
    [
        "So the final answer is: Issel.",
        "**So the final answer is:** Issel.",
        "\nSo the final answer is: Issel",
    ],
)
async def test_an_answer_without_sub_queries(reply):
    answer, _, tools = await iterate(9, [reply])
    assert (answer.text, answer.stopped, answer.steps) == ("Issel", "answer", 0)
    assert searched(tools) == [QUESTION.text] and tools.spent.calls == 1


@pytest.mark.parametrize("malformed", [["Follow up:"], ["", ""], [" \n", "**"], ["Hm.", "Follow up:"]])
async def test_a_sub_query_without_words_ends_in_the_final_answer(malformed):
    answer, generator, tools = await iterate(9, [f"Follow up: {WHO}", "Mara Velden.", *malformed, "Issel"])
    assert (answer.text, answer.stopped, answer.steps) == ("Issel", "empty_generation", 1)
    assert generator.requests[-1].prompt.prefix.endswith(
        "Intermediate answer: Mara Velden.\nSo the final answer is:"
    )
    assert searched(tools) == [QUESTION.text, WHO]


@pytest.mark.parametrize(
    "made_up", ["\nIntermediate answer: On Mars.", "\nIt is said so.", "**", "\nFollow up: Who?"]
)
async def test_what_a_model_makes_up_behind_its_line_is_dropped(made_up):
    replies = [f"* Follow up: {WHO}{made_up}", f"Intermediate answer: Mara Velden.{made_up}", "Hm.", "Issel"]
    answer, generator, _ = await iterate(1, replies)
    assert [(sub.text, sub.answer) for sub in answer.sub_queries] == [(WHO, "Mara Velden.")]
    assert (
        answer.text == "Issel"
        and "Mars" not in generator.prompts[-1]
        and "said so" not in generator.prompts[-1]
    )


async def test_an_opening_that_is_written_again_is_read_once():
    answer, _, _ = await iterate(
        1, ["Hm.", f"Follow up: {WHO}", "Mara Velden.", "So the final answer is:", "Issel"]
    )
    assert [sub.text for sub in answer.sub_queries] == [WHO] and answer.text == "Issel"


@pytest.mark.parametrize("left", ["", "Follow up: Who is that?", "So the final answer is: made up"])
async def test_a_sub_query_that_is_left_without_an_answer(left):
    answer, generator, _ = await iterate(
        2, [f"Follow up: {WHO}", left, f"Follow up: {WHERE}", "Tarn Hollow.", "?", "Issel"]
    )
    assert [sub.answer for sub in answer.sub_queries] == ["", "Tarn Hollow."]
    assert f"Follow up: {WHO}\nIntermediate answer:\nFollow up: {WHERE}\n" in generator.prompts[-1]


async def test_iterdrag_shows_demonstrations_in_its_own_form_only(tmp_path, demonstrations):
    with raises_message(DataError):
        IterDRAGConfig(demonstrations=demonstrations).check_files()
    file = tmp_path / "steps.txt"
    file.write_text(STEPS)
    config = IterDRAGConfig(documents=1, demonstrations=str(file))
    config.check_files()
    retriever = WordRetriever([*WORLD, ALPHA])
    _, generator, tools = await iterate(0, ["Hm.", "Issel"], config, retriever)
    assert len(searched(tools)) == 2
    answer = STEPS.partition("\nA: ")[2]
    assert f"Question: Where was the one who founded Alpha born?\n{answer}\n" in generator.prompts[0]
    _, generator, _ = await replay(drag, DRAGConfig(documents=1, demonstrations=str(file)), ["x"], retriever)
    assert "founded Alpha born?\nAnswer: Gamma\n" in generator.prompts[0], (
        "drag takes the answers of the same file"
    )
