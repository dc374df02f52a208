"""CoRAG's chains replayed by hand: order, repeats, caps, early stops, budgets, refused hops.

Two hops and more.
"""

import asyncio
import random
import re
from contextlib import nullcontext
from dataclasses import asdict, replace

import pytest

from corag.chains.chain import Chain, Hop
from corag.chains.config import CoRAGConfig
from corag.chains.conventions import OURS, clean_sub_query
from corag.chains.final_answer import Context, final_answer
from corag.chains.released_code import RELEASED_CODE
from corag.core.errors import ConfigError, DataError
from corag.core.language.text import clean_sub_answer
from corag.core.tools import GenerateStep, Tools
from corag.core.types import Hit
from tests.chains.chains import GIVEN, TOKENS, chain_of, queue, run, searches, seeded
from tests.fakes import PROMPTS, ScriptedGenerator, WordRetriever, kind, passage
from tests.messages import raises_message
from tests.story import QUESTION, WORLD

# ---- the chain


def test_greedy_two_hops_by_hand_with_the_shipped_prompts():
    replies = iter(
        [
            "Who wrote The Glass Orchard?",
            "Mara Velden.",
            "Where was Mara Velden born?",
            "Tarn Hollow",
            "The Issel.",
        ]
    )
    config = CoRAGConfig(max_hops=2, passages_per_hop=1, search_depth=3, context_passages=2)
    answer, generator, tools = run(lambda request: next(replies), config)
    assert searches(tools) == [QUESTION.text, "Who wrote The Glass Orchard?", "Where was Mara Velden born?"]
    assert [step.role for step in tools.steps if isinstance(step, GenerateStep)] == [
        "sub_query", "sub_answer", "sub_query", "sub_answer", "final",
    ]  # fmt: skip
    assert "(nothing asked yet)" in generator.prompts[0]
    assert "1. Who wrote The Glass Orchard? -> Mara Velden.\n" in generator.prompts[2]
    assert (
        "Mara Velden is a writer" in generator.prompts[3] and "Tarn Hollow lies" not in generator.prompts[3]
    )
    final = generator.prompts[4]
    assert "2. Where was Mara Velden born? -> Tarn Hollow\n" in final
    question_hits = tools.steps[0].hits
    assert answer.context_ids == tuple(hit.passage.id for hit in question_hits[:2])
    assert final.index(question_hits[1].passage.text) < final.index(question_hits[0].passage.text), (
        "best last"
    )
    assert (answer.text, answer.steps, answer.stopped, answer.refusals) == ("The Issel", 2, "length", 0)
    assert answer.chains[0].score is None and answer.chains[0].hops[1].sub_answer == "Tarn Hollow"
    assert answer.passage_ids[0] in ("the glass orchard", "mara velden")


def test_a_hop_is_searched_with_its_sub_query_and_what_search_text_adds():
    searched = {
        "sub_query": ["glass orchard", "where born", "tarn hollow"],
        "answer": ["glass orchard", "where born Mara Velden", "tarn hollow"],
        "question": [f"{each} {QUESTION.text}" for each in ("glass orchard", "where born", "tarn hollow")],
    }
    for kind_of_text, expected in searched.items():
        reply = queue(
            NEXT=["glass orchard", "where born", "tarn hollow"],
            ANSWER=["Mara Velden", "No relevant information found", "a"],
            FINAL=["Issel"],
        )
        answer, _, tools = run(reply, max_hops=3, search_text=kind_of_text)
        assert searches(tools) == [QUESTION.text, *expected], "a refusal is nothing to search for"
        assert [hop.sub_query for hop in answer.chains[0].hops] == searched["sub_query"]


def test_the_passages_of_a_hop_come_best_first_or_best_last():
    for preset, titles in (
        ("paper", ["Mara Velden", "Tarn Hollow"]),
        ("released_code", ["Tarn Hollow", "Mara Velden"]),
    ):
        reply = queue(NEXT=["tarn hollow born"], ANSWER=["a"], FINAL=["Issel"])
        _, generator, _ = run(reply, max_hops=1, passages_per_hop=2, preset=preset)
        prompt = generator.prompts[1]
        assert sorted(titles, key=lambda title: prompt.index(f"{title}\n")) == titles


def test_refused_and_empty_sub_answers_stay_in_the_chain_as_refusals():
    reply = queue(
        NEXT=["the glass orchard", "mara velden", "zzz"],
        ANSWER=["No relevant information found.", "  "],
        FINAL=["Issel"],
    )
    answer, generator, _tools = run(reply, max_hops=3)
    assert [hop.sub_answer for hop in answer.chains[0].hops] == ["No relevant information found"] * 3
    assert answer.refusals == 3
    assert sum(kind(request) == "ANSWER" for request in generator.requests) == 2, (
        "nothing found: nothing to read"
    )
    assert "2. mara velden -> No relevant information found" in generator.prompts[-1]


def test_repeats_are_thrown_away_asked_for_again_warmer_and_counted():
    reply = queue(
        NEXT=["Glass Orchard", ' "the glass  orchard!" ', "", "Query 2: Mara Velden", "tarn hollow"],
        ANSWER=["a", "b", "c"],
        FINAL=["Issel"],
    )
    answer, generator, _ = run(reply, max_hops=3)
    assert [hop.sub_query for hop in answer.chains[0].hops] == ["Glass Orchard", "Mara Velden", "tarn hollow"]
    assert answer.repeats == 2
    asked = [request.sampling for request in generator.requests if kind(request) == "NEXT"]
    assert [sampling.temperature for sampling in asked] == [0, 0, 0.7, 0.7, 0]
    assert len({sampling.seed for sampling in asked if sampling.temperature}) == 2


def test_an_endless_repeat_ends_after_four_tries_per_hop():
    reply = {"NEXT": "glass orchard", "ANSWER": "a", "FINAL": "Issel"}
    answer, generator, _ = run(lambda request: reply[kind(request)], max_hops=3)
    assert (answer.steps, answer.stopped, answer.text) == (1, "repeats", "Issel")
    assert sum(kind(request) == "NEXT" for request in generator.requests) == 4 * 3
    assert answer.repeats == 11


def test_the_exact_rule_and_labels():
    assert RELEASED_CODE.fresh(["A b", "a B", "A b", ""], ["x"]) == ["A b", "a B", ""]
    assert OURS.fresh(["The  A b?", "c", ""], ["a b"]) == ["c"]
    assert clean_sub_query('Follow-up question 3: "Who?"\nmore') == "Who?"
    assert clean_sub_query("2. Where is it?", 2) == "Where is it?"
    assert clean_sub_query("1. FC Koln was founded when?", 2) == "1. FC Koln was founded when?"
    assert clean_sub_query('"Heroes" was sung by whom?') == '"Heroes" was sung by whom?'
    assert clean_sub_query("Intermediate query 1:\nWho wrote Emma?") == "Who wrote Emma?"


def test_a_refusal_is_the_sentence_and_not_its_first_letters():
    found = "No relevant information found"
    for refusal, answer, refused in (
        ("N/A", "Naples", False), ("No", "Norway", False), ("N/A", "n/a.", True),
        (found, "No relevant information found. The passages are about glass.", True),
        (found, "No relevant information found on the band, but Ann Lee directs.", False),
    ):  # fmt: skip
        assert clean_sub_answer(answer, refusal) == (refusal if refused else answer, refused)
    assert clean_sub_query("Question marks: who uses them?") == "Question marks: who uses them?"


@pytest.mark.parametrize(
    "options", [{"strategy": "greedy"}, {"strategy": "tree", "expand": 1, "rollouts": 1, "rollout_hops": 1}]
)
def test_a_hop_tells_what_was_cut_off(options):
    asked = ["glass by whom\nI think it", "where was Mara Velden born and when"]  # the first line was whole
    said = {"glass": "Mara Velden is a writer", "where": "No relevant information found, it seems"}

    def reply(request):
        if kind(request) == "NEXT":
            return asked[len(chain_of(request))]
        return said[request.prompt.text.split()[1]] if kind(request) == "ANSWER" else "Issel"

    answer, _, _ = run(
        reply, max_hops=2, max_sub_query_tokens=5, max_sub_answer_tokens=4, cuts=True, **options
    )
    hops = answer.chains[answer.chosen].hops
    assert [(hop.sub_query, hop.query_cut) for hop in hops] == [
        ("glass by whom", False),
        ("where was Mara Velden born", True),
    ]
    assert [(hop.sub_answer, hop.answer_cut) for hop in hops] == [
        ("Mara Velden is a", True),
        ("No relevant information found", False),
    ]


# ---- stopping


def test_the_stop_check_ends_a_chain_early():
    reply = queue(
        NEXT=["glass orchard", "mara velden"],
        ANSWER=["a", "b"],
        ENOUGH=["No, not yet", "Yes."],
        FINAL=["Issel"],
    )
    answer, _generator, tools = run(reply, max_hops=5, stop="check")
    assert (answer.steps, answer.stopped) == (2, "check")
    assert tools.ledger["stop_check"].calls == 2


def test_a_settled_draft_ends_a_chain_early():
    reply = queue(
        NEXT=["glass orchard", "mara velden", "tarn hollow"],
        ANSWER=["a", "b", "c"],
        FINAL=["x", "Issel", "the Issel!", "Issel"],
    )
    answer, _, tools = run(reply, max_hops=6, stop="settled")
    assert (answer.steps, answer.stopped, answer.text) == (3, "settled", "Issel")
    assert tools.ledger["draft"].calls == 3 and tools.ledger["final"].calls == 1


def test_the_learned_stop_compares_yes_and_no_with_a_bias():
    def likelihood(request):
        return -1.0 if request.target.strip() == "No" else -3.0 + len(chain_of(request))

    for bias, hops in ((0.0, 3), (1.5, 1), (-9.0, 4)):
        reply = queue(NEXT=["glass", "mara", "tarn", "orchard"], ANSWER=list("abcd"), FINAL=["Issel"])
        answer, _, _ = run(reply, max_hops=4, stop="learned", yes_bias=bias, score=likelihood)
        assert (answer.steps, answer.stopped) == (hops, "learned" if hops < 4 else "length")


# ---- budgets, ledger, determinism

STRATEGIES = [
    {"strategy": "greedy"},
    {"strategy": "best_of_n", "chains": 3},
    {"strategy": "best_of_n", "chains": 3, "rank_by": "vote"},
    {"strategy": "tree", "expand": 2, "beam": 2},
    {"strategy": "tree", "expand": 2, "beam": 2, "preset": "released_code"},
    {"strategy": "adaptive", "chains": 6, "rank_by": "vote"},
]


@pytest.mark.parametrize("options", STRATEGIES, ids=lambda options: "-".join(map(str, options.values())))
def test_a_budget_that_greedy_could_use_is_used(options):
    long = [passage(f"Glass {number}", "about glass " * 50) for number in range(5)]
    config = {"max_hops": 4, "passages_per_hop": 5, "context_passages": 5} | options
    _, _, cheapest = run(seeded, max_hops=4, retriever=WordRetriever(long))
    for factor in (1.6, 3, 6):
        budget = int(factor * cheapest.spent.total)
        answer, _, tools = run(seeded, budget=budget, retriever=WordRetriever(long), **config)
        assert (answer.steps, answer.chains[answer.chosen].stopped) == (4, "length"), (factor, tools.ledger)
        assert tools.spent.total <= budget


def test_without_tokens_for_the_final_answer_the_last_sub_answer_has_to_do():
    async def conclude():
        tools = Tools(QUESTION, ScriptedGenerator(seeded), WordRetriever(WORLD), budget=30)
        hops = (
            Hop("x", "Velden", False),
            Hop("y", "Issel", False),
            Hop("z", "No relevant information found", True),
        )
        return await final_answer(Chain(hops), Context(()), tools, CoRAGConfig(**PROMPTS))

    conclusion = asyncio.run(conclude())
    assert (conclusion.text, conclusion.passages, conclusion.affordable) == ("Issel", (), False)


@pytest.mark.parametrize("options", STRATEGIES, ids=lambda options: "-".join(map(str, options.values())))
@pytest.mark.parametrize(
    ("budget", "stop"), [(0, "length"), (2_500, "length"), (900, "learned"), (2_500, "settled")]
)
def test_results_do_not_depend_on_which_request_is_answered_first(options, budget, stop):
    def shuffled(seed):
        chance = random.Random(seed)

        async def pause(_):
            for _ in range(chance.randint(0, 6)):
                await asyncio.sleep(0)

        answer, _, tools = run(seeded, max_hops=3, budget=budget, pause=pause, stop=stop, **TOKENS, **options)
        return asdict(answer), tools.spent

    first = shuffled(0)
    assert all(shuffled(seed) == first for seed in range(1, 5))


# ---- what the final answer sees


def test_the_final_answer_sees_the_questions_the_chains_or_both_passages():
    shown = {}
    for context in ("question", "chain", "fused"):
        reply = queue(NEXT=["velden", "hollow"], ANSWER=["a", "b"], FINAL=["Issel"])
        answer, _, _ = run(reply, max_hops=2, context=context, context_passages=2, question=GIVEN)
        shown[context] = answer.context_ids
        assert answer.passage_ids == ("mara velden", "the glass orchard", "tarn hollow")
    assert shown["question"] == ("mara velden", "tarn hollow")
    assert shown["chain"] == ("mara velden", "the glass orchard")
    assert shown["fused"] == ("mara velden", "tarn hollow")


def test_searches_are_merged_in_turns_or_by_reciprocal_rank():
    """A passage that both hops find second is no better than what one of the searches finds first."""
    pages = [passage(letter, letter) for letter in "qxaybz"]
    lists = {"q?": "qx", "a?": "ayq", "b?": "byz"}

    class Listed(WordRetriever):
        async def search(self, query, k, hop=False):
            names = lists[query if query in lists else "q?"]
            return [Hit(each, 1.0) for name in names for each in pages if each.title == name][:k]

    shown = {}
    for merge in ("reciprocal_rank", "turns"):
        for context in ("chain", "fused"):
            reply = queue(NEXT=["a?", "b?"], ANSWER=["1", "2"], FINAL=["Issel"])
            answer, *_ = run(
                reply, max_hops=2, merge=merge, context=context, context_passages=3, retriever=Listed(pages)
            )
            shown[merge, context] = "".join(answer.context_ids)
        shown[merge] = "".join(answer.passage_ids)
    assert shown == {
        ("reciprocal_rank", "chain"): "yab", ("turns", "chain"): "aby",
        ("reciprocal_rank", "fused"): "qya", ("turns", "fused"): "qab",
        "reciprocal_rank": "yabqz", "turns": "qabxyz",
    }  # fmt: skip


def test_without_hops_what_the_question_found_is_all_there_is():
    for merge in ("reciprocal_rank", "turns"):
        for context in ("question", "chain", "fused", "evidence"):
            answer, *_ = run(queue(FINAL=["Issel"]), max_hops=0, merge=merge, context=context, question=GIVEN)
            assert answer.passage_ids == answer.context_ids == GIVEN.context_ids


def test_a_final_prompt_of_evidence_holds_the_passages_that_sub_answers_stand_in():
    """One a hop, none of a refused hop or of a sub-answer that was made up, each once."""

    def shown(*sub_answers, **options):
        asked = ["Orchard glass?", "Velden born?", "Velden writer?"][: len(sub_answers)]
        reply = queue(NEXT=asked, ANSWER=list(sub_answers), FINAL=["Issel"])
        answer, generator, _ = run(reply, max_hops=len(asked), context="evidence", **options)
        held = [each.title for each in WORLD if f"\n{each.text}" in generator.prompts[-1]]
        assert sorted(name.lower() for name in held) == sorted(answer.context_ids)
        return answer.context_ids

    assert shown("Mara Velden", "tarn hollow!") == ("the glass orchard", "mara velden")
    assert shown("Mara Velden", "Tarn Hollow", "a writer") == ("the glass orchard", "mara velden")
    assert shown("No relevant information found", "Tarn Hollow") == ("mara velden",)
    assert shown("Berlin", "Tarn Hollow") == ("mara velden",), "Berlin stands in no passage"
    assert shown("Mara Velden", "Tarn Hollow", context_passages=1) == ("the glass orchard",)
    read_only = {"passages_per_hop": 1, "context_passages": 2}
    assert shown("made of sand", **read_only) == shown("Berlin", **read_only), (
        "what was not read is no evidence"
    )
    assert len(shown("Berlin", **read_only)) == 2, "without evidence, the question's and the chain's passages"


def test_final_passages_are_cut_and_dropped_by_rule():
    reply = queue(FINAL=["Issel"])
    answer, generator, _ = run(
        reply, max_hops=0, max_passage_tokens=4, context_order="best_first", question=GIVEN
    )
    assert "Mara Velden is a\n" in generator.prompts[0] and "writer" not in generator.prompts[0]
    assert generator.prompts[0].index("Mara Velden") < generator.prompts[0].index("Tarn Hollow lies")
    answer, generator, _ = run(queue(FINAL=["Issel"]), max_hops=0, max_prompt_tokens=80, question=GIVEN)
    assert answer.context_ids == ("mara velden",), "the worst passage went, whole"


@pytest.mark.parametrize("lost", [0, 2, 4])
def test_a_passage_that_a_question_brings_and_the_index_lacks_is_named(lost):
    ids = ["mara velden", "tarn hollow", "glassware", "the glass orchard"]
    brings = replace(GIVEN, context_ids=(*ids[:lost], "gone", *ids[lost:], "lost too"))
    with raises_message(DataError):
        run(seeded, max_hops=2, context_passages=2, question=brings)
    answer, _, _ = run(
        seeded, max_hops=2, context_passages=4, question=replace(GIVEN, context_ids=tuple(ids))
    )
    assert answer.context_ids == tuple(ids)


def test_an_index_with_other_ids_is_searched_for_the_question_but_with_the_released_code():
    """The papers' rows with another retriever (table 3): the authors' file brings E5's passages."""
    other = WordRetriever([replace(each, id=f"bm25 {at}") for at, each in enumerate(WORLD)])
    for preset, given_context in (("paper", "ignore"), ("small_model", "ignore"), ("released_code", "use")):
        config = CoRAGConfig(preset=preset, **PROMPTS, max_hops=1, context_passages=2)
        assert config.given_context == given_context
        with raises_message(DataError) if given_context == "use" else nullcontext():
            answer, _, tools = run(seeded, config, question=GIVEN, retriever=other)
            assert searches(tools)[0] == GIVEN.text
            assert set(answer.context_ids) <= {f"bm25 {at}" for at in range(len(WORLD))}
    config = CoRAGConfig(preset="released_code", given_context="ignore", **PROMPTS, max_hops=1)
    assert searches(run(seeded, config, question=GIVEN, retriever=other)[2])[0] == GIVEN.text


# ---- what a user would hope


def test_a_model_that_says_nothing_still_ends():
    for options in STRATEGIES:
        answer, _, _ = run(lambda request: "", max_hops=3, **options)
        # To the authors' code a blank sub-query is one like any other.
        assert (answer.text, answer.steps) == ("", 3 if "preset" in options else 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"refusal": " "}, "refusal sentence"),
        ({"strategy": "tree", "rank_by": "vote"}, "rank_by 'vote' compares final answers"),
        ({"strategy": "adaptive", "rank_by": "vote+refusals"}, "counts votes to know when to stop"),
        ({"stop": "setled"}, "did you mean 'settled'?"),
        ({"measure": ("refusal", "probabilty")}, "it should be 'refusal', 'refusals'"),
    ],
)
def test_impossible_options_are_refused_with_a_sentence(options, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        CoRAGConfig(**options).templates()
