"""CoRAG's strategies replayed by hand: best of N, tree search, adaptive compute; order, ties, budgets."""

import asyncio
import math
import re
from dataclasses import replace

import pytest

from corag.chains.chain import Chain, Hop
from corag.chains.config import CoRAGConfig
from corag.chains.costs import score_cost
from corag.chains.final_answer import Context, retrieve_context
from corag.chains.rank import Candidate, answer_log_likelihood
from corag.chains.tree import Tree
from corag.core.tools import Tools
from tests.chains.chains import (
    LETTERS,
    TOKENS,
    chain_of,
    run,
    searches,
    seeded,
    stable_hash_number,
    tree_model,
    tree_score,
)
from tests.fakes import PROMPTS, ScriptedGenerator, WordRetriever, kind
from tests.story import QUESTION, WORLD

# ---- best of N


@pytest.mark.parametrize("strategy", ["best_of_n", "tree"])
def test_a_score_that_is_no_number_never_wins(strategy):
    """The first chains of each search cannot be scored: another one is chosen, by its score."""
    scored = []

    def score(request):
        scored.append(request)
        return math.nan if len(scored) <= 2 else -float(len(scored))

    answer, *_ = run(seeded, strategy=strategy, chains=4, max_hops=2, expand=2, rollouts=2, score=score)
    chosen = answer.chains[answer.chosen]
    assert len(scored) > 2 and not any(chain.score != chain.score for chain in answer.chains)
    if strategy == "best_of_n":
        assert [chain.score for chain in answer.chains] == [None, None, -3.0, -4.0]
        assert chosen.score == -4.0


def test_gold_answers_that_cannot_be_scored_never_make_the_best_chain():
    def score(request):
        return math.nan if request.target == "Issel" else -3.0

    tools = Tools(QUESTION, ScriptedGenerator(seeded, log_likelihood=score), WordRetriever(WORLD))
    config, chain = CoRAGConfig(**PROMPTS), Chain()
    for answers, likeliest in ((["Issel", "river"], -3.0), (["Issel"], -math.inf)):
        assert asyncio.run(answer_log_likelihood(chain, answers, tools, config)).sum == likeliest


def test_the_first_of_the_chains_may_be_the_greedy_one_and_the_others_stay_what_they_were():
    alone, _, _ = run(seeded, strategy="greedy", max_hops=3)
    sampled, _, _ = run(seeded, strategy="best_of_n", chains=3, max_hops=3)
    among, generator, _ = run(seeded, strategy="best_of_n", chains=3, max_hops=3, first_chain_greedy=True)
    assert among.chains[0].hops == alone.chains[0].hops != sampled.chains[0].hops
    assert among.chains[1:] == sampled.chains[1:]
    greedy = [each for each in generator.requests if kind(each) == "NEXT" and not each.sampling.temperature]
    assert len(greedy) == 3, "a sub-query a hop"


def test_the_vote_keeps_the_first_chain_of_the_most_frequent_answer():
    finals = iter(["Rhine", "the Issel", "Issel!", "Oder"])
    reply = lambda request: next(finals) if kind(request) == "FINAL" else seeded(request)  # noqa: E731
    answer, _, tools = run(reply, strategy="best_of_n", chains=4, max_hops=2, rank_by="vote")
    assert (answer.text, answer.chosen) == ("the Issel", 1)
    assert [chain.score for chain in answer.chains] == [-1, -2, -2, -1]
    assert "score" not in tools.ledger and tools.ledger["final"].calls == 4


def test_counting_refusals_needs_no_log_probabilities():
    def reply(request):
        if kind(request) == "ANSWER" and "0" in request.prompt.text.split()[2]:
            return "No relevant information found"
        return seeded(request)

    answer, _, tools = run(reply, strategy="best_of_n", chains=6, max_hops=2, rank_by="refusals")
    counts = [sum(hop.refused for hop in chain.hops) for chain in answer.chains]
    assert [chain.score for chain in answer.chains] == counts
    assert answer.chosen == counts.index(min(counts)) and "score" not in tools.ledger


# ---- tree search


def test_tree_search_by_hand():
    answer, _generator, tools = run(
        tree_model, strategy="tree", max_hops=3, expand=3, rollouts=1, rollout_hops=1, reuse=False,
        retriever=WordRetriever(LETTERS), score=tree_score,
    )  # fmt: skip
    states = {chain.path: ([hop.sub_query for hop in chain.hops], chain.value) for chain in answer.chains}
    assert states["tree/child 1"] == (["a"], -2.0) and states["tree/child 2"] == (["b"], -1.0)
    assert states["tree/child 3"] == (["c"], -1.0), "the repeat A? is no child"
    assert states["tree/child 1/child 1"] == (["a", "b"], -2.0), "no child repeats its ancestor a"
    assert states["tree/child 1/child 2"] == (["a", "c"], -4.0)
    best = answer.chains[answer.chosen]
    assert [hop.sub_query for hop in best.hops] == ["a", "c", "b"], "equal at the last depth: the first child"
    assert (answer.steps, answer.stopped) == (3, "length")
    assert len(answer.chains) == 3 + 3 + 2
    assert len(set(searches(tools))) < len(searches(tools)), "without reuse, work is repeated"


def test_tree_search_lets_rollouts_become_children():
    options = {"strategy": "tree", "max_hops": 3, "expand": 2, "rollouts": 1, "rollout_hops": 2}
    answer, _, tools = run(tree_model, retriever=WordRetriever(LETTERS), score=tree_score, **options)
    second = [chain for chain in answer.chains if len(chain.hops) == 2]
    assert [[hop.sub_query for hop in chain.hops] for chain in second] == [["a", "r"], ["a", "b"]]
    _wasteful, _, wasteful_tools = run(
        tree_model, retriever=WordRetriever(LETTERS), score=tree_score, reuse=False, **options
    )
    assert tools.spent.calls < wasteful_tools.spent.calls
    first_depth = 1 + 2 + 2 * 4 + 2  # proposals, sub-answers, two rollouts of two hops, scores
    # [a, r] and its score are there already; [a, b] is new and rolls out one hop
    second_depth = 1 + 1 + 2 + 1
    third_depth = 1 + 1 + 1  # [a, r, s] is there already; [a, r, b] is new
    assert tools.spent.calls == first_depth + second_depth + third_depth + 1


@pytest.mark.parametrize(
    "options", [{"max_hops": 4, "rollout_hops": 3}, {"max_hops": 5, "rollouts": 3, "beam": 2}]
)
def test_every_rollout_that_a_state_is_judged_by_is_another(options):
    config = CoRAGConfig(**PROMPTS, **({"strategy": "tree", "expand": 2, "rollouts": 2} | options))

    async def search():
        tools = Tools(QUESTION, ScriptedGenerator(seeded), WordRetriever(WORLD))
        tree, beam, judged = Tree(config, Context(())), [Candidate(Chain(), "tree")], []
        while growing := [state for state in beam if not state.chain.stopped]:
            expansions = [await tree.expand(state, tools, plan=config) for state in growing]
            judged += [
                (child.candidate, child.rollouts) for expansion in expansions for child in expansion.children
            ]
            beam = [child for each in expansions for child in tree.keep(each)][: config.beam]
        return judged

    judged = asyncio.run(search())
    assert max(len(child.chain) for child, _ in judged) == config.max_hops
    for child, rollouts in judged:
        counted = [rollout.chain.sub_queries for rollout in rollouts]
        assert len(set(counted)) == len(counted) == (1 if child.chain.stopped else config.rollouts)
        assert all(rollout.chain.extends(child.chain) for rollout in rollouts)


def test_mean_and_min_of_the_rollouts_prefer_different_children():
    """Child "a" rolls out to a very good and a very bad chain, child "b" to two good ones."""
    scores = {"a r": -9.0, "a s": -1.0, "b r": -6.0, "b s": -6.0}
    seeds = {}

    def model(request):
        # A rollout: "r" for the first of a child, "s" for the second.
        if kind(request) == "NEXT" and request.sampling.n == 1:
            first = seeds.setdefault(chain_of(request)[0], [])
            return ["r", "s"][first.append(0) or len(first) - 1]
        return tree_model(request)

    def score(request):
        return scores[" ".join(re.findall(r"^([a-z])\nb$", request.prompt.text, re.MULTILINE))]

    for aggregate, value in (("mean", -6.0), ("min", -9.0)):
        seeds.clear()
        answer, _, _ = run(
            model, strategy="tree", max_hops=2, expand=2, rollouts=2, rollout_hops=1, aggregate=aggregate,
            reuse=True, retriever=WordRetriever(LETTERS), score=score,
        )  # fmt: skip
        best = answer.chains[answer.chosen]
        assert next(hop.sub_query for hop in best.hops) == ("b" if aggregate == "mean" else "a")
        assert max(answer.chains[:2], key=lambda chain: -chain.value).value == value


def test_a_state_without_children_keeps_its_place_in_the_beam():
    """From "a" on the model only repeats itself; "a" scores best by far, so it wins however wide the beam."""

    def model(request):
        if kind(request) == "NEXT":
            stuck = chain_of(request)[:1] == ["a"]
            return ["a"] * request.sampling.n if stuck else tree_model(request)
        return tree_model(request)

    def score(request):
        return -9.0 if re.findall(r"^([a-z])\nb$", request.prompt.text, re.MULTILINE)[:1] == ["a"] else -1.0

    for beam in (1, 2):
        answer, _, _ = run(
            model, strategy="tree", max_hops=3, expand=3, beam=beam, rollouts=1, rollout_hops=1,
            retriever=WordRetriever(LETTERS), score=score,
        )  # fmt: skip
        assert [hop.sub_query for hop in answer.chains[answer.chosen].hops] == ["a"]
        assert (answer.stopped, answer.repeats > 0) == ("repeats", True)


# ---- adaptive


@pytest.mark.parametrize(
    ("chains", "sure", "finals", "sampled", "kept"),
    [
        # Four that agree decide it (0.97), three do not (0.94).
        (8, 0.95, ["Issel", "the Issel", "Issel!", "Issel"], 4, "Issel"),
        (8, 0.9, ["Issel", "Issel", "Issel"], 3, "Issel"),
        (40, 0.99, ["Issel"] * 6, 6, "Issel"),
        # Of four, three that agree cannot be overtaken.
        (4, 0.95, ["Issel", "Issel", "Issel"], 3, "Issel"),
        # Three to one: with two more that agree the last two could not bring another ahead.
        (8, 0.95, ["Oder", "Issel", "Issel", "Issel", "Issel", "Issel"], 6, "Issel"),
        # One of them does not; so does the seventh.
        (8, 0.95, ["Oder", "Issel", "Issel", "Issel", "Issel", "Oder", "Issel"], 7, "Issel"),
        # Nobody leads by enough.
        (8, 0.95, ["Oder", "Issel", "Issel", "Oder", "Issel", "Rhine", "Oder", "Oder"], 8, "Oder"),
        # Blank answers are no votes.
        (8, 0.95, ["", "", "", "", "Issel", "Issel", ""], 7, "Issel"),
    ],
)
def test_an_adaptive_vote_ends_when_it_is_as_good_as_decided(chains, sure, finals, sampled, kept):
    def answered(**options):
        said = iter(finals)
        reply = lambda request: next(said) if kind(request) == "FINAL" else seeded(request)  # noqa: E731
        return run(reply, max_hops=2, rank_by="vote", **options)

    answer, _, tools = answered(strategy="adaptive", chains=chains, vote_sure=sure)
    assert (len(answer.chains), answer.text) == (sampled, kept)
    assert tools.ledger["final"].calls == sampled and "score" not in tools.ledger
    whole, _, _ = answered(strategy="best_of_n", chains=sampled)
    assert (answer.chains, answer.chosen) == (whole.chains, whole.chosen), "the chains and votes of best of N"


def test_a_hard_budget_with_room_for_all_gives_the_chains_of_best_of_n():
    for budget in range(1_000, 12_000, 1_000):
        said = iter(["Oder", "Issel", "Rhine", "Elbe", "Main", "Oder", "Isar", "Lech"])
        reply = lambda request, said=said: next(said, "Po") if kind(request) == "FINAL" else seeded(request)  # noqa: E731
        options = {"chains": 8, "max_hops": 3, "rank_by": "vote", "budget": budget, **TOKENS}
        whole, _, _ = run(seeded, strategy="best_of_n", **options)
        answer, _, tools = run(reply, strategy="adaptive", **options)
        assert tools.spent.total <= budget
        assert [chain.hops for chain in answer.chains] == [chain.hops for chain in whole.chains]
        assert all(chain.stopped == "length" for chain in answer.chains)


@pytest.mark.parametrize("stop", ["length", "learned", "check", "settled"])
def test_a_hard_budget_buys_fewer_chains_and_none_that_is_shorter(stop):
    """Whatever the stop rule asks after every hop is paid for, and so are the chains' scores."""
    limits = {"max_sub_query_tokens": 6, "max_sub_answer_tokens": 6, "max_answer_tokens": 6}

    def reply(request):
        if kind(request) == "ENOUGH":
            return "No it is not"
        number = stable_hash_number(f"{request.sampling.seed} {request.prompt.text}")
        return " ".join([f"w{number}", *["word"] * 5])

    def score(request):
        return -9.0 if request.target.strip() == "Yes" else -1.0

    # A long question makes what is asked after every hop dear.
    question = replace(QUESTION, text=" ".join(["word"] * 200 + [QUESTION.text]))
    options = {
        "question": question,
        "strategy": "best_of_n",
        "chains": 6,
        "max_hops": 4,
        "stop": stop,
        **limits,
    }
    _, _, free = run(reply, score=score, **options)
    counts = []
    for share in (0.5, 1.0, 1.3, 2.0, 4.0):
        budget = round(share * free.spent.total)
        answer, _, tools = run(reply, score=score, budget=budget, **options)
        assert tools.spent.total <= budget
        assert [(len(chain.hops), chain.stopped) for chain in answer.chains] == [(4, "length")] * len(
            answer.chains
        )
        assert (answer.stopped == "budget") == (len(answer.chains) < 6)
        counts.append(len(answer.chains))
    assert counts == sorted(counts) and counts[0] < counts[-1]


def test_the_final_answer_is_paid_for_once_where_chains_are_judged_by_theirs():
    """Of best of N by vote no answer is to come: what would be held back for it buys a chain."""
    options = {"strategy": "best_of_n", "chains": 8, "max_hops": 2, "rank_by": "vote", **TOKENS}
    config = CoRAGConfig(**PROMPTS, **options)
    asking = Tools(QUESTION, ScriptedGenerator(seeded), WordRetriever(WORLD), budget=100_000)
    context = asyncio.run(retrieve_context(asking, config))
    whole = context.costs.hop * 2 + score_cost(Chain(), 2, context.costs, asking, config)
    for count in (2, 3, 5):
        answer, _, tools = run(seeded, budget=count * whole, **options)
        assert len(answer.chains) == count and tools.spent.total <= count * whole
        assert all(chain.answer and chain.stopped == "length" for chain in answer.chains)


def test_a_rollout_that_could_not_be_scored_is_scored_once_it_can_be():
    config = CoRAGConfig(**PROMPTS, strategy="tree")
    chain = Chain().then(Hop("a", "b", False, ()))
    tree = Tree(config, Context(()))
    tree._scores[chain.sub_queries] = None
    tools = Tools(QUESTION, ScriptedGenerator(seeded, log_likelihood=lambda _: -2.0), WordRetriever(WORLD))
    (found,) = asyncio.run(tree._score([chain], "here", tools))
    assert found.score == -2.0
