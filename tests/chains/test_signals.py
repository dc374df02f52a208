"""Signals choose chains: their mixtures, what they cost, and what they need of the model."""

import math

import pytest

from corag.chains.adaptive import chains_to_decide
from corag.chains.config import CoRAGConfig
from corag.chains.rank import Candidate, combine_scores, count_votes, log_probability
from corag.core.protocols import Ability
from corag.core.types import CandidateAnswer, Question
from eval.scoring.scorers import SCORERS
from eval.tables.candidates import candidate_set
from tests.chains.chains import run, seeded
from tests.eval.runs import saved
from tests.fakes import kind
from tests.story import WORLD


def finals(*answers):
    """A model of chains that are never the same, whose final answers are these, in order."""
    waiting = iter(answers)
    return lambda request: next(waiting) if kind(request) == "FINAL" else seeded(request)


# ---- mixtures


def test_a_mixture_is_the_product_of_probabilities():
    config = CoRAGConfig(strategy="best_of_n", rank_by="vote+probability")
    candidates = [
        Candidate(None, f"chain {number}", answer=answer, signals={"probability": value})
        for number, (answer, value) in enumerate([("Oder", -9.0), ("Issel", -0.5), ("Oder", -9.0)])
    ]
    scores = [each.score for each in combine_scores(candidates, config)]
    assert scores == pytest.approx([9.0 - math.log(2), 0.5, 9.0 - math.log(2)]), "not the most frequent"


def test_a_draft_may_be_voted_on_and_the_final_answer_is_asked_for_after():
    reply = finals("Rhine", "Issel", "Issel", "the river Issel")
    answer, generator, tools = run(
        reply, strategy="best_of_n", chains=3, max_hops=1, rank_by="vote", judged="draft"
    )
    assert (answer.text, answer.chosen) == ("the river Issel", 1)
    assert (tools.ledger["draft"].calls, tools.ledger["final"].calls) == (3, 1)
    drafts = [request.prompt.text for request in generator.requests if kind(request) == "FINAL"][:3]
    assert not any(each.text in text for each in WORLD for text in drafts)


def test_signals_as_probabilities():
    assert log_probability("refusal", -1.0) == pytest.approx(math.log(1 - math.exp(-1)))
    assert log_probability("refusal", 0.0) > -30.0, "a certain refusal is improbable, not impossible"
    assert log_probability("refusals", 0.0) == 0.0 > log_probability("refusals", 2.0)
    assert log_probability("vote", 0.0) == log_probability("probability", math.nan) == -math.inf
    assert count_votes(["Issel", "the issel", "", "Oder"]) == [2.0, 2.0, 0.0, 1.0]


def test_an_answer_that_normalises_to_nothing_has_its_votes():
    """Vitamin A: the rule of SQuAD drops articles."""
    assert count_votes(["A", "a", "B", " "]) == [2.0, 2.0, 1.0, 0.0]
    voted = [Candidate(None, f"chain {n}", answer="A") for n in range(6)]
    assert chains_to_decide(voted, 10, 0.9) == 0
    answers = [CandidateAnswer(text) for text in ("A", "A", "B")]
    question = Question("q", "Which?", ("A",))
    found = candidate_set(saved(question, None), question, answers, SCORERS["squad"], "em")
    assert found.spellings == ["a", "a", "b"]


def test_a_mixture_lacks_a_score_where_a_part_is_missing():
    config = CoRAGConfig(strategy="best_of_n", rank_by="refusal+probability")
    chain = Candidate(None, "chain 1", signals={"refusal": -2.0})
    both = Candidate(None, "chain 2", signals={"refusal": -2.0, "probability": -0.5})
    scores = [each.score for each in combine_scores([chain, both], config)]
    assert scores == [None, pytest.approx(0.5 - math.log(1 - math.exp(-2)))]


def test_the_probability_is_of_all_that_the_model_wrote_in_the_chain():
    asked = iter(["odd glass", "who glass", "zzz"])

    def reply(request):
        if kind(request) == "NEXT":
            return next(asked)
        return "Issel" if kind(request) == "FINAL" else "unsure" if "who" in request.prompt.text else "sure"

    likely = {"odd": 0.5, "unsure": 0.25, "zzz": 0.125}
    answer, generator, tools = run(
        reply, strategy="best_of_n", chains=3, max_hops=1, rank_by="probability",
        probability=lambda piece: likely.get(piece, 1.0),
    )  # fmt: skip
    # A search that finds nothing is refused without a reply, so the sub-query is all that was written.
    found = [each.signals["probability"] for each in answer.chains]
    assert found == pytest.approx([math.log(0.5), math.log(0.25), math.log(0.125)])
    assert answer.chosen == 0 and not generator.scored, "it costs no request"
    assert tools.ledger["sub_query"].calls == 3 and tools.ledger["sub_answer"].calls == 2
    config = CoRAGConfig(strategy="best_of_n", rank_by="probability")
    assert set(config.needs()) == {Ability.LOGPROBS, Ability.TEMPERATURE}


def test_further_signals_are_measured_and_choose_nothing():
    options = {"strategy": "best_of_n", "chains": 2, "max_hops": 1, "rank_by": "refusals"}
    answer, *_ = run(finals("Rhine", "Issel"), measure=("refusal",), score=lambda request: -1.0, **options)
    assert (answer.text, answer.chosen) == ("Rhine", 0), "both have no refusals: the first"
    assert answer.chains[1].signals == {"refusals": 0.0, "refusal": -1.0}
