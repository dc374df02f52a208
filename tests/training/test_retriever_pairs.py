"""Pairs that a retriever learns from: which passages are right for a query, which wrong, and what neither."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pytest

from corag.chains.chain import Hop
from corag.cli.main import main
from corag.core.errors import ConfigError, DataError
from corag.core.types import GoldHop, Hit, Passage, Question
from tests.fakes import WordRetriever, passage
from tests.messages import raises_message
from tests.story import AUTHOR, BOOK, NOISE, TOWN, WORLD
from training.chains import ChainRow
from training.retriever_pairs import (
    RetrieverPairsConfig,
    RetrieverPairsReport,
    chain_queries,
    gold_queries,
    write_retriever_pairs,
)
from training.sampling import SampledChain

BY_ID = {each.id: each for each in WORLD}
GOLDS = (BOOK.id, AUTHOR.id, TOWN.id)
QUESTION = Question(
    "q1",
    "Which river flows by the birthplace of the author of The Glass Orchard?",
    ("Issel",),
    supporting=GOLDS,
    decomposition=(
        GoldHop("Who wrote The Glass Orchard?", "Mara Velden"),
        GoldHop("Where was #1 born?", "Tarn Hollow"),
        GoldHop("Which river flows by #2?", "Issel"),
    ),
)
ALL = RetrieverPairsConfig(validation=0)
ISSEL, TARN = passage("Issel", "A river."), passage("Tarn", "A small lake.")


def queries(question: Question, config: RetrieverPairsConfig = ALL) -> list[tuple[str, int, tuple[str, ...]]]:
    return [(each.text, each.hop, each.positives) for each in gold_queries(question, BY_ID, config)]


def test_each_gold_sub_question_has_the_passage_that_answers_it() -> None:
    """No hop says which passage that is: title and answer do."""
    assert queries(QUESTION) == [
        (QUESTION.text, 0, GOLDS),
        ("Who wrote The Glass Orchard?", 1, (BOOK.id,)),
        ("Where was Mara Velden born?", 2, (AUTHOR.id,)),
        ("Which river flows by Tarn Hollow?", 3, (TOWN.id,)),
    ]
    assert queries(QUESTION, replace(ALL, whole=False)) == queries(QUESTION)[1:]


def test_the_passage_that_a_dataset_names_is_right_whatever_it_says() -> None:
    hop = GoldHop("Who wrote The Glass Orchard?", "Mara Velden", NOISE.id)
    assert queries(replace(QUESTION, decomposition=(hop,)))[1] == (hop.question, 1, (NOISE.id,))


def test_a_sub_question_that_two_passages_may_answer_has_none() -> None:
    hop = GoldHop("What is it?", "Mara Velden")
    assert queries(replace(QUESTION, decomposition=(hop,)))[1][2] == ()


def test_yes_and_no_tell_no_passage() -> None:
    question = replace(QUESTION, decomposition=(GoldHop("Was Mara Velden born in Norway?", "no"),))
    by_id = BY_ID | {"no": replace(passage("Oslo", "It has no king."), id="no")}
    wrong = replace(question, supporting=(AUTHOR.id, "no"))
    assert [each.positives for each in gold_queries(wrong, by_id, replace(ALL, whole=False))] == [
        (AUTHOR.id,)
    ]


async def test_negatives_are_searched_for_as_decoding_searches(tmp_path: Path) -> None:
    searched: list[tuple[str, bool]] = []

    class Recording(WordRetriever):
        async def search(self, query: str, k: int, hop: bool = False) -> list[Hit]:
            searched.append((query, hop))
            return await super().search(query, k, hop)

    report = RetrieverPairsReport({"chains": []})
    world = Recording([*WORLD, ISSEL, TARN])
    await write_retriever_pairs([QUESTION], {}, tmp_path / "pairs", world, ALL, report)
    assert searched[0] == (QUESTION.text, False) and {hop for _, hop in searched[1:]} == {True}


def test_sub_queries_are_searched_with_the_text_of_decoding() -> None:
    texts = [each[0] for each in queries(QUESTION, replace(ALL, text="answer", whole=False))]
    assert texts[:2] == ["Who wrote The Glass Orchard?", "Where was Mara Velden born? Mara Velden"]
    with_question = queries(QUESTION, replace(ALL, text="question"))
    assert with_question[1][0] == f"Who wrote The Glass Orchard? {QUESTION.text}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Where was the author of The Glass Orchard born?", [("The Glass Orchard", AUTHOR.id)]),
        ("Where was its author born?", [("The Glass Orchard", AUTHOR.id), ("Mara Velden", BOOK.id)]),
    ],
)
def test_without_sub_questions_the_passage_that_the_question_names_comes_first(
    text: str, expected: list[tuple[str, str]]
) -> None:
    """Or each may be the first."""
    question = Question("q", text, ("Tarn Hollow",), supporting=(BOOK.id, AUTHOR.id))
    found = queries(question)
    assert found[0] == (text, 0, (BOOK.id, AUTHOR.id))
    assert found[1:] == [(f"{text} {title}", 2, (name,)) for title, name in expected]


def row(*hops: Hop, supporting: tuple[str, ...] = GOLDS, best: int | None = 0) -> ChainRow:
    chain = SampledChain(hops, (-1.0,) * len(hops), (-1.0,) * len(hops), len(hops), "length")
    question = Question("q1", QUESTION.text, ("Issel",), supporting)
    return ChainRow(question, (), (chain,), best, "")


def test_of_kept_chains_the_passages_with_the_sub_answer_are_right() -> None:
    hops = (
        Hop("Who wrote it?", "Mara Velden", False, (NOISE.id, BOOK.id, AUTHOR.id)),
        Hop("Who else?", "No relevant information found", True, (NOISE.id,)),
        Hop("What is glassware?", "sand", False, (NOISE.id, TOWN.id)),
    )
    made = list(chain_queries(row(*hops), BY_ID, ALL))
    assert [(each.text, each.hop, each.positives) for each in made] == [
        ("Who wrote it?", 1, (BOOK.id, AUTHOR.id)),
        ("What is glassware?", 3, ()),  # it is read there, but the dataset does not call it gold
    ]
    without_gold = list(chain_queries(row(*hops, supporting=()), BY_ID, ALL))
    assert without_gold[1].positives == (NOISE.id,)
    assert list(chain_queries(row(*hops, best=None), BY_ID, ALL)) == []
    no = Hop("Was it?", "no", False, (NOISE.id, BOOK.id))
    by_chance = BY_ID | {BOOK.id: replace(BOOK, text="There were no survivors.")}
    assert [each.positives for each in chain_queries(row(no, supporting=()), by_chance, ALL)] == [()]
    copies = BY_ID | {"copy": replace(BOOK, id="copy")}
    with_copy = list(chain_queries(row(*hops, supporting=("copy",)), copies, ALL))
    assert [each.positives for each in with_copy] == [(BOOK.id,), ()]


async def write(
    tmp_path: Path, *questions: Question, others: Sequence[Passage] = (), chains: Any = (), **settings: Any
) -> RetrieverPairsReport:
    world = [*WORLD, ISSEL, TARN, *others]
    report = RetrieverPairsReport({"chains": [], **settings})
    return await write_retriever_pairs(
        questions, dict(chains), tmp_path / "pairs", WordRetriever(world), ALL, report
    )


async def test_wrong_passages_are_hits_that_neither_are_gold_nor_hold_the_answer(tmp_path: Path) -> None:
    report = await write(tmp_path, QUESTION)
    rows = datasets.load_from_disk(str(tmp_path / "pairs"))["train"].to_list()
    found = {each["query"]: each for each in rows}
    whole = found[QUESTION.text]
    assert whole["positives"] == [BOOK.contents, AUTHOR.contents, TOWN.contents]
    assert whole["negatives"] == [NOISE.contents]
    wrong = {text for each in rows for text in each["negatives"]}
    assert ISSEL.contents not in wrong, "it holds the answer"
    assert found["Which river flows by Tarn Hollow?"]["negatives"] == [TARN.contents]
    assert wrong.isdisjoint(BY_ID[name].contents for name in GOLDS)
    assert report.left_out == {"every hit is right": 2} and report.questions == 1


async def test_what_gold_passages_mean_by_text_part_or_title_is_not_wrong(tmp_path: Path) -> None:
    others = [replace(NOISE, id="copy"), replace(NOISE, id="copy#2", text="Tarn's glass.")]
    question = replace(QUESTION, supporting=(*GOLDS, "copy", "title:Lake"))
    await write(tmp_path, question, others=[*others, passage("Lake > Tarn", "A lake by Tarn.")])
    rows = datasets.load_from_disk(str(tmp_path / "pairs"))["train"]
    assert {text for texts in rows["negatives"] for text in texts} == {TARN.contents}


async def test_sampled_and_gold_queries_of_a_question_stand_beside_each_other(tmp_path: Path) -> None:
    hops = (
        Hop("Who wrote The Glass Orchard?", "Mara Velden", False, (BOOK.id,)),
        Hop("Whose Glassware?", "Mara Velden", False, (BOOK.id, NOISE.id)),
    )
    report = await write(tmp_path, QUESTION, chains={"q1": row(*hops)})
    assert report.left_out["twice for one question"] == 1
    assert report.lengths["train/chain"].queries == 1
    assert any("chain" in line for line in report.lines())


async def test_what_gives_no_pair_is_counted_and_nothing_at_all_is_an_error(tmp_path: Path) -> None:
    bare = Question("q2", "Who?", ("Issel",))
    gone = Question("q3", "Glassware of whom?", ("x",), supporting=("nowhere",))
    report = await write(tmp_path, QUESTION, bare, gone)
    assert report.left_out["question without gold passages"] == 1
    assert report.left_out["gold passage whose id is not in the index"] == 1
    with raises_message(DataError):
        await write(tmp_path / "none", bare)
    assert not (tmp_path / "none" / "pairs").exists()


async def test_pairs_of_the_same_settings_are_left_and_others_refused(tmp_path: Path) -> None:
    first = await write(tmp_path, QUESTION, retriever="a")
    assert await write(tmp_path, QUESTION, retriever="a") == first
    with raises_message(ConfigError):
        await write(tmp_path, QUESTION, retriever="b")


@pytest.mark.slow
def test_from_a_question_file_to_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["world", str(tmp_path / "world"), "--passages", "500"]) == 0
    world = tmp_path / "world"
    assert main(["index", str(world / "corpus.jsonl"), "--out", str(tmp_path / "index")]) == 0
    words = ["pairs", "--questions", str(world / "train.jsonl"), "--limit", "20"]
    words += ["--retriever.index", str(tmp_path / "index"), "--retriever.links", "titles"]
    assert main([*words, "--out", str(tmp_path / "pairs")]) == 0
    assert "train/sub_query" in capsys.readouterr().out
    rows = datasets.load_from_disk(str(tmp_path / "pairs"))["train"].to_list()
    assert all(each["positives"] and each["negatives"] for each in rows)
    assert not any(set(each["positives"]) & set(each["negatives"]) for each in rows)
