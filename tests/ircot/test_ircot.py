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


async def test_few_shot_layout_byte_for_byte(tmp_path):
    file = tmp_path / "demos.txt"
    file.write_text(DEMONSTRATIONS)
    config = IRCoTConfig(
        k_per_step=1, demonstrations=str(file), stop_rule="strict", reader="direct", max_steps=2
    )
    _, generator, _ = await replay(
        ["The Glass Orchard is by Mara Velden.", "So the answer is: Issel.", "Issel"], config
    )
    demo = DEMONSTRATIONS.split("\n", 1)[1]
    book = "Wikipedia Title: The Glass Orchard\nThe Glass Orchard is a novel by Mara Velden.\n\n"
    asked = f"Q: {QUESTION.text}\nA:"
    assert generator.prompts[0] == f"{demo}\n\n\n{book}{asked}"
    author = "Wikipedia Title: Mara Velden\nMara Velden is a writer born in Tarn Hollow.\n\n"
    direct = demo.replace("Alpha was founded by Beta. So the answer is: Beta.", "Beta")
    assert generator.prompts[1].startswith(f"{demo}\n\n\n{book}")
    assert generator.prompts[1].endswith(f"{asked} The Glass Orchard is by Mara Velden.")
    assert generator.prompts[2].startswith(f"{direct}\n\n\n{book}") and generator.prompts[2].endswith(asked)
    assert author not in generator.prompts[0]
    assert generator.requests[0].prompt.plain and generator.requests[0].sampling.stop == ("\n",)
    drops = [
        segment.drop
        for segment in generator.requests[1].prompt.messages[0].segments
        if segment.kind != "text"
    ]
    assert drops == sorted(drops), "demonstrations are dropped from the front, and before any passage"


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


def test_impossible_options_are_refused():
    with raises_message(ConfigError):
        IRCoTConfig(max_steps=0)
    with raises_message(ConfigError):
        IRCoTConfig(reasoning_prompt="nope").templates()
    with raises_message(ConfigError):
        IRCoTConfig(reasoning_prompt="{query} {cot}").reasoning_template().render(
            {"query": "q", "cot_history": ""}
        )


@pytest.mark.parametrize("preset", ["paper", "paper_code", "paper_flan"])
async def test_every_few_shot_preset_works_with_the_shipped_demonstrations(preset):
    config = IRCoTConfig(preset=preset, demonstrations="default", k_per_step=1)
    replies = ["The Glass Orchard is by Mara Velden.", "So the answer is: Issel.", "Issel."]
    answer, generator, _ = await replay(replies, config)
    assert (answer.text, answer.stopped, answer.steps) == ("Issel", "answer", 2)
    thoughts, reader = generator.prompts[:2], generator.prompts[2]
    shown, asked = f"Q: {'{}'}Which river is longer", f"Q: {'{}'}{QUESTION.text}\nA:"
    before = "Answer the following question by reasoning step-by-step.\n" if preset == "paper_flan" else ""
    for prompt in thoughts:
        assert prompt.count("\nQ: ") == 5, "four examples and the question"
        assert shown.format(before) in prompt and asked.format(before) in prompt
        assert "A: The Seine is 777 kilometres long." in prompt
    flan = preset == "paper_flan"
    before = "Answer the following question.\n" if flan else ""
    assert shown.format(before) in reader and reader.endswith(asked.format(before))
    assert ("A: the Rhine\n" in reader) == flan, "its reader is direct"
    most = [request.sampling.max_tokens for request in generator.requests]
    assert most == [200 if flan else 300] * 3


async def test_a_prompt_without_any_paragraph_is_the_examples_and_the_question():
    config = IRCoTConfig(preset="paper", demonstrations="default", demonstration_ids=["rivers"])
    replies = ["Nobody knows it.", "So the answer is: Issel.", "Issel"]
    answer, generator, _ = await replay(replies, config, WordRetriever([]))
    assert (answer.text, answer.steps, answer.passage_ids) == ("Issel", 2, ())
    example = generator.prompts[0].split("\n\n\n")[0]
    assert example.startswith("Wikipedia Title: Seine") and example.endswith("So the answer is: the Rhine.")
    assert generator.prompts[0] == generator.prompts[2] == f"{example}\n\n\nQ: {QUESTION.text}\nA:"
    assert generator.prompts[1] == f"{example}\n\n\nQ: {QUESTION.text}\nA: Nobody knows it."


async def test_the_last_demonstrations_go_until_the_rest_fit_with_room_for_the_longest():
    sizes = {}
    for window in (0, 686, 685, 500, 250):
        config = IRCoTConfig(
            preset="paper",
            demonstrations="default",
            k_per_step=1,
            demonstration_window=window,
            max_thought_tokens=50,
        )
        _, generator, _ = await replay(["It is by Mara Velden.", "The answer is Issel", "Issel"], config)
        thoughts = [prompt.split("\n\n\n")[:-1] for prompt in generator.prompts[:2]]
        assert thoughts[0] == thoughts[1]
        sizes[window] = thoughts[0]
    whole = sizes[0]
    assert len(whole) == 4 and sizes[686] == whole
    assert [len(sizes[window]) for window in (685, 500, 250)] == [3, 2, 1]
    assert all(shown == whole[: len(shown)] for shown in sizes.values()), "the first stay"
    lengths = [len(shown.split()) for shown in whole]
    assert sum(lengths) + max(lengths) + 50 == 686


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


def test_a_prefix_of_a_file_is_not_written_twice_and_gives_way_to_the_readers(tmp_path):
    file = tmp_path / "demos.txt"
    prefix = "Answer the following question by reasoning step-by-step.\n"
    file.write_text(DEMONSTRATIONS.replace("Q: ", f"Q: {prefix}"))
    config = IRCoTConfig(preset="paper_flan", demonstrations=str(file))
    assert [shown.question for shown in config.examples()] == [f"{prefix}Who founded Alpha?"]
    line = "Answer the following question."
    one_step = OneStepConfig(demonstrations=str(file), reader_question_prefix=line)
    for each in (config, one_step):
        assert [shown.question for shown in each.reader_examples()] == [f"{line}\nWho founded Alpha?"]


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
