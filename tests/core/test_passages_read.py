"""Which passages an answer was read from: found in the prompts, whichever way a method wrote them there."""

from dataclasses import dataclass

import pytest

from corag.baselines.one_step import OneStepConfig, one_step
from corag.chains.config import CoRAGConfig
from corag.chains.method import corag
from corag.core.passages_read import PassagesRead
from corag.core.prompting.prompt import NOTHING_LEFT_OUT, Message, Prompt, Segment, Shortening
from corag.core.runner import answer_question
from corag.core.support import drop_same_location
from corag.core.tools import Tools
from corag.core.types import Answer, Branch, Passage, Question
from ircot.method import IRCoTConfig, ircot
from tests.chains.chains import queue, seeded, tree_model, tree_score
from tests.fakes import PROMPTS, ScriptedGenerator, WordRetriever, words
from tests.story import QUESTION, WORLD


def long_text(name: str, sentences: int = 12) -> str:
    return " ".join(f"{name} has a sentence of its own, which is number {n}." for n in range(sentences))


FIRST, SECOND, THIRD = (Passage(name, f"Title {name}", long_text(name)) for name in "ABC")


def reading(text: str | Prompt, *passages: Passage, shortening: Shortening = NOTHING_LEFT_OUT):
    log = PassagesRead()
    log.add_passages(passages)
    log.add_prompt("", Prompt.of_text(text) if isinstance(text, str) else text, shortening, words)
    return log.leading_to(None)


def test_passages_come_in_the_order_in_which_they_stand_in_the_prompt():
    prompt = f"Documents:\n{SECOND.text}\n\n{FIRST.text}\n\nQuestion: who?"
    assert reading(prompt, FIRST, SECOND, THIRD) == ("B", "A")


def test_a_passage_counts_if_it_was_cut_or_broken_into_lines():
    cut = " ".join(FIRST.text.split()[:20])
    wrapped = SECOND.text.replace(" sentence", "\n   sentence")
    assert reading(f"{cut} ...\n{wrapped}", FIRST, SECOND, THIRD) == ("A", "B")


def test_a_passage_does_not_count_because_its_beginning_is_the_end_of_another():
    """As cut from a document with --passage_overlap."""
    shared = long_text("shared", 3)
    before, after = Passage("1", "", f"{FIRST.text} {shared}"), Passage("2", "", f"{shared} {SECOND.text}")
    assert reading(f"Read this: {before.text}", before, after) == ("1",)
    assert reading(f"Read this: {before.text}\n{after.text}", before, after) == ("1", "2")
    assert reading(f"Read this: {before.text}\n{after.text[:250]}", before, after) == ("1", "2")


def test_of_passages_that_begin_alike_those_count_that_stand_there():
    header = "Handbook of the Department of Works, revised edition, for internal use only, see the preface. "
    pages = [Passage(str(n), "", header + long_text(f"Page {n}", 4)) for n in range(5)]
    assert reading(f"{pages[3].text}\n{pages[1].text}", *pages) == ("3", "1")
    assert reading(pages[2].text[:150], *pages) == ("2",)
    assert reading(header, *pages) == ("0", "1", "2", "3", "4"), "nobody can tell"


def test_short_texts_and_titles_alone_count_too():
    assert reading("1. Ada Orm\n2. no", Passage("x", "Ada Orm", ""), Passage("y", "", "")) == ("x",)


def test_a_row_does_not_count_because_another_begins_with_its_text():
    short, long = (
        Passage("3", "Towns", "Town: Alby | Cost: 3"),
        Passage("35", "Towns", "Town: Alby | Cost: 35"),
    )
    assert reading(f"Rows:\n{long.text}\n", long, short) == ("35",)
    assert reading(f"Rows:\n{long.text}\n{short.text}\n", long, short) == ("35", "3")


def test_what_a_prompt_lost_was_not_read():
    segments = [
        Segment("Read.\n"),
        Segment(f"{FIRST.text}\n", drop=2, kind="passage"),
        Segment(f"{SECOND.text}\n", drop=1, kind="passage"),
        Segment("Who?"),
    ]
    prompt = Prompt((Message("user", tuple(segments)),))
    assert reading(prompt, FIRST, SECOND) == ("A", "B")
    assert reading(prompt, FIRST, SECOND, shortening=Shortening((("passage", 1),))) == ("A",)
    long = Prompt.of_text(f"{FIRST.text} {SECOND.text} {THIRD.text} Who?")
    cut = Shortening(cut_tokens=words(FIRST.text) + 5)
    assert reading(long, FIRST, SECOND, THIRD, shortening=cut) == ("C",)


async def row_of(method, config, reply, question=QUESTION, **scripts):
    generator = ScriptedGenerator(reply, **scripts)
    tools = Tools(question, generator, WordRetriever(WORLD))
    return await answer_question(question, lambda question, tools: method(question, tools, config), tools)


async def test_a_methods_row_names_what_its_answer_was_read_from():
    row = await row_of(one_step, OneStepConfig(k=2), lambda request: "Issel")
    assert set(row.read_ids) == set(row.answer.passage_ids[:2]) and len(row.read_ids) == 2
    thoughts = iter(["Mara Velden wrote it.", "So the answer is: Issel.", "Issel"])
    row = await row_of(ircot, IRCoTConfig(), lambda request: next(thoughts))
    assert set(row.read_ids) == set(row.answer.passage_ids)


async def test_of_a_chain_first_what_its_final_answer_and_its_sub_answers_stand_in():
    reply = queue(
        NEXT=["who wrote the glass orchard?", "where was mara velden born?"],
        ANSWER=["Mara Velden", "Tarn Hollow"],
        FINAL=["The Issel."],
    )
    row = await row_of(corag, CoRAGConfig(**PROMPTS, max_hops=2, passages_per_hop=1), reply)
    texts = {passage.id: passage.contents for passage in WORLD}
    carrying = [texts[name] for name in row.read_ids[:3]]
    for text, answer in zip(carrying, ("Issel", "Mara Velden", "Tarn Hollow"), strict=True):
        assert answer in text
    assert len(row.read_ids) > 3, "the prompt has others, in an order of its own"


def test_of_twenty_passages_in_a_prompt_that_come_first_in_which_the_answer_stands():
    """The prompt has the best last, and another file names the answer, too."""
    about = [
        Passage(f"about{n}", "About us", f"The Petrel team sits on floor {n}.", "about.md") for n in "123"
    ]
    others = [Passage(str(n), f"Page {n}", long_text(f"Page {n}", 2), f"{n}.html") for n in range(12)]
    gateway = Passage("gateway", "Ostra", "The Ostra gateway. It is developed by the Petrel team.", "o.html")
    log = PassagesRead()
    log.add_passages([gateway, *others, *about])
    log.add_prompt(
        "",
        Prompt.of_text("\n".join(each.text for each in (*about, *others, gateway))),
        NOTHING_LEFT_OUT,
        words,
    )
    question = "Which team develops the Ostra gateway?"
    for text in ("Petrel team", "The Ostra gateway is developed by the Petrel team."):
        read = log.leading_to(Answer(text, (), 1, "read"), question)
        assert read[0] == "gateway" and len(read) == 16, text
    read = log.leading_to(Answer("Petrel team", (), 1, "read"), question)
    assert set(read[1:4]) == {"about1", "about2", "about3"} and read[4:] == tuple(each.id for each in others)
    assert log.leading_to(Answer("yes", (), 1, "read"), question)[0] == "gateway", (
        "the best hit of the search"
    )
    places = drop_same_location({each.id: each for each in (gateway, *others, *about)}[name] for name in read)
    assert [each.source for each in places[:3]] == ["o.html", "about.md", "0.html"]


@pytest.mark.parametrize(
    ("strategy", "text"), [("best_of_n", "sub_query"), ("tree", "sub_query"), ("tree", "answer")]
)
async def test_what_was_read_for_chains_that_were_not_chosen_is_no_source(strategy, text):
    config = CoRAGConfig(
        **PROMPTS, strategy=strategy, max_hops=2, passages_per_hop=1, context="chain", search_text=text
    )
    model, score = (
        (tree_model, tree_score)
        if strategy == "tree"
        else (seeded, lambda request: -1.0 - len(request.prompt.text) % 7)
    )
    row = await row_of(corag, config, model, log_likelihood=score)
    chosen = row.answer.chains[row.answer.chosen]
    found = {name for hop in chosen.hops for name in hop.passage_ids}
    assert set(row.read_ids) <= found | set(row.answer.context_ids)
    assert {hop.passage_ids[0] for hop in chosen.hops if hop.passage_ids} <= set(row.read_ids)


@dataclass(frozen=True)
class Debated(Answer):
    """Says which of two sides its text is of."""

    side: str = "for"

    def branch(self) -> Branch:
        return Branch(self.side, ("for", "against"), [("who wrote the glass orchard?", self.text)])


@pytest.mark.parametrize(("side", "read"), [("for", 0), ("against", 1)])
async def test_an_answer_of_ones_own_names_the_branch_that_led_to_it(side, read):
    passages = WORLD[:2]

    async def own(question, tools):
        await tools.search(" ".join(each.text for each in passages), k=len(WORLD))
        for path, passage in zip(("for", "against"), passages, strict=True):
            await tools.generate(Prompt.of_text(passage.text), role="answer", max_tokens=9, path=path)
        return Debated("x", side=side)

    tools = Tools(Question("q", "Who?"), ScriptedGenerator(lambda request: "x"), WordRetriever(WORLD))
    row = await answer_question(Question("q", "Who?"), own, tools)
    assert row.read_ids == (passages[read].id,)
