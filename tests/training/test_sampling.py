"""Rejection sampling replayed by hand: lengths, stops, scores, the choice; and chains from decompositions."""

import asyncio
import random
from dataclasses import asdict, replace

import pytest

from corag.chains.config import CoRAGConfig
from corag.core.seeds import derive_seed
from corag.core.types import GoldHop
from tests.fakes import PROMPTS, kind, passage
from tests.training.toy import (
    QUESTION,
    REFUSAL,
    WORLD,
    asked_in,
    by_prompt,
    likelihood_by_prompt,
    many,
    sample,
    script,
)
from training.sampling import SampleConfig, SampledChain, choose

CORAG = CoRAGConfig(**PROMPTS, passages_per_hop=1, search_depth=2, context_passages=2)
BOOK, AUTHOR, TOWN = "the glass orchard", "mara velden", "tarn hollow"


def seed_for(*lengths, max_hops=3):
    """Find a seed with which the first chains are to have these lengths."""
    config = SampleConfig(chains=len(lengths), max_hops=max_hops)
    return next(seed for seed in range(2000) if drawn(config, seed) == lengths)


def drawn(config, seed, question=QUESTION):
    # Sub-queries that never come: nothing is asked twice, and the length drawn stands in the record.
    answer, _, _ = sample(config, replace(CORAG, tries=1), lambda request: "", seed=seed, question=question)
    return tuple(chain.drawn for chain in answer.chains)


def by_chain(**likelihoods):
    """Score by how many hops a chain has and how it begins: ``by_chain(BOOK=[-2, -1])``."""
    return lambda request: likelihoods[asked_in(request)[0].split()[-1]][len(asked_in(request)) - 1]


def run(
    *chains, lengths, likelihood=lambda request: -1.0, answers=None, world=WORLD, question=QUESTION, **options
):
    seed = seed_for(*lengths)
    config = SampleConfig(chains=len(lengths), max_hops=3, **options)
    reply = script(*chains, answers=answers, seed=seed)
    return sample(config, CORAG, reply, likelihood=likelihood, seed=seed, world=world, question=question)


# ---- chains by hand


def test_three_chains_by_hand():
    answer, generator, _ = run(
        ["find orchard", "find velden", "find hollow"], ["try velden", "find hollow"], ["try hollow"],
        lengths=(3, 2, 1),
        answers={"find orchard": "Mara Velden.", "find velden": "Tarn Hollow"},
        likelihood=by_chain(orchard=[-2, -1, -0.5], velden=[-3, -0.2], hollow=[-0.9]),
    )  # fmt: skip
    first, second, third = answer.chains
    assert [hop.sub_query for hop in first.hops] == ["find orchard", "find velden", "find hollow"]
    assert [hop.sub_answer for hop in first.hops] == ["Mara Velden.", "Tarn Hollow", "about find hollow"]
    assert [hop.passage_ids for hop in first.hops] == [(BOOK,), (BOOK, AUTHOR), (AUTHOR, TOWN)]
    assert [each.means for each in answer.chains] == [(-2, -1, -0.5), (-3, -0.2), (-0.9,)]
    assert [each.stopped for each in answer.chains] == ["length"] * 3
    assert [each.drawn for each in answer.chains] == [3, 2, 1]
    assert (len(second.hops), len(third.hops)) == (2, 1)
    assert (answer.chosen, answer.rejected, answer.steps, answer.stopped) == (1, "", 2, "length")
    assert answer.context_ids == answer.passage_ids == (BOOK, TOWN), "what a search for the question finds"
    final = [request for request in generator.scored if len(asked_in(request)) == 3]
    assert [request.target for request in final] == ["Issel", "the river Issel"]
    assert all(request.end_of_turn for request in generator.scored)
    assert "1. find orchard -> Mara Velden.\n2. find velden -> Tarn Hollow\n" in final[0].prompt.text
    assert not any(each.text in request.prompt.text for each in WORLD for request in generator.scored), (
        "no passages"
    )


def test_the_gold_answer_is_scored_once_per_hop_and_alias():
    _, generator, tools = run(["orchard", "velden", "hollow"], ["hollow", "velden"], lengths=(3, 2))
    shown = sorted(asked_in(request) for request in generator.scored)
    chains = [
        ("hollow",),
        ("hollow", "velden"),
        ("orchard",),
        ("orchard", "velden"),
        ("orchard", "velden", "hollow"),
    ]
    assert shown == sorted(chain for chain in chains for _ in QUESTION.answers)
    assert tools.ledger["score"].calls == len(generator.scored)


def test_lengths_are_drawn_from_one_to_max_hops():
    config = SampleConfig(chains=4, max_hops=5)
    found = [drawn(config, seed, question) for seed in range(10) for question in many(10)]
    lengths = [length for each in found for length in each]
    assert set(lengths) == {1, 2, 3, 4, 5}
    assert all(lengths.count(length) > 0.1 * len(lengths) for length in range(1, 6)), "a fifth each, about"
    assert drawn(config, 3) == drawn(config, 3)
    assert len(set(found)) > 50, "seed, question and chain each matter"
    assert any(len(set(each)) > 2 for each in found)


@pytest.mark.parametrize("said", ["The Issel!", "river issel"])
def test_a_chain_ends_at_a_sub_answer_that_is_the_answer_or_an_alias(said):
    answer, _, _ = run(
        ["orchard", "velden", "hollow"],
        ["hollow", "velden", "orchard"],
        lengths=(3, 3),
        answers={"velden": said},
    )
    assert [(each.stopped, len(each.hops), each.drawn) for each in answer.chains] == [("match", 2, 3)] * 2
    assert [len(each.means) for each in answer.chains] == [2, 2], "the last hop is scored too"


def test_a_sub_answer_that_only_holds_the_answer_goes_on():
    answer, _, _ = run(
        ["orchard", "velden", "hollow"], lengths=(3,), answers={"orchard": "It is Issel I think"}
    )
    assert (answer.stopped, answer.steps) == ("length", 3)


def test_a_chain_ends_once_the_answer_is_likely_enough():
    scores = [-1.0, -0.25, -0.24]
    answer, _, _ = run(
        ["orchard", "velden", "hollow"], lengths=(3,), likelihood=by_chain(orchard=scores), sure_above=-0.25
    )
    assert (answer.stopped, answer.steps, answer.chains[0].means) == ("sure", 3, (-1, -0.25, -0.24)), (
        "above, not at"
    )
    answer, _, _ = run(
        ["orchard", "velden", "hollow"], lengths=(3,), likelihood=by_chain(orchard=scores), sure_above=-0.26
    )
    assert (answer.stopped, answer.steps) == ("sure", 2)


def test_a_chain_ends_when_nothing_new_is_asked_and_repeats_are_counted():
    again = ["velden", "", "orchard", "the velden"] * 3
    answer, generator, _ = run(["orchard", ["Orchard!", "velden"], again], lengths=(3,))
    only = answer.chains[0]
    assert [hop.sub_query for hop in only.hops] == ["orchard", "velden"]
    # So many tries as in decoding: of three hops' all that the first two left.
    tries = 3 * CORAG.tries
    assert (only.stopped, only.repeats, only.drawn) == ("repeats", tries - 2, 3)
    assert sum(kind(request) == "NEXT" for request in generator.requests) == tries
    assert answer.chosen == 0, "what came before counts"


def test_a_chain_without_a_hop_is_not_chosen():
    answer, _, _ = run([], ["orchard"], lengths=(2, 1), likelihood=lambda request: -5.0)
    assert (answer.chains[0].hops, answer.chosen, answer.rejected) == ((), 1, "")
    answer, _, _ = run([], [], lengths=(2, 1))
    assert (answer.chosen, answer.rejected, answer.steps, answer.stopped) == (None, "no chain", 0, "no chain")


def test_refused_hops_are_kept():
    answer, generator, _ = run(
        ["orchard", "zzz", "hollow"], lengths=(3,), answers={"orchard": "No relevant information found."}
    )
    hops = answer.chains[answer.chosen].hops
    assert [hop.refused for hop in hops] == [True, True, False]
    assert [hop.sub_answer for hop in hops] == [REFUSAL, REFUSAL, "about hollow"]
    assert hops[1].passage_ids == () and sum(kind(request) == "ANSWER" for request in generator.requests) == 2
    assert f"2. zzz -> {REFUSAL}\n" in generator.scored[-1].prompt.text


# ---- scores and choice


def test_the_likeliest_alias_counts():
    def likelihood(request):
        hops = len(asked_in(request))
        return {"Issel": -2.0 / hops, "the river Issel": -0.9}[request.target]

    answer, _, _ = run(["orchard", "velden", "hollow"], lengths=(3,), likelihood=likelihood)
    assert answer.chains[0].means == pytest.approx((-0.9, -0.9, -2 / 3))
    assert answer.chains[0].sums == pytest.approx((-2.0, -1.0, -2 / 3)), (
        "as a whole, another alias is likelier"
    )


def test_the_first_of_equals_is_kept():
    answer, _, _ = run(
        ["orchard"], ["velden"], ["hollow"],
        lengths=(1, 1, 1), likelihood=by_chain(orchard=[-3], velden=[-2], hollow=[-2]),
    )  # fmt: skip
    assert answer.chosen == 1


@pytest.mark.parametrize("rank_by,chosen", [("mean", 1), ("sum", 0)])
def test_mean_and_sum_differ_between_aliases_of_different_length(rank_by, chosen):
    def likelihood(request):  # chain 1 makes the short alias likely, chain 2 each word of the long one
        short = {"orchard": -0.9, "hollow": -5.0}[asked_in(request)[0]]
        return short if request.target == "Issel" else {"orchard": -2.0, "hollow": -0.5}[asked_in(request)[0]]

    answer, _, _ = run(["orchard"], ["hollow"], lengths=(1, 1), likelihood=likelihood, rank_by=rank_by)
    assert [each.means[0] for each in answer.chains] == [-0.9, -0.5]
    assert [each.sums[0] for each in answer.chains] == [-0.9, -1.5]
    assert answer.chosen == chosen


@pytest.mark.parametrize(
    "threshold,chosen,rejected", [(None, 1, ""), (-0.8, 1, ""), (-0.79, None, "threshold")]
)
def test_a_question_whose_best_chain_is_too_unlikely_is_left_out(threshold, chosen, rejected):
    answer, _, _ = run(
        ["orchard", "hollow"], ["velden"], lengths=(2, 1), reject_below=threshold,
        likelihood=by_chain(orchard=[-0.2, -0.9], velden=[-0.8]),
    )  # fmt: skip
    assert (answer.chosen, answer.rejected) == (chosen, rejected)
    assert len(answer.chains) == 2, "every candidate is told of"
    assert (answer.steps, answer.stopped) == ((0, "threshold") if rejected else (1, "length"))


def test_the_threshold_is_on_the_mean_of_what_is_ranked_best():
    chains = [
        SampledChain((), (mean,), (total,), 1, "length") for mean, total in [(-0.5, -3.0), (-0.9, -0.9)]
    ]
    assert choose(chains, SampleConfig(rank_by="sum", reject_below=-0.8)) == (None, "threshold")
    assert choose(chains, SampleConfig(rank_by="mean", reject_below=-0.8)) == (0, "")


# ---- randomness


def random_chains(count, seed=0, pause=None, question=QUESTION):
    config = SampleConfig(chains=count, max_hops=4)
    answer, generator, _ = sample(
        config, CORAG, by_prompt, likelihood=likelihood_by_prompt, seed=seed, pause=pause, question=question
    )
    return answer, generator


def test_a_chain_does_not_depend_on_how_many_are_sampled():
    assert random_chains(8)[0].chains[:3] == random_chains(3)[0].chains


def test_the_same_seed_gives_the_same_chains_whatever_finishes_first():
    order = random.Random(7)

    async def pause(request):
        for _ in range(order.randrange(6)):
            await asyncio.sleep(0)

    assert asdict(random_chains(6, pause=pause)[0]) == asdict(random_chains(6)[0])
    assert random_chains(6)[0].chains != random_chains(6, seed=1)[0].chains
    assert random_chains(6)[0].chains != random_chains(6, question=replace(QUESTION, id="q2"))[0].chains


def test_only_sub_queries_are_sampled():
    config = SampleConfig(chains=5, max_hops=4, temperature=0.9)
    _, generator, _ = sample(config, CORAG, by_prompt, likelihood=likelihood_by_prompt)
    queries = [request.sampling for request in generator.requests if kind(request) == "NEXT"]
    answers = [request.sampling for request in generator.requests if kind(request) == "ANSWER"]
    assert {sampling.temperature for sampling in queries} == {0.9} and {
        each.temperature for each in answers
    } == {0}
    assert len({sampling.seed for sampling in queries}) == len(queries) >= 8
    assert {sampling.seed for sampling in answers} == {None}
    assert {kind(request) for request in generator.requests} == {"NEXT", "ANSWER"}
    assert derive_seed(0, "q1", "sub_query", "chain 2/hop 1") in {sampling.seed for sampling in queries}


# ---- decompositions


def follow(question=QUESTION, world=WORLD, corag=CORAG, source="decomposition", **options):
    return sample(
        SampleConfig(source=source, **options), corag, by_prompt, question=question, world=world,
        likelihood=lambda request: -0.25,
    )  # fmt: skip


def test_a_decomposition_is_followed_with_its_references_replaced():
    answer, generator, _ = follow()
    assert generator.requests == [] and len(generator.scored) == 2, (
        "the dataset has said it all; the whole is scored"
    )
    (chain,) = answer.chains
    assert [hop.sub_query for hop in chain.hops] == [
        "Who wrote The Glass Orchard?", "Where was Mara Velden born?", "Which river flows by Tarn Hollow?",
    ]  # fmt: skip
    assert [hop.sub_answer for hop in chain.hops] == ["Mara Velden", "Tarn Hollow", "Issel"]
    assert [hop.passage_ids[0] for hop in chain.hops] == [BOOK, AUTHOR, TOWN]
    assert not any(hop.refused for hop in chain.hops)
    assert (chain.means, chain.drawn, answer.chosen, answer.steps, answer.rejected) == ((-0.25,), 3, 0, 3, "")


def test_a_reference_to_nothing_stays_as_it_is():
    steps = (
        GoldHop("Who wrote The Glass Orchard?", "Mara Velden"),
        GoldHop("Was #2 born before #1 or #0?", "Tarn Hollow"),
    )
    answer, _, _ = follow(replace(QUESTION, decomposition=steps))
    assert answer.chains[0].hops[1].sub_query == "Was #2 born before Mara Velden or #0?"


def test_a_relation_is_asked_as_a_question():
    steps = (
        GoldHop("The Glass Orchard >> author", "Mara Velden"),
        GoldHop("#1 >> birthplace", "Tarn Hollow"),
    )
    answer, _, _ = follow(replace(QUESTION, decomposition=steps), corag=replace(CORAG, passages_per_hop=3))
    assert [hop.sub_query for hop in answer.chains[0].hops] == [
        "What is the author of The Glass Orchard?", "What is the birthplace of Mara Velden?",
    ]  # fmt: skip


def test_yes_and_no_need_not_stand_in_a_passage():
    steps = (GoldHop("Who wrote The Glass Orchard?", "Mara Velden"), GoldHop("Was #1 born in Oslo?", "no"))
    answer, _, _ = follow(replace(QUESTION, decomposition=steps))
    assert [hop.sub_answer for hop in answer.chains[answer.chosen].hops] == ["Mara Velden", "no"]


def test_a_question_whose_passages_lack_a_sub_answer_is_left_out():
    without = [each for each in WORLD if each.id != AUTHOR]
    answer, generator, _ = follow(world=without)
    assert (answer.chosen, answer.rejected, answer.stopped, answer.steps) == (
        None,
        "unsupported",
        "unsupported",
        0,
    )
    (chain,) = answer.chains
    assert ([hop.sub_answer for hop in chain.hops], chain.stopped) == (["Mara Velden"], "unsupported")
    assert generator.scored == []


def test_what_tells_too_low_to_be_read_takes_the_last_place_that_is():
    noise = passage("Born", "Where was Mara Velden born? Where was she born?")
    hop = follow(world=[*WORLD, noise])[0].chains[0].hops[1]  # it is first, and one is read
    assert hop.sub_answer == "Tarn Hollow" and hop.passage_ids[:2] == (AUTHOR, noise.id)
    both = follow(world=[*WORLD, noise], corag=replace(CORAG, passages_per_hop=2))[0].chains[0].hops[1]
    assert both.passage_ids[:2] == (noise.id, AUTHOR), "it is read as it is"


def test_a_given_chain_is_taken_over_wrong_and_refused_hops_too():
    steps = (
        GoldHop("Who wrote The Glass Orchard?", "No relevant information found."),
        GoldHop("Who wrote #1, The Glass Orchard?", "Somebody whom no passage names"),
    )
    answer, generator, _ = follow(replace(QUESTION, decomposition=steps), source="given")
    (chain,) = answer.chains
    assert [hop.sub_query for hop in chain.hops] == [step.question for step in steps]
    assert [hop.refused for hop in chain.hops] == [True, False]
    assert chain.hops[0].sub_answer == CORAG.refusal
    assert [hop.passage_ids[0] for hop in chain.hops] == [BOOK, BOOK]
    assert (chain.means, answer.chosen, answer.rejected, len(generator.scored)) == ((-0.25,), 0, "", 2)
    assert follow(replace(QUESTION, decomposition=steps), source="given", reject_below=-0.2)[0].chosen is None


def test_what_is_too_long_in_a_given_chain_is_marked_as_cut():
    steps = (
        GoldHop("Who wrote The Glass Orchard?", "Mara"),
        GoldHop("Where?", "By the river, in Tarn Hollow"),
    )
    limits = replace(CORAG, max_sub_query_tokens=3, max_sub_answer_tokens=4)
    (chain,) = follow(replace(QUESTION, decomposition=steps), source="given", corag=limits)[0].chains
    assert [(hop.query_cut, hop.answer_cut) for hop in chain.hops] == [(True, False), (False, True)]


def test_a_given_chain_without_hops_is_scored_as_it_is():
    bare = replace(QUESTION, decomposition=())
    answer, generator, _ = follow(bare, source="given")
    assert (answer.chains[0].hops, answer.chosen, len(generator.scored)) == ((), 0, 2)
