"""IRCoT replayed by hand: two hops, the cap, the early stop, and every rule that ports lose."""

from dataclasses import replace

import pytest

from corag.baselines.closed_book import ClosedBookConfig
from corag.baselines.one_step import OneStepConfig
from corag.core.errors import ConfigError
from corag.core.language.text import strip_question_words
from corag.core.tools import SearchStep, Tools
from ircot.method import IRCoTConfig, ircot, is_inference, next_query
from tests.fakes import ScriptedGenerator, WordRetriever
from tests.messages import raises_message
from tests.story import DEMONSTRATIONS, QUESTION, WORLD


async def replay(replies, config=None, retriever=None):
    generator = ScriptedGenerator(replies)
    tools = Tools(QUESTION, generator, retriever or WordRetriever(WORLD))
    return await ircot(QUESTION, tools, config or IRCoTConfig(k_per_step=1)), generator, tools


async def test_three_hops_then_the_reader():
    answer, generator, tools = await replay(
        [
            "The Glass Orchard was written by Mara Velden. She was born somewhere.",
            "Mara Velden was born in Tarn Hollow.",
            "Tarn Hollow lies on the Issel. So the answer is: Issel.",
            "So the answer is: Issel.",
            "Issel.",
        ]
    )
    assert answer.text == "Issel"
    assert answer.stopped == "answer"
    assert answer.cot_sentences == (
        "The Glass Orchard was written by Mara Velden.",  # only the first sentence is kept
        "Mara Velden was born in Tarn Hollow.",
        "Tarn Hollow lies on the Issel.",
        "So the answer is: Issel.",
    )
    assert answer.steps == 4
    # N sentences: N searches (the first by the question without its wh-word), N thoughts, one reader call.
    queries = [step.query for step in tools.steps if isinstance(step, SearchStep)]
    assert queries == [
        "river flows by the birthplace of the author of The Glass Orchard?",
        "The Glass Orchard was written by Mara Velden.",
        "Mara Velden was born in Tarn Hollow.",
        "Tarn Hollow lies on the Issel.",
    ]
    assert [step.role for step in tools.steps if not isinstance(step, SearchStep)] == ["thought"] * 4 + [
        "reader"
    ]
    assert set(answer.passage_ids) >= {"the glass orchard", "mara velden", "tarn hollow"}
    assert sum(usage.total for usage in tools.ledger.values()) == tools.spent.total > 0
    # The reader's prompt is fresh: passages and question, no thought.
    assert "She was born" not in generator.prompts[-1] and "written by Mara" not in generator.prompts[-1]
    assert generator.prompts[-1].index("Mara Velden is a writer") < generator.prompts[-1].index("Which river")


async def test_the_cap_ends_the_loop_without_a_further_search():
    replies = [f"Fact number {number} is about Mara Velden." for number in range(3)] + ["unknown"]
    answer, _, tools = await replay(replies, IRCoTConfig(k_per_step=1, max_steps=3))
    assert (answer.stopped, answer.steps, answer.text) == ("max_steps", 3, "unknown")
    assert sum(isinstance(step, SearchStep) for step in tools.steps) == 3


async def test_early_stop_at_the_first_thought_and_lenient_against_strict():
    answer, _, _ = await replay(["SO THE ANSWER IS: Issel.", "Issel"])
    assert (answer.stopped, answer.steps) == ("answer", 1)
    strict = IRCoTConfig(k_per_step=1, max_steps=2, stop_rule="strict")
    answer, _, _ = await replay(["SO THE ANSWER IS: Issel.", "Mara is a person.", "Issel"], strict)
    assert (answer.stopped, answer.steps) == ("max_steps", 2)


async def test_an_empty_generation_stops_and_the_reader_still_reads():
    answer, _, _ = await replay(["The Glass Orchard is by Mara Velden.", "  ", "Issel"])
    assert (answer.stopped, answer.steps, answer.text) == ("empty_generation", 2, "Issel")
    assert answer.cot_sentences[-1] == ""


async def test_a_chat_model_may_begin_its_thought_with_line_breaks():
    replies = ["\n\nMara Velden wrote it.\nShe was born in Oslo.", "\nSo the answer is: Issel.", "Issel"]
    answer, generator, _ = await replay(replies)
    assert (answer.stopped, answer.steps, answer.text) == ("answer", 2, "Issel")
    assert answer.cot_sentences == ("Mara Velden wrote it.", "So the answer is: Issel.")
    assert generator.requests[0].sampling.stop == () and "Oslo" not in generator.prompts[1]
    assert generator.requests[1].prompt.prefix == "Mara Velden wrote it."


async def test_inferences_are_not_queries_and_repeats_are_flagged():
    answer, _, _ = await replay(
        [
            "So we need the author.",
            "Thus it was 3 - 1 = 2 people.",
            "Mara Velden wrote it.",
            "So the answer is: X.",
            "X",
        ]
    )
    assert [retrieval.repeated_query for retrieval in answer.retrievals] == [False, True, True, False]
    assert answer.retrievals[1].new_passages == 0
    assert answer.retrievals[3].query == "Mara Velden wrote it."


async def test_a_spent_budget_answers_with_what_there_is():
    generator = ScriptedGenerator(
        ["Mara Velden wrote The Glass Orchard.", "She was born in Tarn Hollow.", "X", "Y"]
    )
    tools = Tools(QUESTION, generator, WordRetriever(WORLD), budget=300)
    answer = await ircot(QUESTION, tools, IRCoTConfig(k_per_step=1, max_thought_tokens=20))
    assert answer.stopped == "budget"
    assert answer.steps == len(generator.requests) == 2
    assert answer.text and tools.spent.total <= 300


async def test_no_reader_takes_the_answer_from_the_thoughts():
    config = IRCoTConfig(k_per_step=1, reader="none")
    answer, generator, _ = await replay(["Mara wrote it.", "So the answer is: the Issel."], config)
    assert answer.text == "the Issel" and len(generator.requests) == 2
    answer, _, _ = await replay(["Mara wrote it. ", "So the Answer is: the Issel."], config)
    assert answer.text == "the Issel", "the lenient rule that stops also finds the answer"
    answer, _, _ = await replay(["Answer is: İstanbul."], config)
    assert answer.text == "İstanbul", "which is longer in lower case"


def test_queries():
    assert (
        strip_question_words("Who is what's-his-name, and WHERE does he live?")
        == "what's-his-name, and he live?"
    )
    assert strip_question_words("What is") == ""
    for sentence in (
        "Thus, X.",
        "so the answer is: Y.",
        "Therefore Z.",
        "Hence.",
        "That is, W.",
        "It is 3 + 4 = 7 years.",
    ):
        assert is_inference(sentence), sentence
    assert not is_inference("Sofia is a city.")
    assert next_query("the question", ["A fact.", "So the end."]) == "A fact."
    assert next_query("the question", [""]) == "the question"
    assert next_query("the question", []) == "the question"


@pytest.mark.parametrize("method", [IRCoTConfig, OneStepConfig, ClosedBookConfig])
def test_a_direct_readers_file_counts_where_it_is_asked_for_and_nowhere_else(method, tmp_path):
    thinking, reading = (tmp_path / f"gold_{kind}_qa_x.txt" for kind in ("cot", "direct"))
    thinking.write_text(DEMONSTRATIONS)
    plain = method(demonstrations=str(thinking), reader="direct")
    beside = replace(plain, reader_demonstrations="beside")
    with raises_message(ConfigError):
        beside.check_files()
    assert [shown.answer for shown in plain.reader_examples()] == ["Beta"]
    reading.write_text("Wikipedia Title: Other\nOther text.\n\nQ: Who founded Alpha?\nA: Beta Inc.")
    assert [shown.answer for shown in plain.reader_examples()] == ["Beta"], "with a neighbour as without"
    assert set(plain.files()) == {str(thinking)}
    (shown,) = beside.reader_examples()
    assert shown.answer == "Beta Inc.", "as it stands"
    assert set(beside.files()) == {str(thinking), str(reading)}, "the run's manifest has both"
    thinks = replace(beside, reader="cot")
    assert [shown.answer for shown in thinks.reader_examples()] != ["Beta Inc."]
    own = replace(plain, reader_demonstrations=str(thinking))
    assert [shown.answer for shown in own.reader_examples()] == ["Beta"]
    thinks.check_files()


async def test_a_stop_sequence_is_heard_or_refused():
    for preset in ("paper", "paper_code", "paper_flan"):
        with pytest.raises(
            ConfigError, match=f"stop_sequence is 'Done:'.*'strict' .preset '{preset}'.*lenient"
        ):
            IRCoTConfig(preset=preset, demonstrations="default", stop_sequence="Done:")
        config = IRCoTConfig(
            preset=preset, demonstrations="default", stop_sequence="Done:", stop_rule="lenient", k_per_step=1
        )
        answer, _, _ = await replay(["It is by Mara Velden.", "DONE: Issel.", "Issel"], config)
        assert (answer.stopped, answer.steps) == ("answer", 2)
    with raises_message(ConfigError):
        IRCoTConfig(stop_sequence=" ")
