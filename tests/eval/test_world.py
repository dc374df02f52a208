"""The world is what it says: the same everywhere, answerable by its facts, split by things, and worth more
than one search.
"""

from __future__ import annotations

import itertools
import math
import random
import re
import tracemalloc
from collections import Counter, defaultdict
from collections.abc import Sequence

import pytest

from corag.core.errors import DataError
from corag.core.types import Passage, Question
from eval.datasets.world import Province, generate
from eval.datasets.world.facts import build
from eval.datasets.world.questions import MAX_QUESTIONS, QuestionWriter, WorldQuestion
from eval.datasets.world.relations import COMPARISONS, RELATIONS
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


def test_answers_are_short_and_carry_aliases(questions: list[Question]) -> None:
    assert (
        max(len(question.answers[0].split()) for question in questions if question.kind != "comparison") <= 9
    )
    person = next(question for question in questions if question.kind == "intersection")
    first, last = person.answers[0].split()
    assert re.fullmatch(f"{first} [A-Z][a-z]+ {last}", person.answers[1])
    river = next(question for question in questions if question.answers[0].startswith("River "))
    assert river.answers[1] == river.answers[0].removeprefix("River ")
    replies = Counter(question.answers[0] for question in questions if question.answers[0] in ("yes", "no"))
    assert 0.35 < replies["yes"] / replies.total() < 0.65


class BM25:
    """Twenty lines of BM25 over title and text, enough to see what one search can find."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.passages = passages
        self.postings: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.lengths = []
        for i, passage in enumerate(passages):
            words = self.words(passage.contents)
            self.lengths.append(len(words))
            for word, count in Counter(words).items():
                self.postings[word].append((i, count))

    @staticmethod
    def words(text: str) -> list[str]:
        return re.findall(r"\w+", text.lower())

    def search(self, query: str, k: int) -> list[str]:
        average, scores = sum(self.lengths) / len(self.lengths), Counter[int]()
        for word in self.words(query):
            found = self.postings.get(word, [])
            idf = math.log(1 + (len(self.passages) - len(found) + 0.5) / (len(found) + 0.5))
            for i, tf in found:
                scores[i] += idf * tf * 1.9 / (tf + 0.9 * (0.6 + 0.4 * self.lengths[i] / average))
        return [self.passages[i].id for i, _ in scores.most_common(k)]


def test_one_search_is_not_enough_but_gold_sub_questions_are(
    passages: dict[str, Passage], questions: list[Question]
) -> None:
    index = BM25(list(passages.values()))
    at_once: dict[str, list[float]] = defaultdict(list)
    by_hops: list[float] = []
    for question in questions[::3]:
        gold = set(question.supporting)
        at_once[f"{question.kind} {question.hops}"].append(
            len(gold & set(index.search(question.text, 5))) / len(gold)
        )
        found = {id_ for hop in question.decomposition for id_ in index.search(hop.question, 5)}
        by_hops.append(len(gold & found) / len(gold))
    recall = {kind: sum(values) / len(values) for kind, values in at_once.items()}
    assert recall["single 1"] > 0.95
    assert recall["bridge 2"] < 0.7 and recall["bridge 3"] < 0.55 and recall["bridge 4"] < 0.45, recall
    assert sum(by_hops) / len(by_hops) > 0.97


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


def test_a_world_is_streamed_not_held() -> None:
    """At its highest, memory is well below the mere letters of the passages that went by."""
    letters = 0
    tracemalloc.start()
    for province in generate(passages=2500, train=200, dev=0, test=0):
        letters += sum(len(passage.text) for passage in province.passages)
    _, highest = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert highest < 0.5 * letters


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        ({"passages": 499}, "500 to 1,000,000"),
        ({"passages": 1_000_001}, "500 to 1,000,000"),
        ({"passages": 500, "train": 601}, "at least 600 passages"),
        ({"dev": -1}, "cannot be negative"),
    ],
)
def test_impossible_sizes_are_refused(sizes: dict[str, int], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        generate(**sizes)


def test_a_province_that_has_nothing_more_to_ask_says_so(world: list[Province]) -> None:
    with raises_message(DataError):
        list(QuestionWriter(world[0].facts, random.Random(0)).ask(100_000, 0))


def test_comparison_table_speaks_of_known_relations() -> None:
    for rule in COMPARISONS:
        for first, second in itertools.pairwise(rule.path):
            assert RELATIONS[first].range == RELATIONS[second].domain
        assert (rule.pick == "same") == bool(rule.otherwise)
