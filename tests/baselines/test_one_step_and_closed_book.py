"""One-step retrieval and closed-book answering."""

from corag.baselines.closed_book import ClosedBookConfig, closed_book
from corag.baselines.one_step import OneStepConfig, one_step
from corag.core.errors import ConfigError
from corag.core.tools import Tools
from tests.baselines.replaying import replay
from tests.fakes import ScriptedGenerator, WordRetriever
from tests.messages import raises_message
from tests.story import DEMONSTRATIONS, QUESTION, WORLD


async def test_one_step_reads_what_one_search_found():
    generator, retriever = ScriptedGenerator(["Issel."]), WordRetriever(WORLD)
    tools = Tools(QUESTION, generator, retriever)
    answer = await one_step(QUESTION, tools, OneStepConfig(k=2))
    assert (answer.text, answer.steps, len(answer.passage_ids)) == ("Issel", 1, 2)
    assert retriever.queries == ["river flows by the birthplace of the author of The Glass Orchard?"]
    assert "The Glass Orchard is a novel" in generator.prompts[0]


async def test_closed_book_shows_demonstrations_without_their_passages(tmp_path):
    file = tmp_path / "demos.txt"
    file.write_text(DEMONSTRATIONS)
    generator = ScriptedGenerator(["Issel"])
    answer = await closed_book(
        QUESTION, Tools(QUESTION, generator), ClosedBookConfig(demonstrations=str(file))
    )
    assert generator.prompts[0] == f"Q: Who founded Alpha?\nA: Beta\n\n\nQ: {QUESTION.text}\nA:"
    assert answer.text == "Issel"


async def test_closed_book_without_demonstrations_does_not_speak_of_passages():
    generator = ScriptedGenerator(["Issel"])
    await closed_book(QUESTION, Tools(QUESTION, generator), ClosedBookConfig())
    assert "passage" not in generator.prompts[0] and QUESTION.text in generator.prompts[0]


async def test_a_budget_too_small_for_all_passages_is_answered_with_fewer():
    config = OneStepConfig(max_answer_tokens=10)
    whole, _, tools = await replay(one_step, config, ["Issel"])
    most = tools.cost(tools.generator.requests[0].prompt, 10)
    for budget, stopped, shown in ((most, "read", 3), (most - 1, "budget", 2), (most - 30, "budget", 0)):
        answer, generator, tools = await replay(one_step, config, ["Issel"], budget=budget)
        assert (answer.text, answer.stopped, answer.steps) == ("Issel", stopped, 1)
        assert answer.passage_ids == whole.passage_ids and tools.spent.total <= budget
        assert (
            generator.prompts[0].count("Wikipedia Title:") == shown and QUESTION.text in generator.prompts[0]
        )


async def test_without_a_reader_one_step_is_its_search_and_closed_book_is_nothing():
    answer, generator, _ = await replay(one_step, OneStepConfig(k=2, reader="none"), [])
    assert (answer.text, answer.steps, answer.stopped) == ("", 0, "searched")
    assert len(answer.passage_ids) == 2 and not generator.requests
    with raises_message(ConfigError):
        ClosedBookConfig(reader="none")
