"""Candidates measured: every chain answered from and scored, at nobody's cost, and read back from a trace."""

import json
import math

import pytest

from corag.config import CoRAGConfig
from core.protocols import Ability
from core.runs.rows import Row, SavedRow
from core.types import MEASURING, TokenUsage
from tests.corag.chains import LETTERS, chain_of, run, seeded, tree_model, tree_score
from tests.fakes import WordRetriever, kind
from tests.story import QUESTION

SAMPLED = {"strategy": "best_of_n", "chains": 4, "max_hops": 2}
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
    return CoRAGConfig.candidates(read_back(answer, tools), options)


@pytest.mark.parametrize("rank_by", ["refusal", "refusals", "vote"])
def test_measuring_changes_neither_answer_nor_cost_and_tells_all_candidates(rank_by):
    plain, _, plain_tools = run(by_chain, **SAMPLED, rank_by=rank_by, score=score)
    answer, generator, tools = run(by_chain, **SAMPLED, rank_by=rank_by, score=score, measure_candidates=True)
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
        assert ("likelihood" in each.scores) == bool(each.text), "a blank answer has no likelihood"
        assert {"refusal", "refusals"} <= set(each.scores) <= {"refusal", "refusals", "likelihood"}
        if each.text:
            assert each.scores["likelihood"] == {"R": -2.0, "t": -0.5, "I": -0.75}[each.text[0]]
    refusals = [each.scores["refusal"] for each in found]
    if rank_by == "refusal":
        assert refusals == [-each.score for each in answer.chains]
        assert refusals[answer.chosen] == max(refusals)


def test_a_row_that_is_read_back_counts_what_answering_cost():
    answer, _, tools = run(by_chain, **SAMPLED, score=score, measure_candidates=True)
    row = read_back(answer, tools)
    assert row.total_usage == tools.spent
    assert sum(row.usage.values(), TokenUsage()).calls == tools.spent.calls + row.usage[MEASURING].calls


def test_a_budget_does_not_pay_for_measuring():
    plain, _, plain_tools = run(by_chain, **SAMPLED, score=score, budget=900)
    answer, _, tools = run(by_chain, **SAMPLED, score=score, budget=900, measure_candidates=True)
    assert (answer.text, answer.stopped) == (plain.text, plain.stopped)
    assert tools.spent == plain_tools.spent and tools.spent.total <= 900
    assert len(candidates(answer, tools, rank_by="refusal")) == len(answer.chains)


def test_a_blank_answer_has_nothing_of_what_its_draft_was_worth():
    said = iter(["Rhine"] * 4 + [""] * 4)  # four drafts, then the final answers
    answer, _, _ = run(
        lambda request: next(said) if kind(request) == "FINAL" else seeded(request),
        **SAMPLED, score=score, rank_by="likelihood", judged="draft", measure_candidates=True,
    )  # fmt: skip
    assert [each.score for each in answer.chains] == [2.0] * 4
    for each in answer.chains:
        assert each.answer == "" and "likelihood" not in each.signals and "refusal" in each.signals


def test_states_within_a_tree_are_no_candidates():
    answer, _, tools = run(
        tree_model, strategy="tree", max_hops=3, expand=3, rollouts=1, rollout_hops=1, reuse=False,
        retriever=WordRetriever(LETTERS), score=tree_score, measure_candidates=True,
    )  # fmt: skip
    ended = [each.path for each in answer.chains if each.stopped]
    found = candidates(answer, tools, rank_by="refusal")
    assert [each.path for each in found] == ended and 1 < len(ended) < len(answer.chains)
    assert answer.chains[answer.chosen].path in ended and all("refusal" in each.scores for each in found)


def test_adaptive_measures_all_that_it_tried():
    answer, _, tools = run(
        seeded, strategy="adaptive", max_hops=2, chains=3, expand=2, rollouts=1, unsure_above=-99.0,
        score=lambda request: -1.0, measure_candidates=True,
    )  # fmt: skip
    found = [each.path for each in candidates(answer, tools, rank_by="refusal")]
    assert found[:3] == ["chain 1", "chain 2", "chain 3"] and any(path.startswith("tree") for path in found)


def test_scores_that_are_no_numbers_are_left_out():
    answer, _, tools = run(
        by_chain, **SAMPLED, score=lambda request: math.nan, measure_candidates=True, rank_by="vote"
    )
    assert all(set(each.scores) == {"refusals"} for each in candidates(answer, tools, rank_by="vote"))


# ---- traces that were written before, or without measuring


def test_a_vote_tells_its_answers_also_in_traces_that_keep_them_in_steps_only():
    answer, _, tools = run(by_chain, **SAMPLED, rank_by="vote")
    row = read_back(answer, tools)
    found = CoRAGConfig.candidates(row, {"rank_by": "vote"})
    assert len(found) == 4 and found[answer.chosen].text == answer.text
    older = json.loads(Row(QUESTION, answer, tuple(tools.steps), tools.ledger, 1.0).to_json())
    for chain in older["answer"]["chains"]:
        del chain["answer"], chain["signals"]
    assert CoRAGConfig.candidates(SavedRow.from_json(older), {"rank_by": "vote"}) == found


def test_without_answers_of_the_others_the_chosen_one_is_all_there_is():
    answer, _, tools = run(by_chain, **SAMPLED, score=score)
    (found,) = candidates(answer, tools, rank_by="refusal")
    assert found.text == answer.text and found.scores["refusal"] == -answer.chains[answer.chosen].score
    failed = SavedRow.unanswered(QUESTION)
    assert CoRAGConfig.candidates(failed, {}) == ()


def test_measuring_needs_scores_and_says_so():
    needs = CoRAGConfig(rank_by="vote", strategy="best_of_n", measure_candidates=True).needs()
    assert needs == {Ability.SCORES: "choose --corag.measure_candidates false"}


def test_drafts_are_no_candidates_and_what_was_judged_of_them_is_judged_again_of_final_answers():
    def drafting(request):
        if kind(request) == "FINAL" and "glass" not in request.prompt.text.rpartition("Intermediate")[0]:
            return "Oder"
        return by_chain(request)

    def verdict(request):
        return -float(len(request.prompt.text) % 7) if request.target in ("Yes", "No") else -1.0

    options = {"rank_by": "verifier", "judged": "draft"}
    answer, _, tools = run(drafting, **SAMPLED, **options, score=verdict)
    (alone,) = candidates(answer, tools, **options)
    assert alone.text == answer.text
    answer, _, tools = run(drafting, **SAMPLED, **options, score=verdict, measure_candidates=True)
    found = candidates(answer, tools, **options, measure_candidates=True)
    assert len(found) == 4 and found[answer.chosen].text == answer.text
    assert all("verifier" in each.scores for each in found if each.text)


def test_a_score_that_is_no_number_is_written_nowhere():
    def verdict(request):
        return math.nan if request.target in ("Yes", "No") else -1.0

    answer, _, tools = run(by_chain, **SAMPLED, rank_by="verifier", score=verdict)
    assert all("verifier" not in chain.signals for chain in answer.chains)
    assert candidates(answer, tools, rank_by="verifier")


def test_a_mixture_is_spelled_in_one_way():
    assert CoRAGConfig(strategy="best_of_n", rank_by=" vote + verifier").rank_by == "vote+verifier"
    assert "verify" in {
        each.name for each in CoRAGConfig(rank_by="verifier", measure_candidates=True).templates()
    }
