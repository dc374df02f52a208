"""LongRAG replayed by hand: few long units, two turns, and recall on the passages that the units hold."""

import json

import pytest

from corag.baselines.longrag import LongRAGConfig, longrag
from corag.core.errors import ConfigError, DataError
from corag.core.tools import SearchStep
from corag.core.types import Passage
from corag.core.units import Unit
from tests.baselines import replaying
from tests.fakes import WordRetriever, words
from tests.messages import raises_message
from tests.story import QUESTION, WORLD

UNITS = [
    Unit("u1", ("mara velden", "the glass orchard")),
    Unit("u2", ("tarn hollow",)),
    Unit("u3", ("glassware",)),
]


@pytest.fixture
def units(tmp_path):
    file = tmp_path / "units.jsonl"
    file.write_text(
        "".join(json.dumps({"id": unit.id, "passages": unit.passage_ids}) + "\n" for unit in UNITS)
    )
    return str(file)


async def replay(replies, retriever=None, budget=0, **options):
    return await replaying.replay(longrag, LongRAGConfig(**options), replies, retriever, budget)


async def test_whole_units_are_read_in_two_turns(units):
    answer, generator, tools = await replay(
        ["Mara Velden wrote it; Tarn Hollow, her birthplace, lies on the Issel.", "Issel.\nNothing else."],
        units=units,
        k=2,
        depth=3,
    )
    assert (answer.text, answer.stopped, answer.steps) == ("Issel", "read", 2)
    assert answer.unit_ids == ("u1", "u2"), "a unit is as good as its best passage, and only k are read"
    # Mara Velden is not among the three passages found, but in the unit of one that is; found ones come
    # first.
    assert (
        answer.passage_ids == ("the glass orchard", "tarn hollow", "mara velden")
        and answer.passages_read == 3
    )
    read, extract = generator.prompts
    assert (
        read.index("Title: Mara Velden")
        < read.index("Title: The Glass Orchard")
        < read.index("Title: Tarn Hollow")
    )
    assert "Glassware" not in read and read.index("Tarn Hollow lies") < read.index(QUESTION.text)
    assert (
        f"Question: {QUESTION.text}\nLong answer: {answer.long_answer}" in extract and "Title:" not in extract
    )
    assert extract.count("Short answer:") == 9, "eight examples and the question"
    assert [step.k for step in tools.steps if isinstance(step, SearchStep)] == [3]
    assert list(tools.ledger) == ["long_answer", "short_answer"] and tools.spent.calls == 2
    assert sum(usage.total for usage in tools.ledger.values()) == tools.spent.total > 0


async def test_without_units_the_passages_of_a_title_are_one():
    parts = [Passage("p1", "River", "It flows by."), Passage("p2", "River", "A river which flows.")]
    answer, generator, _ = await replay(["x", "x"], WordRetriever([*parts, *WORLD]), k=2)
    assert answer.unit_ids == ("The Glass Orchard", "River")
    assert answer.passage_ids == ("the glass orchard", "p1", "p2")
    assert "A river which flows." in generator.prompts[0] and "Tarn Hollow" not in generator.prompts[0]


async def test_an_empty_long_answer_ends_it_and_malformed_short_ones_are_cut(units):
    answer, generator, _ = await replay(["  "], units=units)
    assert (answer.text, answer.stopped, answer.steps, len(generator.requests)) == (
        "",
        "empty_generation",
        1,
        1,
    )
    answer, _, _ = await replay(["long", '"Issel"\n\nQuestion: another'], units=units)
    assert answer.text == "Issel"
    answer, _, _ = await replay(["long", "The short answer is: Issel."], units=units)
    assert answer.text == "Issel"


async def test_a_budget_drops_the_end_of_the_worst_unit_and_keeps_the_second_turn(units):
    options = {"units": units, "max_long_answer_tokens": 12, "max_answer_tokens": 10}
    replies = ["The birthplace of Mara Velden lies on the Issel.", "Issel"]
    answer, generator, tools = await replay(replies, **options)
    segments = [s for s in generator.requests[0].prompt.messages[0].segments if s.kind == "passage"]
    extraction = tools.cost(generator.requests[1].prompt, 10) - words(replies[0]) + 12
    budget = tools.cost(generator.requests[0].prompt, 12) + extraction - words(segments[-1].text)
    answer, generator, tools = await replay(replies, budget=budget, **options)
    assert (answer.text, answer.stopped, answer.passages_read) == ("Issel", "read", 3)
    assert "Glassware" not in generator.prompts[0] and tools.spent.total <= budget
    assert "glassware" in answer.passage_ids, (
        "recall is about what was retrieved; what was read is counted apart"
    )
    answer, generator, tools = await replay(["never"], budget=60, **options)
    assert (answer.text, answer.stopped, answer.steps, tools.spent.total) == ("", "budget", 0, 0)


async def test_units_of_another_corpus_are_refused(tmp_path):
    file = tmp_path / "units.jsonl"
    file.write_text('{"id": "u1", "passages": ["elsewhere"]}\n')
    with raises_message(ConfigError):
        await replay([], units=str(file))


@pytest.mark.parametrize(
    "second", ['"u2", "passages": ["b", "a"]', '"u1", "passages": ["b"]', '"u2", "text": "b"']
)
def test_broken_files_are_refused(tmp_path, second):
    file = tmp_path / "units.jsonl"
    file.write_text(f'{{"id": "u1", "passages": ["a"]}}\n{{"id": {second}}}\n')
    with raises_message(DataError):
        LongRAGConfig(units=str(file)).check_files()


def test_a_run_with_another_file_of_units_is_another():
    assert LongRAGConfig(units="u.jsonl").files() == {"u.jsonl": "u.jsonl"}
