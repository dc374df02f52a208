"""FLARE replayed by hand: sure and unsure sentences, both kinds of queries, the caps, the early stop, and
what goes wrong.
"""

import math

import pytest

from corag.baselines.flare import FLAREConfig, flare, masked_query, unsure_spans
from corag.core.fusion import interleave
from corag.core.language.sentences import sentence_end
from corag.core.options.classes import change_options
from corag.core.tools import SearchStep
from corag.core.types import Hit
from tests.baselines import replaying
from tests.fakes import ScriptedGenerator, WindowedGenerator, WordRetriever, words
from tests.story import AUTHOR, BOOK, DEMONSTRATIONS, QUESTION, TOWN

UNSURE = {"Oslo.": 0.2, "Rhine.": 0.3, "nearly": 0.5}
SCRIPT = [
    # a draft, and it is sure: its second sentence is cut
    "The Glass Orchard was written by Mara Velden. She was born in Oslo.",
    " She was born in Oslo. So the answer is: Oslo.",  # a draft, and it is not
    " She was born in Tarn Hollow. It is a town.",  # written again
    " So the answer is: Issel. Bye.",
]


async def replay(replies, config=None, *given, generator=None, **named):
    generator = generator or ScriptedGenerator(replies, probability=lambda word: UNSURE.get(word, 0.95))
    return await replaying.replay(flare, config or FLAREConfig(k=1), (), *given, generator=generator, **named)


def queries(tools):
    return [step.query for step in tools.steps if isinstance(step, SearchStep)]


async def test_an_unsure_sentence_is_searched_for_without_its_unsure_words_and_written_again():
    answer, generator, tools = await replay(SCRIPT)
    assert (answer.text, answer.stopped, answer.steps) == ("Issel", "answer", 3)
    assert answer.sentences == (
        "The Glass Orchard was written by Mara Velden.",
        " She was born in Tarn Hollow.",
        " So the answer is: Issel.",
    )
    assert queries(tools) == [QUESTION.text, "She was born in"]
    assert [draft.searched for draft in answer.drafts] == [False, True, False]
    assert answer.drafts[1].text == " She was born in Oslo."
    assert [draft.confidence for draft in answer.drafts] == pytest.approx([0.95, 0.2, 0.95])
    # The draft saw the question's passage, the sentence written again the new one in its place, and so does
    # the next draft.
    assert [(BOOK.text in prompt, AUTHOR.text in prompt) for prompt in generator.prompts] == [
        (True, False), (True, False), (False, True), (False, True),
    ]  # fmt: skip
    assert generator.prompts[1] != generator.prompts[2]
    assert generator.prompts[3].endswith("written by Mara Velden. She was born in Tarn Hollow.")
    assert answer.passage_ids == ("the glass orchard", "mara velden")
    assert tools.ledger["draft"].calls == 3 and tools.ledger["sentence"].calls == 1
    assert generator.requests[0].sampling.max_tokens == 64


async def test_the_caps_on_sentences_and_tokens():
    endless = [f" Fact {number} is about glass. And so on." for number in range(9)]
    answer, generator, _ = await replay(endless, FLAREConfig(k=1, max_sentences=3, force_answer=False))
    assert (answer.stopped, answer.steps, len(generator.requests)) == ("max_sentences", 3, 3)
    assert answer.text == "Fact 0 is about glass. Fact 1 is about glass. Fact 2 is about glass", (
        "as the authors leave it"
    )
    answer, generator, _ = await replay(endless, FLAREConfig(k=1, max_tokens=12, force_answer=False))
    assert (answer.stopped, answer.steps) == ("max_tokens", 3)
    assert [request.sampling.max_tokens for request in generator.requests] == [12, 7, 2]


async def test_an_answer_that_no_sentence_states_is_asked_for():
    for options, stopped in (({"max_sentences": 2}, "max_sentences"), ({"max_tokens": 10}, "max_tokens")):
        facts = [f" Fact {number} is about glass. And so on." for number in range(2)]
        answer, generator, tools = await replay([*facts, " Issel.\nOr so."], FLAREConfig(k=1, **options))
        assert (answer.text, answer.stopped, answer.steps) == ("Issel", stopped, 2)
        last = generator.requests[-1]
        assert last.prompt.prefix == "Fact 0 is about glass. Fact 1 is about glass. So the answer is:"
        assert last.sampling.max_tokens == 64 and BOOK.text in last.prompt.text
        assert tools.ledger["forced_answer"].calls == 1
    answer, generator, _ = await replay(["It lies on the Issel. It is long.", " That is all.", "Issel"])
    assert (answer.text, answer.stopped, len(generator.requests)) == ("Issel", "end", 3)
    answer, _, _ = await replay(["It lies on the Issel. It is long.", " That is all.", " "])
    assert answer.text == "It lies on the Issel. That is all", "what was written has to do"


async def test_the_early_stop_and_the_end_of_the_models_turn():
    answer, _, _ = await replay(["So the answer is: Issel. More.", "unasked"])
    assert (answer.stopped, answer.steps, answer.text) == ("answer", 1, "Issel")
    unforced = FLAREConfig(k=1, force_answer=False)
    answer, _, _ = await replay(["It lies on the Issel. It is long.", " That is all."], unforced)
    assert (answer.stopped, answer.steps, answer.text) == ("end", 2, "It lies on the Issel. That is all")


async def test_an_empty_generation_ends_it_and_is_no_sentence():
    unforced = FLAREConfig(k=1, force_answer=False)
    answer, _, _ = await replay(["  \n "], unforced)
    assert (answer.stopped, answer.steps, answer.text) == ("empty_generation", 0, "")
    answer, _, _ = await replay(["It lies on the Issel. It is long.", ""], unforced)
    assert (answer.stopped, answer.text) == ("empty_generation", "It lies on the Issel")
    assert answer.sentences == ("It lies on the Issel.",) and len(answer.drafts) == 1


async def test_a_draft_that_would_be_written_again_as_nothing_is_kept():
    answer, generator, tools = await replay([SCRIPT[0], SCRIPT[1], "  ", SCRIPT[3]])
    assert (answer.text, answer.stopped, answer.sentences[1]) == ("Issel", "answer", " She was born in Oslo.")
    assert queries(tools) == [QUESTION.text, "She was born in"] and not answer.drafts[1].searched
    assert AUTHOR.text in generator.prompts[-1]


async def test_a_draft_whose_query_is_blank_or_finds_nothing_is_kept():
    answer, _, tools = await replay([" Oslo. Rhine. And more.", " So the answer is: Issel."])
    assert queries(tools) == [QUESTION.text] and answer.sentences[0] == " Oslo."
    assert not answer.drafts[0].searched and answer.drafts[0].queries == ("",)
    answer, generator, tools = await replay(SCRIPT[:2] + SCRIPT[3:], retriever=WordRetriever([]))
    assert queries(tools) == [QUESTION.text, "She was born in"]
    assert answer.sentences[1] == " She was born in Oslo." and len(generator.requests) == 3
    assert answer.passage_ids == () and answer.text == "Issel"


async def test_theta_decides_how_often_is_searched():
    _, _, tools = await replay([SCRIPT[0], SCRIPT[1], SCRIPT[3]], FLAREConfig(k=1, theta=0))
    assert queries(tools) == [QUESTION.text]
    always = FLAREConfig(k=1, theta=1, beta=0)
    answer, _, tools = await replay([SCRIPT[0], SCRIPT[0], SCRIPT[3], SCRIPT[3]], always)
    assert queries(tools)[1:] == ["The Glass Orchard was written by Mara Velden.", "So the answer is: Issel."]
    assert all(draft.searched for draft in answer.drafts)


async def test_explicit_queries_are_questions_that_the_unsure_words_answer():
    replies = [
        "She was born in Oslo. And more.",
        "Where was Mara Velden born?\nOr so.",
        "She was born in Tarn Hollow. More.",
        " It lies near Lake Rhine. More.",
        "I do not know.",
        " So the answer is: Issel.",
    ]
    answer, generator, tools = await replay(replies, FLAREConfig(k=1, query="questions"))
    assert queries(tools) == [QUESTION.text, "Where was Mara Velden born?"]
    assert 'the answer is "Oslo."' in generator.prompts[1] and "She was born in Oslo." in generator.prompts[1]
    assert answer.drafts[1].queries == () and not answer.drafts[1].searched, (
        "what is no question is not searched for"
    )
    assert answer.sentences[0] == "She was born in Tarn Hollow." and tools.ledger["question"].calls == 2
    # Sure enough to know no unsure word, but not sure enough: the draft itself is the query.
    _, _, tools = await replay(
        ["It is nearly dry. X.", "It is dry. X.", "So the answer is: X."], FLAREConfig(query="questions")
    )
    assert queries(tools)[1] == "It is nearly dry."


async def test_drafts_may_go_without_passages_but_for_the_first():
    _, generator, _ = await replay(SCRIPT, FLAREConfig(k=1, draft_with="nothing"))
    shown = [any(passage.text in prompt for passage in (BOOK, AUTHOR, TOWN)) for prompt in generator.prompts]
    assert shown == [True, False, True, False]


async def test_the_best_passage_is_the_last_to_be_left_out():
    config = FLAREConfig(k=2, look_ahead_tokens=20, max_answer_tokens=20)
    _, whole, _ = await replay([SCRIPT[3]], config)
    assert BOOK.text in whole.prompts[0] and TOWN.text in whole.prompts[0], "the book is found first"
    full = WindowedGenerator([SCRIPT[3]], words(whole.prompts[0]) + 20 - 1)
    await replay([], config, generator=full)
    (draft,) = full.seen
    assert BOOK.text in draft.text and TOWN.text not in draft.text
    # So it is where a budget leaves room for one of them: a spent one is answered with the best.
    forced = [await replay(["Issel"], config, budget=budget) for budget in range(100, 180)]
    seen = [
        [place.text in asked.prompts[0] for place in (BOOK, TOWN)] for _, asked, _ in forced if asked.prompts
    ]
    assert [True, False] in seen and [False, True] not in seen


async def test_few_shot_layout(tmp_path):
    file = tmp_path / "demos.txt"
    file.write_text(DEMONSTRATIONS)
    config = change_options(FLAREConfig(), {"preset": "paper", "demonstrations": str(file), "top_k": 1})
    assert not config.force_answer
    _, generator, _ = await replay(SCRIPT, config)
    demo = DEMONSTRATIONS.split("\n", 1)[1]
    book = "Wikipedia Title: The Glass Orchard\nThe Glass Orchard is a novel by Mara Velden.\n\n"
    assert generator.prompts[0] == f"{demo}\n\n\n{book}Q: {QUESTION.text}\nA:"
    assert generator.prompts[1] == f"{generator.prompts[0]} The Glass Orchard was written by Mara Velden."
    assert generator.requests[0].sampling.stop == ("\n\n",)
    assert config.files() == {str(file): str(file)}


def test_queries_from_tokens():
    tokens = [
        (" In", -0.1),
        (" June", -2.0),
        ("", -3.0),
        ("é", -0.1),
        (" Em", -0.1),
        ("ma", -0.1),
        (" died", -0.1),
    ]
    tokens += [(" in", -0.1), (" Bath", -5.0), (".", -1.5)]
    assert masked_query(tokens, 0.4) == "In é Emma died in"
    assert masked_query(tokens, 0) == "In Juneé Emma died in Bath."
    assert unsure_spans(tokens, 0.4) == ["June", "Bath."]
    assert unsure_spans([("a", math.log(0.4)), (" b", -0.1), (" c", -2.0)], 0.4) == ["a b c"]
    assert unsure_spans([(".", -2.0)], 0.4) == []


def test_results_of_several_queries_are_interleaved():
    book, author, town = (Hit(passage, 1.0) for passage in (BOOK, AUTHOR, TOWN))
    assert interleave([[book, author], [author, town]]) == [book, author, town]
    assert interleave([[book, author], [town, book]]) == [book, town, author], "the first occurrence counts"
    assert interleave([]) == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (" Mr. Smith left. He ran.", " Mr. Smith left."),
        ("\n\nOne line\nAnother", "\n\nOne line"),
        (" No. It is not. So", " No. It is not."),  # four characters are too few for a sentence
        ("", ""),
        (" \n ", ""),
    ],
)
def test_a_sentence_keeps_the_white_space_before_it(text, sentence):
    assert text[: sentence_end(text, 5)] == sentence
