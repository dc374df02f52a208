"""The world is what it says: the same everywhere, answerable by its facts, split by things, and worth more
than one search.
"""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter, defaultdict
from collections.abc import Sequence

import pytest

from corag.core.errors import DataError
from corag.core.types import Passage, Question
from eval.datasets.world import Province, generate
from eval.datasets.world.facts import build
from eval.datasets.world.questions import MAX_QUESTIONS, QuestionWriter, WorldQuestion
from tests.messages import raises_message

Triples = set[tuple[str, str, str]]


@pytest.fixture(scope="module")
def world() -> list[Province]:
    return list(generate(seed=3))


@pytest.fixture(scope="module")
def passages(world: list[Province]) -> dict[str, Passage]:
    return {passage.id: passage for province in world for passage in province.passages}


@pytest.fixture(scope="module")
def questions(world: list[Province]) -> list[Question]:
    return [question for province in world for question in province.questions]


def triples_of(province: Province) -> Triples:
    about = province.facts.about
    return {(s, r, o.name) for s, facts in about.items() for r, objects in facts.items() for o in objects}


def ends(triples: Triples, anchor: str, path: Sequence[str]) -> set[str]:
    """Follow a relation path from one name to all the names that it can reach."""
    reached = {anchor}
    for relation in path:
        reached = {o for s, r, o in triples if s in reached and r == relation}
    return reached


def answers_by_facts(asked: WorldQuestion, triples: Triples) -> set[str]:
    """Answer a question from the bare triples, without the code that made it."""
    first, relations = asked.hops[0].subject.name, [hop.relation for hop in asked.hops]
    if asked.kind == "intersection":
        wanted = asked.hops[1].objects[0].name
        return {m for m in ends(triples, first, relations[:1]) if (m, relations[1], wanted) in triples}
    if asked.kind != "comparison":
        return ends(triples, first, relations)
    path, second = relations[: len(relations) // 2], asked.hops[len(relations) // 2].subject.name
    (a,), (b,) = ends(triples, first, path), ends(triples, second, path)
    if asked.answer.name in ("yes", "no"):
        return {"yes" if a == b else "no"}
    by_value = sorted([(int(re.sub(r"\D", "", a)), first), (int(re.sub(r"\D", "", b)), second)])
    assert by_value[0][0] != by_value[1][0]
    greatest = re.search(r"\b(later|more|larger|longer)\b", asked.text) is not None
    return {by_value[greatest][1]}


def test_sizes_are_exactly_what_was_asked_for() -> None:
    world = list(generate(seed=1, passages=777, train=250, dev=1, test=3))
    ids = [passage.id for province in world for passage in province.passages]
    assert len(ids) == len(set(ids)) == 777
    counts = Counter({province.split: 0 for province in world})
    for province in world:
        counts[province.split] += len(province.questions)
    assert counts == {"train": 250, "dev": 1, "test": 3, "": 0}


def test_every_question_has_the_one_answer_that_the_facts_give(world: list[Province]) -> None:
    kinds: Counter[tuple[str, int]] = Counter()
    for province in world:
        triples = triples_of(province)
        for asked, question in zip(province.drafts, province.questions, strict=True):
            assert answers_by_facts(asked, triples) == {question.answers[0]}, question.text
            kinds[question.kind, question.hops] += 1
    assert {
        ("single", 1),
        ("bridge", 2),
        ("bridge", 3),
        ("bridge", 4),
        ("comparison", 2),
        ("comparison", 4),
        ("intersection", 2),
    } == set(kinds)
    assert min(kinds.values()) >= 20


def test_each_hop_is_told_by_its_passage(questions: list[Question], passages: dict[str, Passage]) -> None:
    for question in questions:
        assert {hop.passage_id for hop in question.decomposition} == set(question.supporting)
        assert len(question.supporting) == question.hops
        for hop in question.decomposition:
            passage = passages[hop.passage_id]
            if hop.question.startswith("Which of "):
                assert passage.title == hop.answer
            else:
                told = (
                    re.split(r", | and ", hop.answer)
                    if "winners" in hop.question or "directors" in hop.question
                    else [hop.answer]
                )
                assert all(name in passage.text for name in told), (hop, passage.text)


def test_a_bridge_is_never_shortened_by_its_later_passages(
    world: list[Province], passages: dict[str, Passage]
) -> None:
    for province in world:
        for asked, question in zip(province.drafts, province.questions, strict=True):
            if question.kind == "bridge":
                anchor = asked.hops[0].subject.name
                assert anchor in question.text and question.answers[0] not in question.text
                assert not any(anchor in passages[id_].contents for id_ in question.supporting[1:])


def test_splits_ask_about_different_things(
    world: list[Province], questions: list[Question], passages: dict[str, Passage]
) -> None:
    assert (
        len({question.text for question in questions})
        == len(questions)
        == len({question.id for question in questions})
    )
    things: dict[str, set[str]] = defaultdict(set)
    for province in world:
        for question in province.questions:
            things[province.split] |= {passages[id_].title for id_ in question.supporting}
            things[province.split] |= {
                hop.answer for hop in question.decomposition if hop.answer in province.pages
            }
    assert all(len(things[split]) > 50 for split in ("train", "dev", "test"))
    assert not any(things[a] & things[b] for a, b in itertools.combinations(things, 2))


@pytest.mark.parametrize("seed", range(3))
def test_every_province_holds_its_full_number_of_questions(seed: int) -> None:
    provinces = generate(
        seed=seed, passages=1000, train=8 * MAX_QUESTIONS, dev=MAX_QUESTIONS, test=MAX_QUESTIONS
    )
    assert [len(province.drafts) for province in provinces] == [MAX_QUESTIONS] * 10


def test_far_provinces_are_made_alone_and_keep_their_names_apart() -> None:
    """The names of the last province of the largest world exist.

    The first provinces do not depend on the world's size.
    """
    assert len(build(0, 9_999).entities) == 86
    small, large = (
        generate(seed=4, passages=500, train=1, dev=0, test=0),
        generate(seed=4, passages=900_000, train=1, dev=0, test=0),
    )
    assert next(small).passages == next(large).passages


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        ({"passages": 1_000_001}, "500 to 1,000,000"),
        ({"passages": 500, "train": 601}, "at least 600 passages"),
    ],
)
def test_impossible_sizes_are_refused(sizes: dict[str, int], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        generate(**sizes)


def test_a_province_that_has_nothing_more_to_ask_says_so(world: list[Province]) -> None:
    with raises_message(DataError):
        list(QuestionWriter(world[0].facts, random.Random(0)).ask(100_000, 0))
