"""One-step retrieval and closed-book answering."""

import pytest

from baselines.closed_book import ClosedBookConfig, closed_book
from baselines.one_step import OneStepConfig, one_step
from core.errors import ConfigError, SearchFailedError
from core.runner import answer_question
from core.tools import Tools
from core.types import Question
from scripts.methods import METHODS, MethodOptions, bind
from tests.fakes import ScriptedGenerator, WordRetriever, passage
from tests.story import DEMONSTRATIONS, QUESTION, WORLD


async def test_one_step_reads_what_one_search_found():
    generator, retriever = ScriptedGenerator(["Issel."]), WordRetriever(WORLD)
    tools = Tools(QUESTION, generator, retriever)
    answer = await one_step(QUESTION, tools, OneStepConfig(k=2))
    assert (answer.text, answer.steps, len(answer.passage_ids)) == ("Issel", 1, 2)
    assert retriever.queries == ["river flows by the birthplace of the author of The Glass Orchard?"]
    assert "The Glass Orchard is a novel" in generator.prompts[0]


async def test_one_step_with_nothing_found_still_answers():
    generator = ScriptedGenerator(["unknown"])
    answer = await one_step(QUESTION, Tools(QUESTION, generator, WordRetriever([])), OneStepConfig())
    assert answer.text == "unknown" and answer.passage_ids == ()


async def test_closed_book_shows_demonstrations_without_their_passages(tmp_path):
    file = tmp_path / "demos.txt"
    file.write_text(DEMONSTRATIONS)
    generator = ScriptedGenerator(["Issel"])
    answer = await closed_book(QUESTION, Tools(QUESTION, generator), ClosedBookConfig(demonstrations=str(file)))
    assert generator.prompts[0] == f"Q: Who founded Alpha?\nA: Beta\n\n\nQ: {QUESTION.text}\nA:"
    assert answer.text == "Issel"


async def test_closed_book_without_demonstrations_does_not_speak_of_passages():
    generator = ScriptedGenerator(["Issel"])
    await closed_book(QUESTION, Tools(QUESTION, generator), ClosedBookConfig())
    assert "passage" not in generator.prompts[0] and QUESTION.text in generator.prompts[0]


SEARCHES = {  # what a model says that is to search; other methods search before they ask
    "self_ask": " Yes.\nFollow up: What is The Glass Orchard?",
    "react": "Thought: Who?\nAction: search[The Glass Orchard]",
    "search_o1": "I must know: <|begin_search_query|>The Glass Orchard",
}


@pytest.mark.parametrize("name", METHODS)
async def test_every_method_reports_a_failed_search_as_a_failed_question(name):
    retriever = WordRetriever([passage("A", "a")], failing="Orchard")
    reply = SEARCHES.get(name, "So the answer is: X.")
    tools = Tools(QUESTION, ScriptedGenerator(lambda request: reply), retriever)
    row = await answer_question(QUESTION, bind(name, MethodOptions()), tools)
    if METHODS[name].searches:
        assert row.answer is None and SearchFailedError.__name__ in row.error
    else:
        assert row.answer is not None


async def test_searching_without_a_retriever_is_a_sentence():
    with pytest.raises(ConfigError, match=r"--retriever\.index"):
        await one_step(Question("q", "Who?"), Tools(Question("q", "Who?"), ScriptedGenerator([])), OneStepConfig())


def test_baselines_need_a_reader():
    for config in (OneStepConfig, ClosedBookConfig):
        with pytest.raises(ConfigError, match="reader"):
            config(reader="none")
