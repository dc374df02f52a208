"""Prompted Self-RAG: its steps, caps, verdicts that cannot be read, budgets."""

import pytest

from corag.baselines.self_rag.prompted import SelfRAGPromptedConfig, read_verdict, self_rag_prompted
from tests.baselines.test_self_rag import replay, searches
from tests.fakes import ScriptedGenerator, WordRetriever
from tests.story import BOOK, QUESTION

# How the replies to the shipped prompts of verdicts begin.
CUES = {"Look up:": "retrieve", "Helps:": "relevance", "Supported:": "support", "Usefulness:": "utility"}
USUAL = {"retrieve": "Yes", "relevance": "Yes.", "support": "Fully supported", "utility": "5"}
STORY = ["The book is by Mara Velden. She", " She is from Tarn Hollow. That", " So the answer is: Issel."]


def kind(request):
    """Say what a request asks for."""
    return CUES.get(request.prompt.prefix, "segment")


def prompted(sentences, verdicts=lambda name, prompt: USUAL[name]):
    """A model that writes one sentence of the story after another, and gives these verdicts."""

    def reply(request):
        if (name := kind(request)) != "segment":
            return verdicts(name, request.prompt.text)
        return sentences[sum(text.split(".")[0] in request.prompt.text for text in sentences)]

    return ScriptedGenerator(reply)


def prompted_config(**options):
    return SelfRAGPromptedConfig(**{"k": 2, **options})


async def test_prompted_three_sentences_each_from_the_passage_judged_best():
    def verdicts(name, prompt):
        poor = BOOK.text in prompt and name in ("relevance", "support")
        return ("No" if name == "relevance" else "Partially") if poor else USUAL[name]

    generator = prompted(STORY, verdicts)
    answer, tools = await replay(generator, prompted_config(), self_rag_prompted)
    assert (answer.text, answer.stopped, answer.steps) == ("Issel", "answer", 3)
    assert (answer.searched, answer.compared, answer.malformed) == (3, 6, 0)
    assert [segment.text for segment in answer.segments] == [STORY[0][:27], STORY[1][:25], STORY[2]]
    assert searches(tools) == [
        QUESTION.text,
        f"{QUESTION.text} The book is by Mara Velden.",
        f"{QUESTION.text} She is from Tarn Hollow.",
    ]
    first = answer.segments[0]
    assert first.passage_id == "tarn hollow"
    assert (first.critique.relevance, first.critique.support, first.critique.utility) == (1, 1, 1)
    assert first.score == pytest.approx(1 + 1 + 0.5 + 1)
    calls = {"retrieve": 3, "relevance": 6, "segment": 6, "support": 6, "utility": 6}
    assert {name: usage.calls for name, usage in tools.ledger.items()} == calls
    last = next(each.prompt.text for each in reversed(generator.requests) if kind(each) == "segment")
    assert last.endswith("The book is by Mara Velden. She is from Tarn Hollow.")


async def test_prompted_the_cap_the_end_and_no_search():
    endless = [f"Fact {number} is known. And" for number in range(9)]
    answer, _ = await replay(prompted(endless), prompted_config(max_segments=2), self_rag_prompted)
    assert (answer.stopped, answer.steps) == ("max_segments", 2)
    config = prompted_config(force_answer=False)
    answer, tools = await replay(
        prompted(["It is the Issel."], lambda name, prompt: "no"), config, self_rag_prompted
    )
    assert (answer.stopped, answer.steps, answer.searched, searches(tools)) == ("end", 1, 0, [])
    assert set(tools.ledger) == {"retrieve", "segment"}, (
        "one sentence without a passage has no rival: nothing to judge"
    )


async def test_prompted_verdicts_that_cannot_be_read_are_counted_and_decide_nothing():
    answer, _ = await replay(
        prompted(STORY, lambda name, prompt: "Hm."), prompted_config(), self_rag_prompted
    )
    assert (answer.text, answer.searched) == ("Issel", 3), "in doubt, passages are looked up"
    assert answer.malformed == 3 + 3 * 2 * 3
    assert answer.segments[0].critique.relevance == answer.segments[0].critique.utility == 0
    silent = ScriptedGenerator(lambda request: USUAL.get(kind(request), " "))
    answer, _ = await replay(silent, prompted_config(), self_rag_prompted)
    assert (answer.stopped, answer.text, answer.steps, answer.segments) == ("empty_generation", "", 0, ())


def concluding(request):
    """Never state an answer, unless it is asked for."""
    if (name := kind(request)) != "segment":
        return USUAL[name]
    text = request.prompt.text
    return " Issel." if text.endswith("So the answer is:") else f" Fact {text.count('Fact')} is known. And"


async def test_prompted_an_answer_that_no_sentence_states_is_asked_for():
    generator = ScriptedGenerator(concluding)
    answer, tools = await replay(generator, prompted_config(max_segments=2), self_rag_prompted)
    assert (answer.text, answer.stopped, answer.steps) == ("Issel", "max_segments", 2)
    assert generator.prompts[-1].endswith("Fact 0 is known. Fact 1 is known. So the answer is:")
    assert BOOK.text in generator.prompts[-1] and tools.ledger["forced_answer"].calls == 1
    config = prompted_config(max_segments=2, force_answer=False)
    answer, _ = await replay(ScriptedGenerator(concluding), config, self_rag_prompted)
    assert answer.text == "Fact 0 is known. Fact 1 is known"


async def test_prompted_a_budget_too_small_for_all_passages_goes_on_from_the_best():
    config = prompted_config(k=3, max_segment_tokens=20, max_answer_tokens=10, max_segments=2)
    seen, first = set(), []
    for budget in range(100, 4000, 50):
        answer, tools = await replay(ScriptedGenerator(concluding), config, self_rag_prompted, budget=budget)
        assert tools.spent.total <= budget
        assert (answer.steps > 0) == ("segment" in tools.ledger), "what was paid for is kept"
        assert (answer.text == "Issel") == bool(tools.spent.calls), "an answer is held back for"
        if answer.compared == answer.steps == 1:
            first.append(answer.segments[0].passage_id)
        seen.add((min(answer.compared, 3), any(one.critique.relevance for one in answer.segments)))
    assert {(0, False), (1, False), (1, True), (2, True), (3, True)} <= seen
    assert first[-1] == "the glass orchard", "the best hit first, unless only a shorter one can be afforded"


async def test_prompted_nothing_found():
    answer, _ = await replay(prompted(STORY), prompted_config(), self_rag_prompted, WordRetriever([]))
    assert (answer.text, answer.passage_ids, answer.compared) == ("Issel", (), 3)


async def test_prompted_with_the_shipped_prompts():
    generator = ScriptedGenerator(lambda request: "So the answer is: Issel.")
    config = SelfRAGPromptedConfig(k=1)
    answer, _ = await replay(generator, config, self_rag_prompted)
    assert answer.text == "Issel" and len(config.templates()) == 5
    for prompt in generator.prompts:
        assert "{" not in prompt
    assert sum(BOOK.text in prompt for prompt in generator.prompts) == 3  # relevance, sentence, support
    await replay(generator, config, self_rag_prompted, WordRetriever([]))
    assert "(no passage)" in generator.prompts[-1]


@pytest.mark.parametrize(
    ("name", "reply", "value"),
    [
        ("support", "Fully.", 1),
        ("support", "Not fully supported", 0),
        ("support", "It is partially so", 0.5),
        ("utility", "4/5", 0.5),
        ("utility", "10", None),
        ("relevance", "Nothing", None),
        ("retrieve", "YES", 1),
    ],
)
def test_verdicts(name, reply, value):
    assert read_verdict(name, reply) == value
