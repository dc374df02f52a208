"""Search-R1 and its kin replayed by hand, as each project's own loop writes transcripts: two searches, the
cap, tags that are missing, and answers at once.
"""

from dataclasses import replace

import pytest

from corag.baselines.search_r1 import INVALID, SearchR1Config, bare_query, called, search_r1
from corag.core.tools import SearchStep
from corag.generation.thinking import Thinking
from corag.generation.thinking_generator import ThinkingGenerator
from tests.baselines import replaying
from tests.fakes import ScriptedGenerator, WordRetriever
from tests.story import QUESTION, WORLD

WHO, WHERE = "author of The Glass Orchard", "writer Mara Velden born"
BOOK_TEXT, AUTHOR_TEXT = (each.text for each in WORLD[:2])


async def replay(replies, preset="search_r1", *given, retriever=None, **options):
    config = SearchR1Config(preset=preset, **{"k": 1, **options})
    return await replaying.replay(search_r1, config, replies, retriever, *given)


def queries(tools):
    return [step.query for step in tools.steps if isinstance(step, SearchStep)]


# What each project inserts after its two queries, up to what the third request goes on from.
TRANSCRIPTS = {
    "search_r1": (
        "<think>First the author.</think>\n<search> author of The Glass Orchard </search>\n\n<information>"
        f'Doc 1(Title: "The Glass Orchard") {BOOK_TEXT}</information>\n\n'
        "<think>Now she.</think> <search>writer Mara Velden born</search>\n\n<information>"
        f'Doc 1(Title: "Mara Velden") {AUTHOR_TEXT}</information>\n\n'
    ),
    "zerosearch": (
        "<think>First the author.</think>\n<search> author of The Glass Orchard </search>\n\n<information>"
        f"Doc 1: The Glass Orchard {BOOK_TEXT}</information>\n\n"
        "<think>Now she.</think> <search>writer Mara Velden born</search>\n\n<information>"
        f"Doc 1: Mara Velden {AUTHOR_TEXT}</information>\n\n"
    ),
    "research": (
        "<think>First the author.</think>\n<search> author of The Glass Orchard </search> <result>\n"
        f'"The Glass Orchard"\n{BOOK_TEXT}\n</result>'
        "<think>Now she.</think> <search>writer Mara Velden born</search> <result>\n"
        f'"Mara Velden"\n{AUTHOR_TEXT}\n</result>'
    ),
}


@pytest.mark.parametrize("preset", TRANSCRIPTS)
async def test_two_searches_then_the_answer(preset):
    box = r"The final answer is \[ \boxed{Issel} \]" if preset == "research" else " Issel "
    replies = [
        f"<think>First the author.</think>\n<search> {WHO} </search> and more",
        f"<think>Now she.</think> <search>{WHERE}</search>",
        f"<think>So.</think> <answer>{box}</answer> The end.",
    ]
    answer, generator, tools = await replay(replies, preset)
    assert (answer.text, answer.stopped, answer.steps) == ("Issel", "answer", 3)
    assert answer.passage_ids == ("the glass orchard", "mara velden") and queries(tools) == [WHO, WHERE]
    assert [request.prompt.prefix for request in generator.requests][2] == TRANSCRIPTS[preset]
    assert TRANSCRIPTS[preset].startswith(generator.requests[1].prompt.prefix), (
        "one growing turn of the model"
    )
    assert generator.requests[0].prompt.prefix == ""
    assert generator.requests[0].sampling.stop == ("</search>", "</answer>")
    assert list(tools.ledger) == ["reasoning"]


async def test_r1_searcher_continues_plain_text():
    replies = [
        ' I need the author.\n<|begin_of_query|> author\t"The Glass Orchard" <|end_of_query|>',
        "\n\nShe is Mara Velden. <|begin_of_query|> writer\tMara Velden\tborn<|end_of_query|>",
        "</think>\n\n<answer> Issel </answer>",
    ]
    answer, generator, tools = await replay(replies, "r1_searcher")
    assert (answer.text, answer.stopped, answer.steps) == ("Issel", "answer", 3)
    assert queries(tools) == ["author The Glass Orchard", "writer Mara Velden born"]
    first, _, third = generator.prompts
    assert generator.requests[0].prompt.plain and first.endswith(f"User:{QUESTION.text}\nAssistant: <think>")
    assert third == (
        f'{first}I need the author.\n<|begin_of_query|> author\t"The Glass Orchard"<|end_of_query|>\n\n'
        f"<|begin_of_documents|>\n(1)The Glass Orchard   {BOOK_TEXT}\n<|end_of_documents|>\n\n"
        "She is Mara Velden. <|begin_of_query|> writer\tMara Velden\tborn<|end_of_query|>\n\n"
        f"<|begin_of_documents|>\n(1)Mara Velden   {AUTHOR_TEXT}\n<|end_of_documents|>"
    )


TASK = (
    "Answer the question. Call search, with one short query at a time, until you have found all that you "
    "need; then call answer.\n\n"
)


async def test_tool_calls_are_turns_of_their_own():
    call = '<tool_call>\n{{"name": "search", "arguments": {{"query": "{}"}}}}\n</tool_call>'
    replies = [f"I look.\n{call.format(WHO)}", call.format(WHERE), "The answer is Issel."]
    answer, generator, tools = await replay(replies, "tools")
    assert (answer.text, answer.stopped, answer.steps) == ("Issel", "answer", 3)
    assert queries(tools) == [WHO, WHERE]
    prompt = generator.requests[2].prompt
    assert [message.role for message in prompt.messages] == ["system", "user", *["assistant", "user"] * 2]
    assert [message.text for message in prompt.messages][1:4] == [
        f"{TASK}Question: {QUESTION.text}",
        f"I look.\n{call.format(WHO)}",
        f"<tool_response>\nThe Glass Orchard\n{BOOK_TEXT}\n</tool_response>",
    ]
    assert prompt.prefix == ""
    answer, generator, tools = await replay(
        ["<tool_call>search!</tool_call>", "<answer>Issel</answer>"], "tools"
    )
    assert (answer.text, queries(tools)) == ("Issel", [])
    assert "nothing found" in generator.prompts[1], "a call that cannot be read"
    answered = '<tool_call>\n{"name": "answer", "arguments": {"text": " Issel "}}\n</tool_call>'
    answer, _, tools = await replay([call.format(WHO), answered], "tools")
    assert (answer.text, answer.stopped, answer.steps, queries(tools)) == ("Issel", "answer", 2, [WHO])
    untagged = '{"name": "answer", "arguments": {"text": "Issel"}}'
    assert (await replay([untagged], "tools"))[0].text == "Issel", "a call without its tag"


async def test_turns_are_capped_and_the_last_is_read_for_its_answer_alone():
    searching = [f"<search>glass {number}</search>" for number in range(3)]
    answer, _, tools = await replay(searching, max_turns=2)
    assert (answer.text, answer.stopped, answer.steps) == ("", "max_turns", 3)
    assert queries(tools) == ["glass 0", "glass 1"], "no search after the last turn"
    answer, _, _ = await replay([*searching[:2], "<answer>Issel</answer>"], max_turns=2)
    assert (answer.text, answer.stopped) == ("Issel", "answer")
    answer, _, _ = await replay(["<answer>Issel</answer>"], max_turns=0)
    assert (answer.text, answer.steps) == ("Issel", 1)


@pytest.mark.parametrize("preset", ["search_r1", "zerosearch"])
async def test_a_turn_without_tags_gets_a_note_and_another_turn(preset):
    replies = ["<think>Hm.</think> It is the Issel.", "<answer>Issel</answer>"]
    answer, generator, _ = await replay(replies, preset)
    assert (answer.text, answer.stopped, answer.steps) == ("Issel", "answer", 2)
    assert generator.requests[1].prompt.prefix == replies[0] + INVALID
    _, generator, _ = await replay(replies, preset, note=" Theirs.")
    assert generator.requests[1].prompt.prefix == replies[0] + " Theirs."
    answer, _, _ = await replay(["Hm."] * 3, preset, max_turns=2)
    assert (answer.text, answer.stopped, answer.steps) == ("", "max_turns", 3), "notes count as turns"


@pytest.mark.parametrize("preset", ["research", "r1_searcher"])
async def test_elsewhere_a_turn_without_tags_is_the_end(preset):
    answer, _, tools = await replay(["It is the Issel."], preset)
    assert (answer.text, answer.stopped, answer.steps, queries(tools)) == ("", "end", 1, [])


async def test_the_tag_that_was_opened_last_counts_and_one_that_was_cut_off_does_not():
    replies = ["I could <search> or <answer>Issel</answer>"]
    assert (await replay(replies))[0].text == "Issel"
    replies = ["No <answer> yet: <search>Tarn Hollow</search>", "<answer>Issel</answer>"]
    answer, _, tools = await replay(replies)
    assert (answer.text, queries(tools)) == ("Issel", ["Tarn Hollow"])
    cut = ScriptedGenerator(["<search> the river of Tarn Hollow", "<answer>Issel"], cuts=True)
    answer, _, tools = await replaying.replay(search_r1, SearchR1Config(max_turn_tokens=4), [], generator=cut)
    assert (answer.text, queries(tools)) == ("Issel", [])
    assert cut.requests[1].prompt.prefix == "<search> the river of" + INVALID


async def test_a_long_result_is_cut_with_its_closing_tag():
    replies = [f"<search>{WHO}</search>", "<answer>Issel</answer>"]
    _, generator, _ = await replay(replies, max_result_tokens=6)
    assert generator.requests[1].prompt.prefix.endswith(
        '</search>\n\n<information>Doc 1(Title: "The Glass Orchard") The'
    )


@pytest.mark.parametrize(
    ("preset", "inserted"),
    [
        ("search_r1", "\n\n<information></information>\n\n"),
        ("zerosearch", "\n\n<information>No information available</information>\n\n"),
        ("research", " <result>\nnothing to search\n</result>"),
    ],
)
@pytest.mark.parametrize("query", ["sand", " "])
async def test_nothing_is_found(preset, inserted, query):
    replies = [f"<search>{query}</search>", r"<answer>\boxed{Issel}</answer>"]
    answer, generator, tools = await replay(replies, preset, retriever=WordRetriever([]))
    assert generator.requests[1].prompt.prefix == f"<search>{query}</search>{inserted}"
    assert len(queries(tools)) == bool(query.strip()) and "Issel" in answer.text


async def test_questions_end_as_the_checkpoint_knows_them():
    asked = replace(QUESTION, text="who wrote The Glass Orchard ")
    for preset, shown in (
        ("search_r1", "Question: who wrote The Glass Orchard?\n"),
        ("research", asked.text),
    ):
        generator = ScriptedGenerator(["<answer>x</answer>"])
        tools = replaying.Tools(asked, generator, WordRetriever(WORLD))
        await search_r1(asked, tools, SearchR1Config(preset=preset))
        assert generator.prompts[0].endswith(shown.strip(" ")), preset


async def test_the_base_models_of_research_continue_plain_text():
    replies = [" <think>Hm.</think> <search>glass</search>", r" <answer>\boxed{Issel}</answer>"]
    answer, generator, _ = await replay(replies, "research", prompt="research_base")
    first, second = generator.prompts
    assert first.endswith(f"User: {QUESTION.text}. Assistant:") and answer.text == "Issel"
    assert second.startswith(f"{first} <think>Hm.</think> <search>glass</search> <result>\n")


def test_queries_are_read_as_the_projects_read_them():
    assert bare_query(' "Emma"\tauthor... ') == "Emma author"
    assert [called("query", call) for call in ('{"arguments": {}}', "[]", "search", "")] == [""] * 4


async def test_thoughts_stay_in_the_transcript_and_may_search():
    thinking = f"<think>I need the author. <search> {WHO} </search>"
    inner = ScriptedGenerator([thinking, "<think>So.</think> <answer> Issel </answer>"])
    generator = ThinkingGenerator(inner, Thinking(), 100)
    answer, _, tools = await replay([], "search_r1", 0, generator)
    assert (answer.text, queries(tools)) == ("Issel", [WHO])
    assert inner.requests[1].prompt.prefix.startswith(f"{thinking}\n\n<information>")


async def test_a_forced_answer_is_read_as_the_preset_writes_one():
    replies = [f"<search> {WHO} </search>", r" The answer is \[ \boxed{Jane Austen} \] "]
    answer, _, _ = await replay(replies, "research", 400, max_turn_tokens=50)
    assert (answer.text, answer.stopped) == ("Jane Austen", "budget")
