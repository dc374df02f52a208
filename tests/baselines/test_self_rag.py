"""Self-RAG replayed by hand: one and more segments, caps, early stops, and what goes wrong."""

import math

import pytest

from corag.baselines.self_rag import (
    REFLECTION_TOKENS,
    SUPPORT_TOKENS,
    Hypothesis,
    JudgedSegment,
    SelfRAGConfig,
    rank_key,
    reflection_probabilities,
    self_rag,
)
from corag.core.errors import ConfigError
from corag.core.options.classes import change_options
from corag.core.tools import SearchStep, Tools
from tests.baselines import replaying
from tests.fakes import ScriptedGenerator, WordRetriever
from tests.messages import raises_message
from tests.story import BOOK, NOISE, QUESTION, TOWN, WORLD

CONFIG = SelfRAGConfig(k=2)
LONG = {"k": 1, "preset": "long_form", "max_segments": 3}
# How likely reflection tokens are, relative to the others of their group, unless a test says otherwise.
CHANCES = {
    "[Retrieval]": 0.9,
    "[No Retrieval]": 0.1,
    "[Relevant]": 0.8,
    "[Irrelevant]": 0.2,
    "[Fully supported]": 0.5,
}
CHANCES |= {"[Partially supported]": 0.25, "[No support / Contradictory]": 0.25}
CHANCES |= {f"[Utility:{n}]": 0.1 for n in range(1, 5)} | {"[Utility:5]": 0.6}


def reflecting(replies, chance=lambda prompt, token: CHANCES[token]):
    """A model with reflection tokens. ``chance``: of a token after a prompt."""
    return ScriptedGenerator(
        replies,
        log_likelihood=lambda request: math.log(0.01 * chance(request.prompt.text, request.target)),
        probability=lambda word: 0.5,
        special=REFLECTION_TOKENS,
    )


async def replay(generator, config=CONFIG, method=self_rag, retriever=None, budget=0):
    answer, _, tools = await replaying.replay(method, config, (), retriever, budget, generator)
    return answer, tools


def by_passage(prompts_to_replies):
    """Reply by which passage the prompt gives last."""

    def reply(request):
        shown = request.prompt.text.rpartition("<paragraph>")[2]
        return next(text for words, text in prompts_to_replies.items() if words in shown)

    return reply


def searches(tools):
    return [step.query for step in tools.steps if isinstance(step, SearchStep)]


async def test_short_form_keeps_the_continuation_that_the_model_thinks_best():
    replies = {
        BOOK.text: "[Relevant]Rhine.[Partially supported][Utility:3]",
        TOWN.text: "[Relevant]The Issel.[Fully supported][Utility:5]",
    }

    def chance(prompt, token):
        return 0.9 if token == "[Fully supported]" and TOWN.text in prompt else CHANCES[token]

    generator = reflecting(by_passage(replies), chance)
    answer, tools = await replay(generator)
    assert (answer.text, answer.stopped, answer.steps) == ("The Issel.", "end", 1)
    assert answer.retrieved and answer.compared == 2
    (segment,) = answer.segments
    assert segment.passage_id == "tarn hollow" and segment.text == replies[TOWN.text]
    support = (0.9 + 0.5 * 0.25) / 1.4
    assert segment.critique.relevance == pytest.approx(0.8)
    assert segment.critique.support == pytest.approx(support)
    assert segment.critique.utility == pytest.approx(-0.1 - 0.05 + 0.05 + 0.6)
    # with the tokens' mean probability
    assert segment.score == pytest.approx(0.5 + 0.8 + support + 0.5 * 0.5)
    assert {name: usage.calls for name, usage in tools.ledger.items()} == {
        "retrieve": 2,
        "segment": 2,
        "critique": 20,
    }
    assert searches(tools) == [QUESTION.text] and answer.passage_ids == ("the glass orchard", "tarn hollow")
    start = f"### Instruction:\n{QUESTION.text}\n\n### Response:\n"
    assert generator.scored[0].prompt.text == start
    opening = f"{start}[Retrieval]<paragraph>{TOWN.title}\n{TOWN.text}</paragraph>"
    assert opening in generator.prompts and generator.requests[0].sampling.stop == ("<paragraph>",)
    # Tokens are judged where they stand: ISREL behind the passage, ISSUP and ISUSE behind what came before
    # them.
    places = {(request.prompt.text, request.target) for request in generator.scored}
    assert {(opening, "[Irrelevant]"), (f"{opening}[Relevant]The Issel.", "[Partially supported]")} <= places
    assert (f"{opening}[Relevant]The Issel.[Fully supported]", "[Utility:1]") in places


async def test_the_threshold_is_on_probabilities_and_without_passages_the_model_goes_on_by_itself():
    def unwilling(prompt, token):  # a ratio of log-probabilities, as in the released code, would be 0.96
        return {"[Retrieval]": 0.1, "[No Retrieval]": 0.9}.get(token, 0.1)

    generator = reflecting(["The Issel.[Utility:5]"], unwilling)
    answer, tools = await replay(generator)
    assert (answer.text, answer.retrieved, answer.passage_ids) == ("The Issel.", False, ())
    assert searches(tools) == [] and generator.prompts[0].endswith("### Response:\n[No Retrieval]")
    assert answer.segments[0].critique.relevance == answer.segments[0].critique.support == 0
    for changes, count in (
        ({"threshold": 0.05}, 1),
        ({"retrieval": "always"}, 1),
        ({"retrieval": "never"}, 0),
    ):
        generator = reflecting(lambda request: "Issel.", unwilling)
        _, tools = await replay(generator, change_options(CONFIG, changes))
        assert len(searches(tools)) == count
        assert ("retrieve" in tools.ledger) == ("threshold" in changes)


async def test_long_form_goes_on_where_the_model_wants_passages_and_shows_no_earlier_passage():
    first = "[Relevant]Mara Velden wrote it.[Fully supported][Retrieval]<paragraph>made up"
    second = "[Relevant]She was born in Tarn Hollow.[Fully supported][No Retrieval]It is a town.[Utility:5]"
    third = "[Relevant]It lies on the Issel.[Fully supported][Utility:5]"
    generator = reflecting([first, second, third])
    config = change_options(CONFIG, {**LONG, "search_with": "segment"})
    answer, tools = await replay(generator, config)
    assert answer.text == "Mara Velden wrote it. She was born in Tarn Hollow. It lies on the Issel."
    assert (answer.stopped, answer.steps, answer.compared) == ("end", 3, 3)
    # [No Retrieval] is overruled, since [Retrieval] is likely enough there.
    assert answer.segments[1].text == "[Relevant]She was born in Tarn Hollow.[Fully supported]"
    assert searches(tools) == [
        QUESTION.text,
        f"{QUESTION.text} Mara Velden wrote it.",
        f"{QUESTION.text} She was born in Tarn Hollow.",
    ]
    before = "[Relevant]Mara Velden wrote it.[Fully supported]"
    assert f"### Response:\n{before}[Retrieval]<paragraph>" in generator.prompts[1]
    assert generator.prompts[1].count("<paragraph>") == 1
    assert "made up" not in "".join(generator.prompts)
    _, tools = await replay(reflecting([first, second, third]), change_options(CONFIG, LONG))
    assert searches(tools) == [QUESTION.text], "with the question alone, one search serves all segments"


async def test_the_beam_keeps_the_best_paths_apart_and_finished_ones_too():
    replies = {
        BOOK.text: "[Relevant]One.[Fully supported][Retrieval]",
        TOWN.text: "[Relevant]Two.[Fully supported][Utility:5]",
        NOISE.text: "[Relevant]Three.[Fully supported][Retrieval]",
    }

    def chance(prompt, token):
        return (
            0.01 if token == "[Relevant]" and ("One." in prompt or NOISE.text in prompt) else CHANCES[token]
        )

    generator = reflecting(by_passage(replies), chance)
    answer, _ = await replay(generator, change_options(CONFIG, {**LONG, "k": 3, "beam": 2}))
    assert (answer.text, answer.stopped, answer.steps) == ("Two.", "end", 1), (
        "a finished path stays, and may win"
    )
    earlier = [
        prompt.partition("### Response:\n")[2].partition("[Retrieval]")[0] for prompt in generator.prompts
    ]
    assert earlier[:3] == [""] * 3 and set(earlier[3:6]) == {"[Relevant]One.[Fully supported]"}
    assert not any("Two." in text or "Three." in text for text in earlier), "no path sees another one's text"


async def test_the_cap_and_the_early_stop():
    wanting = "[Relevant]Glass is made of sand.[Fully supported][Retrieval]"
    answer, _ = await replay(reflecting(lambda request: wanting), change_options(CONFIG, LONG))
    assert (answer.stopped, answer.steps) == ("max_segments", 3)
    answer, _ = await replay(reflecting(lambda request: wanting), SelfRAGConfig(k=1))
    assert (answer.stopped, answer.steps, answer.text) == ("max_segments", 1, "Glass is made of sand.")
    answer, _ = await replay(
        reflecting(["[Relevant]Issel.[Utility:5]", "unasked"]), change_options(CONFIG, LONG)
    )
    assert (answer.stopped, answer.steps, answer.text) == ("end", 1, "Issel.")


async def test_a_malformed_continuation_loses_and_nothing_but_malformed_ones_answers_nothing():
    replies = {BOOK.text: "[Relevant]", TOWN.text: "Issel without any token"}
    answer, _ = await replay(reflecting(by_passage(replies)))
    assert answer.text == "Issel without any token"
    assert answer.segments[0].critique.support == answer.segments[0].critique.utility == 0
    answer, _ = await replay(reflecting(lambda request: ""))
    assert (answer.text, answer.stopped, answer.steps) == ("", "end", 1)


async def test_nothing_found_goes_on_without_passages():
    generator = reflecting(["Issel.[Utility:5]"])
    answer, tools = await replay(generator, retriever=WordRetriever([]))
    assert (answer.text, answer.retrieved, answer.compared) == ("Issel.", True, 1)
    assert generator.prompts[0].endswith("[No Retrieval]") and searches(tools) == [QUESTION.text]


@pytest.mark.parametrize("options", [{}, {**LONG, "max_segments": 2}])
async def test_a_budget_too_small_for_all_passages_goes_on_from_the_best(options):
    replies = {
        BOOK.text: "[Relevant]Rhine.[Fully supported][No Retrieval]",
        TOWN.text: "[Relevant]Issel.[Fully supported][No Retrieval]",
        NOISE.text: "[Relevant]Oslo.[Fully supported][No Retrieval]",
    }
    config = change_options(CONFIG, {**options, "k": 3, "max_segment_tokens": 20})
    seen = set()
    for budget in range(100, 6000, 100):
        answer, tools = await replay(reflecting(by_passage(replies)), config, budget=budget)
        assert tools.spent.total <= budget
        assert bool(answer.text) == ("segment" in tools.ledger), "what was paid for is kept"
        if answer.compared == 1 and answer.steps == 1:
            assert answer.segments[0].passage_id == "the glass orchard", "the best hit first"
        seen.add((min(answer.compared, 3), any(one.critique.relevance for one in answer.segments)))
    assert {(0, False), (1, False), (2, True), (3, True)} <= seen and (bool(options) or (1, True) in seen)


async def test_a_model_without_reflection_tokens_is_refused_in_a_sentence():
    tools = Tools(QUESTION, ScriptedGenerator([]), WordRetriever(WORLD))
    with raises_message(ConfigError):
        await reflection_probabilities("", SUPPORT_TOKENS, tools, CONFIG, role="critique", path="")


def test_a_hypothesis_whose_score_is_no_number_comes_after_all_that_have_one():
    scored = [Hypothesis((JudgedSegment("x", "", None, score),)) for score in (math.nan, -2.0, 0.5)]
    ordered = sorted(scored, key=lambda each: rank_key(each, CONFIG), reverse=True)
    assert [each.score for each in ordered[:2]] == [0.5, -2.0]
