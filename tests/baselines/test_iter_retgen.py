"""ITER-RETGEN replayed by hand: two and more rounds, the cap, the early stop, poor generations, nothing
found, no tokens left.
"""

from dataclasses import replace

from corag.baselines.iter_retgen import IterRetGenConfig, iter_retgen
from corag.core.options.classes import change_options
from corag.core.tools import SearchStep, Tools
from tests.baselines import replaying
from tests.fakes import ScriptedGenerator, WindowedGenerator, WordRetriever, words
from tests.story import AUTHOR, BOOK, DEMONSTRATIONS, QUESTION, TOWN, WORLD

FIRST = "It is by Mara Velden of Tarn Hollow.\nSo the answer is: Tarn Hollow."
SECOND = "Tarn Hollow lies on the Issel. So the answer is: Issel."


async def replay(replies, config=None, *given, **named):
    return await replaying.replay(iter_retgen, config or IterRetGenConfig(k=2), replies, *given, **named)


async def test_the_second_round_searches_with_the_first_generation_and_reads_its_own_passages_only():
    answer, generator, tools = await replay([FIRST, SECOND])
    assert (answer.text, answer.stopped, answer.steps) == ("Issel", "iterations", 2)
    queries = [step.query for step in tools.steps if isinstance(step, SearchStep)]
    assert queries == [QUESTION.text, f"{' '.join(FIRST.split())} {QUESTION.text}"]
    assert BOOK.text in generator.prompts[0] and TOWN.text in generator.prompts[0]
    assert BOOK.text in generator.prompts[1] and AUTHOR.text in generator.prompts[1]
    assert TOWN.text not in generator.prompts[1], "the first round's passages are not shown again"
    assert "of Tarn Hollow." not in generator.prompts[1], "nor is its generation"
    assert answer.passage_ids == ("the glass orchard", "tarn hollow", "mara velden")
    assert [round_.answer for round_ in answer.rounds] == ["Tarn Hollow", "Issel"]
    assert answer.rounds[0].generation == FIRST
    assert (
        list(tools.ledger) == ["generation", "reader"] and tools.spent.calls == len(generator.requests) == 2
    )


async def test_the_question_is_searched_for_as_it_is_written():
    """Then it is known as the question, and no hop encoder serves it."""
    spaced = replace(QUESTION, text=QUESTION.text.replace(" ", "  ", 1))
    tools = Tools(spaced, ScriptedGenerator([FIRST]), WordRetriever(WORLD), question_note="the question")
    await iter_retgen(spaced, tools, IterRetGenConfig(iterations=1))
    assert [step.note for step in tools.steps if isinstance(step, SearchStep)] == ["the question"]


async def test_an_answer_that_cites_is_kept_whole_with_the_passages_that_have_its_numbers():
    cited = "It is by Mara Velden [2].\nShe lives there [1]."
    answer, _, _ = await replay([FIRST, cited], IterRetGenConfig(k=2, qa_prompt="chat_documents"))
    assert answer.text == cited
    assert answer.shown_ids == answer.rounds[1].passage_ids != answer.passage_ids


async def test_the_cap():
    replies = [FIRST, "So the answer is: the Issel.", SECOND, "unasked"]
    answer, generator, tools = await replay(replies, IterRetGenConfig(k=1, iterations=3))
    assert (answer.stopped, answer.steps, answer.text) == ("iterations", 3, "Issel")
    assert sum(isinstance(step, SearchStep) for step in tools.steps) == len(generator.requests) == 3


async def test_an_empty_generation_searches_with_the_question_and_one_without_a_statement_is_its_first_line():
    answer, _, tools = await replay(["  ", "The Issel.\nMore words."])
    queries = [step.query for step in tools.steps if isinstance(step, SearchStep)]
    assert queries == [QUESTION.text, QUESTION.text]
    assert answer.text == "The Issel" and answer.rounds[0].answer == ""


async def test_a_full_window_keeps_the_best_passage_of_a_round():
    config = IterRetGenConfig(k=2, max_answer_tokens=20)
    _, whole, _ = await replay([FIRST, SECOND], config)
    window = min(map(words, whole.prompts)) + 20 - 1
    full = WindowedGenerator([FIRST, SECOND], window)
    answer, _, _ = await replay([], config, generator=full)
    for round_, prompt in zip(answer.rounds, full.seen, strict=True):
        best, worst = (next(known for known in WORLD if known.id == name) for name in round_.passage_ids)
        assert best.text in prompt.text and worst.text not in prompt.text


async def test_a_spent_budget_answers_with_the_last_round():
    answer, generator, tools = await replay(
        [FIRST, SECOND], IterRetGenConfig(k=1, max_answer_tokens=20), budget=140
    )
    assert (answer.stopped, answer.steps, answer.text) == ("budget", 1, "Tarn Hollow")
    assert len(generator.requests) == 1 and tools.spent.total <= 140
    answer, _, _ = await replay([], budget=1)
    assert (answer.stopped, answer.text) == ("budget", "")


async def test_the_papers_preset_shows_three_demonstrations(tmp_path):
    file = tmp_path / "demos.txt"
    file.write_text("\n\n\n".join(DEMONSTRATIONS.replace('"d1"', f'"d{n}"') for n in range(5)))
    config = change_options(
        IterRetGenConfig(), {"preset": "paper", "demonstrations": str(file), "T": 3, "top_k": 1}
    )
    assert (config.iterations, config.k, config.reader) == (3, 1, "cot")
    _, generator, _ = await replay([FIRST.split("\n")[0], SECOND, SECOND], config)
    assert generator.prompts[0].count("Q: Who founded Alpha?") == 3
    assert generator.prompts[0].endswith(f"{BOOK.text}\n\nQ: {QUESTION.text}\nA:")
    assert generator.requests[0].prompt.plain and generator.requests[0].sampling.stop == ("\n",)
