"""Excerpts: which sentences of a passage the model reads with --corag.prune, and what else still holds."""

import re
from dataclasses import replace

from corag.chains.config import CoRAGConfig
from corag.chains.excerpts import excerpt, excerpts
from corag.chains.method import corag
from corag.core.runner import answer_question
from corag.core.tools import Tools
from corag.core.types import Passage
from tests.chains.chains import queue, run
from tests.fakes import PROMPTS, ScriptedGenerator, WordRetriever, kind, passage
from tests.story import QUESTION

VELDEN = passage(
    "Mara Velden",
    "Mara Velden (1901-1970) was a writer. She kept bees, of which she wrote much. "
    "Velden taught at a school. She was born in Tarn Hollow, a small town. Her brother Oskar founded a mill.",
)


def texts(query: str, most: int, **changes: str) -> str:
    return excerpt(
        Passage(**{"id": "1", "title": "Mara Velden", "text": VELDEN.text} | changes), query, most
    ).text


def test_the_first_sentence_and_those_that_share_most_words_stay_in_their_order():
    asked = "In which town was Mara Velden born?"
    assert (
        texts(asked, 2) == "Mara Velden (1901-1970) was a writer. She was born in Tarn Hollow, a small town."
    )
    assert texts("Who was the founder of the mill?", 2).endswith("writer. Her brother Oskar founded a mill.")
    assert texts(asked, 1) == "Mara Velden (1901-1970) was a writer."
    assert texts(asked, 5) == VELDEN.text and texts(asked, 9) == VELDEN.text


def test_words_of_the_title_and_short_ones_choose_nothing():
    assert texts("Did Velden have a dog?", 2).endswith("She kept bees, of which she wrote much.")
    assert texts("Did Velden have a dog?", 2, title="").endswith("Velden taught at a school.")


def test_white_space_between_neighbours_and_passages_without_sentences_stay_as_they_are():
    lines = "One is a number.\nTwo is born late.\n\nThree is a number."
    assert texts("born late", 2, text=lines) == "One is a number.\nTwo is born late."
    for text in ("", "no end here", "   "):
        assert texts("anything", 1, text=text) == text


def test_chinese_sentences_are_chosen_by_words_and_joined_without_a_space():
    text = "长沙是湖南省的省会。它位于湘江边。城市有大学。这里出产茶叶。"
    assert texts("哪里出产茶叶？", 2, text=text, title="长沙") == "长沙是湖南省的省会。这里出产茶叶。"


def test_the_best_passage_stays_whole():
    first, second = Passage("1", "Mara Velden", VELDEN.text), Passage("2", "Her Life", VELDEN.text)
    shown = excerpts([first, second], "Where was she born?", 2)
    assert shown[0] is first and len(shown[1].text) < len(VELDEN.text) and shown[1].id == "2"
    assert excerpts([first, second], "Where was she born?", 0) == [first, second]


OTHER = passage(
    "Oskar Velden",
    "Oskar Velden was a miller by trade. He sang. He was born in Tarn Hollow. He had a mill. It burnt.",
)
ASKED = {"NEXT": ["Where was Velden, Mara born?"], "ANSWER": ["Tarn Hollow"], "FINAL": ["Issel"]}


def test_a_hop_reads_excerpts_by_its_sub_query_and_the_final_answer_by_the_chain():
    options = {"max_hops": 1, "passages_per_hop": 2, "context": "chain", "prune": 2}
    _, generator, _ = run(queue(**ASKED), retriever=WordRetriever([VELDEN, OTHER]), **options)
    hop = next(each.prompt.text for each in generator.requests if kind(each) == "ANSWER")
    final = generator.prompts[-1]
    for prompt in (hop, final):
        assert VELDEN.text in prompt, "the best one"
        assert "Oskar Velden was a miller by trade. He was born in Tarn Hollow.\n" in prompt
    assert (
        "He sang"
        in run(queue(**ASKED), retriever=WordRetriever([VELDEN, OTHER]), **options | {"prune": 0})[1].prompts[
            -1
        ]
    )


async def test_what_was_read_in_part_counts_as_read():
    generator = ScriptedGenerator(queue(**ASKED))
    tools = Tools(QUESTION, generator, WordRetriever([VELDEN, OTHER]))
    options = {"max_hops": 1, "passages_per_hop": 2, "context": "chain", "prune": 2}
    config = CoRAGConfig(**PROMPTS, **options)

    row = await answer_question(QUESTION, lambda question, tools: corag(question, tools, config), tools)
    assert set(row.read_ids) == {"mara velden", "oskar velden"}


async def test_cited_passages_are_numbered_best_first_whatever_the_order_of_others():
    passages = [passage(f"Leave {name}", f"Part {name} is on leave and rest.") for name in "abc"]
    asked = replace(QUESTION, text="Who is on leave and rest?")
    for options in (
        {},
        {"context_order": "best_last"},
        {"preset": "released_code", "max_prompt_tokens": 220},
    ):
        config = CoRAGConfig(max_hops=0, final_answer_prompt="final_documents", context_passages=3, **options)
        generator = ScriptedGenerator(lambda request: "Rest [1].")
        answer = await corag(asked, Tools(asked, generator, WordRetriever(passages)), config)
        shown = re.findall(r"^\[(\d)\] (Leave .)", generator.prompts[-1], re.MULTILINE)
        assert [title.lower() for _, title in shown] == list(answer.shown_ids), options
        assert [int(number) for number, _ in shown] == list(range(1, len(shown) + 1)) and shown
