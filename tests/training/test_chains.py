"""Chains come back from disk as they were sampled, from the folders and prompts they were sampled with, and
are counted right.
"""

from dataclasses import replace

import pytest

from corag.chains.chain import Hop
from corag.chains.config import CoRAGConfig
from corag.core.errors import ConfigError, DataError
from corag.core.prompting.template import load_template
from corag.core.types import Question
from tests.fakes import PROMPTS
from tests.messages import raises_message
from tests.training.toy import QUESTION, REFUSAL, many, write_chains
from training.chains import ChainRow, describe, load_corag_options, read_chains
from training.sampling import SampleConfig, SampledChain

CORAG = CoRAGConfig(**PROMPTS, passages_per_hop=2, search_depth=3, context_passages=3, given_context="use")
SAMPLE = SampleConfig(chains=3, max_hops=3)


# ---- from disk


def test_chains_come_back_as_they_were_sampled(tmp_path):
    questions = [replace(each, context_ids=("tarn hollow", "mara velden")) for each in many(3)] + many(6)[3:]
    written = write_chains(tmp_path / "chains", SAMPLE, CORAG, questions=questions)
    read = read_chains([tmp_path / "chains"])
    assert [row.question for row in read] == [row.question for row in written] == questions
    assert [row.chains for row in read] == [row.answer.chains for row in written]
    assert [row.context_ids for row in read] == [row.answer.context_ids for row in written]
    assert [(row.best, row.rejected, row.error) for row in read] == [
        (row.answer.chosen, "", "") for row in written
    ]
    assert all(row.chain == row.chains[row.best] for row in read)
    assert any(len(row.chain.hops) >= 2 for row in read) and any(row.best > 0 for row in read)
    assert read[0].context_ids == ("tarn hollow", "mara velden")
    assert load_corag_options([tmp_path / "chains"]) == CORAG


def test_decompositions_and_rejections_come_back(tmp_path):
    nowhere = replace(QUESTION.decomposition[1], answer="Nowhere at all")
    broken = replace(QUESTION, id="q2", decomposition=(QUESTION.decomposition[0], nowhere))
    config = SampleConfig(source="decomposition")
    written = write_chains(tmp_path / "steps", config, CORAG, questions=[QUESTION, broken])
    kept, left_out = read_chains([tmp_path / "steps"])
    assert (
        kept.chains == written[0].answer.chains and len(kept.chain.hops) == 3 and len(kept.chain.means) == 1
    )
    assert (left_out.chain, left_out.rejected) == (None, written[1].answer.rejected)
    write_chains(tmp_path / "strict", replace(SAMPLE, reject_below=-0.1, sure_above=-0.1), CORAG)
    (rejected,) = read_chains([tmp_path / "strict"])
    assert (rejected.chain, rejected.rejected, len(rejected.chains)) == (None, "threshold", 3)


def test_failed_questions_come_back_as_failed_until_they_are_sampled(tmp_path):
    write_chains(tmp_path / "chains", SAMPLE, CORAG, questions=many(2), failing="birthplace")
    failed = read_chains([tmp_path / "chains"])
    assert [(row.chain, row.chains, row.rejected) for row in failed] == [(None, (), "")] * 2
    assert all("SearchFailedError" in row.error for row in failed)
    write_chains(tmp_path / "chains", SAMPLE, CORAG, questions=many(2))
    assert all(row.chain and not row.error for row in read_chains([tmp_path / "chains"]))


# ---- refusals


def test_the_same_question_in_two_folders_is_refused(tmp_path):
    for name in "ab":
        write_chains(tmp_path / name, SAMPLE, CORAG, questions=many(3)[:2] if name == "a" else many(3)[1:])
    with raises_message(DataError):
        read_chains([tmp_path / "a", tmp_path / "b"])


def test_folders_of_different_options_are_refused_with_the_difference(tmp_path):
    write_chains(tmp_path / "a", SAMPLE, CORAG, questions=many(1))
    write_chains(
        tmp_path / "b", SAMPLE, replace(CORAG, passages_per_hop=3, task="guess"), questions=many(2)[1:]
    )
    with raises_message(ConfigError) as refused:
        load_corag_options([tmp_path / "a", tmp_path / "b"])
    assert "passages_per_hop: 2 -> 3" in str(
        refused.value
    ) and 'task: "answer multi-hop questions" -> "guess"' in str(refused.value)
    write_chains(tmp_path / "c", replace(SAMPLE, chains=5), CORAG, questions=many(3)[2:])
    assert load_corag_options([tmp_path / "a", tmp_path / "c"]) == CORAG, (
        "how many chains were sampled is no matter of the rows"
    )


def test_a_prompt_that_has_changed_since_is_refused_with_the_difference(tmp_path):
    prompt = tmp_path / "next.txt"
    prompt.write_text("version: 1\n--- user\nNEXT for {query}\n{hops}\n")
    corag = replace(CORAG, sub_query_prompt=str(prompt))
    write_chains(tmp_path / "chains", SAMPLE, corag)
    before = corag.prompt("sub_query").identity
    assert load_corag_options([tmp_path / "chains"]) == corag
    prompt.write_text("version: 2\n--- user\nNEXT question for {query}\n{hops}\n")
    load_template.cache_clear()  # as in the next process
    with raises_message(ConfigError) as refused:
        load_corag_options([tmp_path / "chains"])
    assert before in str(refused.value) and corag.prompt("sub_query").identity in str(refused.value)
    assert "final_answer" not in str(refused.value), "only what changed"


# ---- statistics


def chain(*said, means, stopped="length"):
    hops = tuple(Hop(f"query {n}", text, text == REFUSAL, ("p",)) for n, text in enumerate(said))
    return SampledChain(hops, tuple(means), tuple(means), 3, stopped)


def row(name, *chains, chosen=0, rejected="", error=""):
    question = Question(name, "Which river?", ("Issel", "Old Issel"))
    return ChainRow(question, ("p",), chains, None if rejected or error else chosen, rejected, error)


ROWS = [
    row("a", chain("Velden", "it is the Issel.", means=(-3, -0.04), stopped="sure"), chain("x", means=(-9,))),
    row("b", chain("nothing", means=(-9,)), chain("old issel!", means=(-1.0,), stopped="match"), chosen=1),
    row("c", chain(REFUSAL, "Isselburg", REFUSAL, means=(-2, -1, -9))),
    row("d", chain("Issel", means=(-7,)), chain("Issel", means=(-8,)), rejected="threshold"),
    row("e", chain("x", means=()), rejected="unsupported"),
    row("f", error="SearchFailedError: no"),
]


def test_a_refusal_does_not_hold_the_answer_no():
    refused = SampledChain((Hop("q?", "No relevant information found", True),), (-1,), (-1,), 1, "length")
    no = replace(row("n", refused), question=Question("n", "Is it?", ("no",)))
    assert (describe([no]).answer_found, describe([no]).refused_hops) == (0, 1)


def test_statistics_by_hand():
    found = describe(ROWS)
    assert (found.questions, found.failed, found.kept, found.chains) == (6, 1, 3, 8)
    assert found.rejected == {"threshold": 1, "unsupported": 1}
    assert found.answer_found == pytest.approx(2 / 3), "in a and b; Isselburg is another word"
    assert found.answer_matched == pytest.approx(1 / 3), "b's second alias"
    assert found.refused_hops == pytest.approx(2 / 6)
    assert found.mean_score == pytest.approx((-0.04 - 1 - 9) / 3)
    assert found.lengths == {"1": 1, "2": 1, "3": 1} and found.stopped == {"length": 1, "match": 1, "sure": 1}


def test_statistics_of_nothing():
    found = describe([ROWS[-1]])
    assert (found.questions, found.kept, found.mean_score, found.answer_found, found.lengths) == (
        1,
        0,
        0,
        0,
        {},
    )
    assert list(found.lines())
    assert describe([]).questions == 0 and list(describe([]).lines())
