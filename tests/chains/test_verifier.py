"""Answers are judged: the verifier and the other signals choose chains, stop them, and drive the searches."""

import asyncio
import math

import pytest

from corag.chains.config import CoRAGConfig
from corag.chains.method import corag
from corag.chains.rank import Candidate, combine_scores, count_votes, log_probability
from corag.core.errors import ConfigError
from corag.core.protocols import Ability
from corag.core.tools import Tools
from tests.chains.chains import LETTERS, TOKENS, run, seeded, tree_model
from tests.fakes import PROMPTS, ScriptedGenerator, WordRetriever, kind
from tests.story import AUTHOR, BOOK, NOISE, QUESTION, WORLD


def judged(request):
    """The answer that a verifier's prompt asks about."""
    return request.prompt.text.rpartition("judged: ")[2]


def verdicts(**odds):
    """Score Yes by what is said of the judged answer and No by 0; everything else by -1."""

    def score(request):
        if kind(request) != "VERIFY":
            return -1.0
        return odds[judged(request)] if request.target == "Yes" else 0.0

    return score


def finals(*answers):
    """A model of chains that are never the same, whose final answers are these, in order."""
    waiting = iter(answers)
    return lambda request: next(waiting) if kind(request) == "FINAL" else seeded(request)


def best_path(answer):
    return answer.chains[answer.chosen].path


# ---- best of N


def test_the_verifier_keeps_the_chain_whose_answer_it_finds_likeliest():
    score = verdicts(Rhine=-3.0, Oder=-1.0, Issel=2.0)
    reply = finals("Rhine", "Oder", "Issel", "Rhine")
    answer, generator, tools = run(
        reply, strategy="best_of_n", chains=4, max_hops=2, rank_by="verifier", score=score
    )
    assert (answer.text, answer.chosen) == ("Issel", 2)
    assert [chain.score for chain in answer.chains] == [3.0, 1.0, -2.0, 3.0]
    assert [chain.answer for chain in answer.chains] == ["Rhine", "Oder", "Issel", "Rhine"]
    assert [chain.signals for chain in answer.chains] == [
        {"verifier": -each} for each in (3.0, 1.0, -2.0, 3.0)
    ]
    # Each answer is asked for once and judged by two scores of one prompt; the ledger has them all.
    assert tools.ledger["final"].calls == 4 and tools.ledger["verify"].calls == 8
    assert "score" not in tools.ledger
    for yes, no in zip(generator.scored[::2], generator.scored[1::2], strict=True):
        assert (yes.target, no.target) == ("Yes", "No") and yes.prompt != generator.scored[0].target
    pairs = {}
    for request in generator.scored:
        pairs.setdefault(request.prompt.text, []).append(request.target)
    assert all(sorted(targets) in (["No", "Yes"], ["No", "No", "Yes", "Yes"]) for targets in pairs.values())


def test_the_verifier_sees_what_the_sub_answers_were_read_from_in_turn():
    hops = {"Who wrote The Glass Orchard?": "Mara Velden", "Where was Mara Velden born?": "Tarn Hollow"}
    asked = iter(hops)

    def reply(request):
        if kind(request) == "NEXT":
            return next(asked)
        return (
            "Issel"
            if kind(request) == "FINAL"
            else next(v for k, v in hops.items() if k in request.prompt.text)
        )

    options = {"max_hops": 2, "rank_by": "verifier", "passages_per_hop": 2, "verify_passages": 3}
    _, generator, _ = run(reply, strategy="best_of_n", chains=1, reuse=False, **options)
    shown = generator.scored[0].prompt.text
    assert (
        "1. Who wrote The Glass Orchard? -> Mara Velden\n2. Where was Mara Velden born? -> Tarn Hollow"
        in shown
    )
    assert BOOK.text in shown and AUTHOR.text in shown and NOISE.text not in shown
    asked = iter(hops)
    _, generator, _ = run(
        reply, strategy="best_of_n", chains=1, reuse=False, **options | {"verify_passages": 0}
    )
    assert not any(each.text in generator.scored[0].prompt.text for each in WORLD)


def test_a_draft_may_be_judged_and_the_final_answer_is_asked_for_after():
    score = verdicts(Rhine=-3.0, Issel=2.0)
    reply = finals("Rhine", "Issel", "the river Issel")
    answer, generator, tools = run(
        reply, strategy="best_of_n", chains=2, max_hops=1, rank_by="verifier", judged="draft", score=score
    )
    assert (answer.text, answer.chosen) == ("the river Issel", 1)
    assert (tools.ledger["draft"].calls, tools.ledger["final"].calls) == (2, 1)
    drafts = [request.prompt.text for request in generator.requests if kind(request) == "FINAL"][:2]
    assert not any(each.text in text for each in WORLD for text in drafts)


def test_blank_answers_and_scores_that_are_no_numbers_never_win():
    score = verdicts(Rhine=math.nan, Issel=-5.0)
    answer, *_ = run(
        finals("", "Rhine", "Issel"),
        strategy="best_of_n",
        chains=3,
        max_hops=1,
        rank_by="verifier",
        score=score,
    )
    assert (answer.text, [chain.score for chain in answer.chains]) == ("Issel", [None, None, 5.0])


# ---- mixtures


def test_a_mixture_is_the_product_of_probabilities():
    score = verdicts(Rhine=0.0, Issel=1.0, Oder=-9.0)
    answer, *_ = run(
        finals("Oder", "Rhine", "Issel", "Oder", "Oder"), strategy="best_of_n", chains=5, max_hops=1,
        rank_by="vote+verifier", score=score,
    )  # fmt: skip
    p = [1 / (1 + math.exp(9.0)), 0.5, 1 / (1 + math.exp(-1.0))]
    want = [-math.log(each) for each in (3 * p[0], p[1], p[2], 3 * p[0], 3 * p[0])]
    assert [chain.score for chain in answer.chains] == pytest.approx(want)
    assert answer.text == "Issel", "neither the most frequent, Oder, nor undecided"


def test_signals_as_probabilities():
    for value in (-700.0, -2.0, 0.0, 3.0, 700.0):
        assert log_probability("verifier", value) <= 0.0
    assert math.exp(log_probability("verifier", 1.5)) == pytest.approx(1 / (1 + math.exp(-1.5)))
    assert log_probability("refusal", -1.0) == pytest.approx(math.log(1 - math.exp(-1)))
    assert log_probability("refusal", 0.0) > -30.0, "a certain refusal is improbable, not impossible"
    assert log_probability("refusals", 0.0) == 0.0 > log_probability("refusals", 2.0)
    assert log_probability("vote", 0.0) == log_probability("probability", math.nan) == -math.inf
    assert count_votes(["Issel", "the issel", "", "Oder"]) == [2.0, 2.0, 0.0, 1.0]


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
    score = verdicts(Rhine=-3.0, Issel=2.0)
    options = {"strategy": "best_of_n", "chains": 2, "max_hops": 1, "rank_by": "refusals", "score": score}
    answer, *_ = run(finals("Rhine", "Issel"), measure=("verifier", "refusal"), **options)
    assert (answer.text, answer.chosen) == ("Rhine", 0), "both have no refusals: the first"
    assert answer.chains[1].signals == {"refusals": 0.0, "verifier": 2.0, "refusal": -1.0}


# ---- it stops chains, and drives tree search


def test_the_chain_stops_when_the_verifier_says_yes():
    drafts = iter(["Rhine", "Issel", "Issel"])
    reply = lambda request: next(drafts) if kind(request) == "FINAL" else seeded(request)  # noqa: E731
    answer, _, tools = run(reply, stop="verifier", max_hops=4, score=verdicts(Rhine=-1.0, Issel=0.5))
    assert (answer.steps, answer.stopped, answer.text) == (2, "verifier", "Issel")
    assert tools.ledger["draft"].calls == 2 and tools.ledger["verify"].calls == 4


@pytest.mark.parametrize(("bias", "steps"), [(0.0, 3), (1.5, 1)])
def test_a_bias_on_yes_stops_sooner_and_the_cap_is_kept(bias, steps):
    answer, _, tools = run(seeded, stop="verifier", max_hops=3, yes_bias=bias, score=verdicts(Issel=-1.0))
    assert (answer.steps, answer.stopped) == (steps, "length" if steps == 3 else "verifier")
    assert tools.ledger["verify"].calls == 2 * (2 if steps == 3 else 1), "nothing is asked at the cap"


def test_a_blank_draft_is_not_judged():
    answer, _, tools = run(finals("", "Issel"), stop="verifier", max_hops=2, score=verdicts())
    assert (answer.stopped, answer.text) == ("length", "Issel") and "verify" not in tools.ledger


def test_tree_search_follows_the_verifier():
    def reply(request):
        if kind(request) == "FINAL":  # an answer that says what was asked
            return "".join(line[3] for line in request.prompt.text.splitlines() if line[1:3] == ". ")
        return tree_model(request)

    def score(request):
        text = judged(request)
        yes = (text[:1] == "c") + 2 * (text[:2] == "ca")
        return float(yes) if request.target == "Yes" else 0.0

    options = {"max_hops": 2, "expand": 3, "rollouts": 1, "rollout_hops": 1, "rank_by": "verifier"}
    for judges in ("draft", "final"):
        answer, _, tools = run(
            reply, strategy="tree", retriever=WordRetriever(LETTERS), score=score, judged=judges, **options
        )
        best = answer.chains[answer.chosen]
        assert [hop.sub_query for hop in best.hops] == ["c", "a"] and answer.text == "ca"
        values = {chain.path: chain.value for chain in answer.chains}
        assert values["tree/child 3"] == -1.0 and values[best_path(answer)] == -3.0
        assert tools.ledger["verify"].calls % 2 == 0 and ("draft" in tools.ledger) == (judges == "draft")


# ---- budgets and refusals


@pytest.mark.parametrize("strategy", ["best_of_n", "tree"])
@pytest.mark.parametrize("judges", ["final", "draft"])
def test_a_budget_is_kept_and_leaves_an_answer(strategy, judges):
    rank_by = "verifier" if strategy == "tree" else "vote+verifier"
    for budget in range(200, 4000, 400):
        config = CoRAGConfig(
            **PROMPTS, **TOKENS, strategy=strategy, chains=3, max_hops=2, expand=2, rollouts=1, judged=judges,
            rank_by=rank_by,
        )  # fmt: skip
        generator = ScriptedGenerator(seeded)
        tools = Tools(QUESTION, generator, WordRetriever(WORLD), budget=budget)
        answer = asyncio.run(corag(QUESTION, tools, config))
        assert tools.spent.total <= budget
        assert answer.text == "Issel" or budget < 400
        if strategy == "best_of_n" and budget > 1000:
            assert answer.chains[answer.chosen].score is not None, "what is sampled can be scored"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank_by": "verifer"}, "'verifer' ranks nothing: did you mean 'verifier'?"),
        ({"rank_by": "vote+"}, "'' ranks nothing"),
        ({"rank_by": "vote+verifier", "strategy": "tree"}, "does not have on the way"),
        ({"measure": ("vote",)}, "'corag.measure': expected"),
        ({"verify_passages": -1}, "option 'corag.verify_passages': expected a whole number of at least 0"),
        ({"verify_prompt": "{query} {hops} {passages}"}, "lacks {answer}"),
    ],
)
def test_impossible_options_are_refused_with_a_sentence(options, message):
    with pytest.raises(ConfigError) as error:
        CoRAGConfig(**{"strategy": "best_of_n"} | options).prompt("verify")
    assert message in str(error.value)


def test_what_the_verifier_needs_is_said_and_older_runs_keep_their_identity():
    assert Ability.SCORES in CoRAGConfig(strategy="best_of_n", rank_by="vote+verifier").needs()
    assert Ability.SCORES in CoRAGConfig(stop="verifier").needs()
    assert Ability.SCORES not in CoRAGConfig(strategy="best_of_n", rank_by="vote+refusals").needs()
    names = lambda **options: [each.name for each in CoRAGConfig(**options).templates()]  # noqa: E731
    assert "verify" in names(stop="verifier") and "verify" in names(strategy="tree", rank_by="verifier")
    assert "verify" not in names(rank_by="verifier") and "verify" not in names(strategy="tree")
