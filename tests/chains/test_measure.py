"""Candidates measured: every chain answered from and scored, at nobody's cost, and read back from a trace."""

import json
import math

import pytest

from corag.chains.candidates import ChainCandidates
from corag.chains.config import CoRAGConfig
from corag.core.protocols import Ability
from corag.core.runs.rows import Row, SavedRow
from corag.core.types import MEASURING, TokenUsage
from tests.chains.chains import LETTERS, chain_of, run, seeded, tree_model, tree_score
from tests.fakes import WordRetriever, kind
from tests.story import QUESTION

SAMPLED = {"strategy": "best_of_n", "chains": 4, "max_hops": 2}
MEASURE = ("refusal",)
FINALS = ("Rhine", "the Issel", "", "Issel!")


def by_chain(request):
    """The final answer depends on the chain alone, whichever is asked first."""
    if kind(request) != "FINAL":
        return seeded(request)
    first = chain_of(request)[0] if chain_of(request) else "glass 0 0"
    return FINALS[int(first.split()[1], 16) % 4]


def score(request):
    """Chains have scores by their prompt; answers by their first letter."""
    if request.target == "No relevant information found":
        return -(len(request.prompt.text) % 13) / 4
    return {"R": -2.0, "t": -0.5, "I": -0.75}[request.target.strip()[0]]


def read_back(answer, tools):
    row = Row(QUESTION, answer, tuple(tools.steps), tools.ledger, 1.0)
    return SavedRow.from_json(json.loads(row.to_json()))


def candidates(answer, tools, **options):
    return ChainCandidates().load(read_back(answer, tools), options)


@pytest.mark.parametrize("rank_by", ["refusal", "refusals", "vote"])
def test_measuring_changes_neither_answer_nor_cost_and_tells_all_candidates(rank_by):
    plain, _, plain_tools = run(by_chain, **SAMPLED, rank_by=rank_by, score=score)
    answer, generator, tools = run(by_chain, **SAMPLED, rank_by=rank_by, score=score, measure=MEASURE)
    assert (answer.text, answer.chosen, answer.passage_ids) == (plain.text, plain.chosen, plain.passage_ids)
    assert [each.score for each in answer.chains] == [each.score for each in plain.chains]
    assert tools.spent == plain_tools.spent and MEASURING not in plain_tools.ledger
    measured = tools.ledger.pop(MEASURING)
    assert tools.ledger == plain_tools.ledger and measured.calls > 0
    # Each chain's answer was asked for once in all: the chosen one's, or a vote's, were there already.
    assert sum(kind(each) == "FINAL" for each in generator.requests) == 4
    found = candidates(answer, tools, rank_by=rank_by)
    assert [each.path for each in found] == [f"chain {n}" for n in range(1, 5)]
    assert found[answer.chosen].text == answer.text
    for each in found:
        assert set(each.scores) == {"refusal", "refusals"}
    refusals = [each.scores["refusal"] for each in found]
    if rank_by == "refusal":
        assert refusals == [-each.score for each in answer.chains]
        assert refusals[answer.chosen] == max(refusals)


def test_a_row_that_is_read_back_counts_what_answering_cost():
    answer, _, tools = run(by_chain, **SAMPLED, score=score, measure=MEASURE)
    row = read_back(answer, tools)
    assert row.total_usage == tools.spent
    assert sum(row.usage.values(), TokenUsage()).calls == tools.spent.calls + row.usage[MEASURING].calls


def test_a_budget_does_not_pay_for_measuring():
    plain, _, plain_tools = run(by_chain, **SAMPLED, score=score, budget=900)
    answer, _, tools = run(by_chain, **SAMPLED, score=score, budget=900, measure=MEASURE)
    assert (answer.text, answer.stopped) == (plain.text, plain.stopped)
    assert tools.spent == plain_tools.spent and tools.spent.total <= 900
    assert len(candidates(answer, tools, rank_by="refusal")) == len(answer.chains)


def test_states_within_a_tree_are_no_candidates():
    answer, _, tools = run(
        tree_model, strategy="tree", max_hops=3, expand=3, rollouts=1, rollout_hops=1, reuse=False,
        retriever=WordRetriever(LETTERS), score=tree_score, measure=MEASURE,
    )  # fmt: skip
    ended = [each.path for each in answer.chains if each.stopped]
    found = candidates(answer, tools, rank_by="refusal")
    assert [each.path for each in found] == ended and 1 < len(ended) < len(answer.chains)
    assert answer.chains[answer.chosen].path in ended and all("refusal" in each.scores for each in found)


def test_scores_that_are_no_numbers_are_left_out():
    answer, _, tools = run(
        by_chain, **SAMPLED, score=lambda request: math.nan, measure=MEASURE, rank_by="vote"
    )
    assert all(set(each.scores) == {"refusals"} for each in candidates(answer, tools, rank_by="vote"))


# ---- traces that were written before, or without measuring


def test_a_vote_needs_no_measuring_to_show_its_answers():
    answer, _, tools = run(by_chain, **SAMPLED, rank_by="vote")
    options = candidates(answer, tools, rank_by="vote")
    assert len(options) == 4 and options[answer.chosen].text == answer.text


def test_refusals_alone_ask_for_answers_and_for_nothing_else():
    _, _, tools = run(by_chain, **SAMPLED, score=score, rank_by="refusals", measure=("refusals",))
    assert tools.ledger[MEASURING].calls == 3, "the chosen one's is there already"
    assert not any(step.kind == "score" for step in tools.steps)


def test_without_answers_of_the_others_the_chosen_one_is_all_there_is():
    answer, _, tools = run(by_chain, **SAMPLED, score=score)
    (found,) = candidates(answer, tools, rank_by="refusal")
    assert found.text == answer.text and found.scores["refusal"] == -answer.chains[answer.chosen].score
    failed = SavedRow.without_answer(QUESTION)
    assert ChainCandidates().load(failed, {}) == ()


def test_measuring_needs_scores_and_says_so():
    needs = CoRAGConfig(rank_by="vote", strategy="best_of_n", measure=MEASURE).needs()
    assert needs[Ability.SCORES] == "choose corag.measure=refusals"
    assert needs.keys() == {Ability.SCORES, Ability.TEMPERATURE}, "it samples its chains, too"


def test_drafts_are_no_candidates():
    def drafting(request):
        if kind(request) == "FINAL" and "glass" not in request.prompt.text.rpartition("Intermediate")[0]:
            return "Oder"
        return by_chain(request)

    options = {"rank_by": "vote", "judged": "draft"}
    answer, _, tools = run(drafting, **SAMPLED, **options)
    (alone,) = candidates(answer, tools, **options)
    assert alone.text == answer.text
