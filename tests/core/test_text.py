"""Sentences, stated answers and collected passages, by the rules of IRCoT's released code."""

import pytest

from corag.core.language.sentences import first_sentence
from corag.core.language.text import extract_answer, stated_answer
from corag.core.passage_pool import PassagePool
from corag.core.prompting.render import load_layout, render_passages
from corag.core.types import Hit, Passage
from tests.story import AUTHOR, BOOK, TOWN


@pytest.mark.parametrize(
    ("sentence", "stated"),
    [
        ("So the answer is: Paris.", "Paris"),
        ("So the answer is Paris", "Paris"),
        ("the answer is: U.S.", "U.S"),
        ("answer is: Paris.", None),
        ("So the Answer is: X.", None),
        ("So the ANSWER IS X", None),
        ("So the answer is:Paris.", None),
        ("So the answer is: ", ""),
        ("So the answer is:", None),
        ("It says the answer is: A. So the answer is: B.", "B"),
        ("So the answer is The Operation M.D..", "The Operation M.D."),
    ],
)
def test_exit_pattern(sentence, stated):
    assert stated_answer(sentence) == stated


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("Oslo", "Oslo"),
        ("Oslo.\nQ: another", "Oslo"),
        ('"Oslo"', "Oslo"),
        ("She was born there. So the answer is: Oslo.", "Oslo"),
        ('["Oslo", "Bergen"]', "Oslo Bergen"),
        ("[not json", "[not json"),
        ("Emma is by Austen.\nShe was born in Steventon.\nSo the answer is: Steventon.", "Steventon"),
        ('"So the answer is: Paris."', "Paris"),
        ("It lies on the Issel.\n\n**So the answer is:** Issel", "Issel"),
        ("It lies on the Issel.\n\nSo the answer is: \n\nIssel.", "Issel"),
        ("So the answer is: Issel.\n\n(The answer is taken from the last passage.)", "Issel"),
        ("What the answer is:\n1. It is by Mara.\n2. She is from Tarn.\nSo the answer is Issel.", "Issel"),
        ("**So the answer is:** Issel", "Issel"),
        ('"Paris".', "Paris"),
        ("", ""),
    ],
)
def test_reader_extraction(reply, answer):
    assert extract_answer(reply) == answer


@pytest.mark.parametrize("reply", ["[" + "9" * 5000 + "]", "[" * 100_000])
def test_a_reply_that_only_begins_as_json_is_the_answer_as_it_stands(reply):
    assert extract_answer(reply) == reply


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Mr. Smith met J. R. R. Tolkien. They talked.", "Mr. Smith met J. R. R. Tolkien."),
        ("The U.S. Army paid 3.5 million dollars. Then it left.", "The U.S. Army paid 3.5 million dollars."),
        ("What? Yes. No.", "What?"),
        ('He said "Stop." Then he ran.', 'He said "Stop."'),
        ("One line\nAnother line.", "One line"),
        ("  \n ", ""),
        ("No closing mark", "No closing mark"),
        ("It was founded in 1990. 300 people came.", "It was founded in 1990."),
        ("So the answer is: no. Both are older.", "So the answer is: no."),
        ("It is listed as no. 5 on the list. Then more.", "It is listed as no. 5 on the list."),
        # An initial is one whatever its letter: P is no page, but p is.
        (
            "Emma met P. G. Wodehouse and J. P. Morgan. They talked.",
            "Emma met P. G. Wodehouse and J. P. Morgan.",
        ),
        (
            "It was signed by Wayne P. 300 people came. Then more.",
            "It was signed by Wayne P. 300 people came.",
        ),
        ("See p. 5 of the book. Then more.", "See p. 5 of the book."),
        ("He missed page p. Then he read on.", "He missed page p."),
        ("1. Emma was written by Jane Austen. 2. She was English.", "1. Emma was written by Jane Austen."),
        ("Step 1. Emma was written by Austen. Next.", "Step 1. Emma was written by Austen."),
    ],
)
def test_first_sentence(text, first):
    assert first_sentence(text) == first


def hits(*passages):
    return [Hit(p, 1.0) for p in passages]


def test_collecting_keeps_the_first_fifteen_and_skips_near_duplicates():
    collected = PassagePool(2)
    assert collected.add(hits(BOOK, BOOK, Passage("x", "The Glass Orchard.", BOOK.text + "!"))) == 1
    assert collected.add(hits(AUTHOR, TOWN)) == 1
    assert collected.ids == ("the glass orchard", "mara velden")
    assert collected.seen_ids == ["the glass orchard", "x", "mara velden", "tarn hollow"]
    rows = [
        Passage(str(n), "Leave", f"Name: A. Berg, days of leave: {n}", source="leave.csv") for n in (12, 21)
    ]
    assert PassagePool(5).add(hits(*rows)) == 2, "rows of a table are alike and not the same"
    long = Passage("long", "Long", "word " * 601)
    assert PassagePool(5).add(hits(long)) == 0


def test_collecting_uses_the_released_codes_loose_repeat_test():
    collected = PassagePool(5)
    collected.add(hits(Passage("1", "Alpha", "one text here"), Passage("2", "Beta", "quite another wording")))
    assert collected.add(hits(Passage("3", "Alpha", "quite another wording"))) == 0


def test_long_passages_are_cut_in_prompts_at_350_words():
    long = Passage("p", "T", " ".join(map(str, range(400))))
    (segment,) = render_passages([long], load_layout("layout"), 350, goes_first="first")
    assert segment.text.split("\n")[1].split(" ")[-1] == "349"
