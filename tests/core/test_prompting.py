"""Templates, worked examples and what goes first when a prompt is too long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag.chains.chain import Chain
from corag.chains.config import CoRAGConfig
from corag.chains.prompting import final_answer_prompt
from corag.core.errors import ConfigError, DataError
from corag.core.language.text import stated_answer
from corag.core.prompting.demonstrations import (
    bare_answers,
    parse_demonstrations,
    read_demonstrations,
    rebuild,
)
from corag.core.prompting.prompt import Segment
from corag.core.prompting.render import load_layout, render_demonstrations, render_passages
from corag.core.prompting.shorten import count_to_drop, shorten
from corag.core.prompting.template import load_prompt, parse_template
from corag.core.reader import ReaderConfig, reader_prompt
from corag.core.types import Passage, Question
from tests.data import data_folder
from tests.fakes import passage
from tests.messages import raises_message

QUESTION = Question("q", "Who?")


def test_a_template_becomes_turns_and_a_prefix():
    template = parse_template(
        "t",
        "version: 3\n--- system\nBe brief.\n--- user\n{paragraphs}Q: {query} {not a field}\n--- "
        "assistant\nA:",
    )
    prompt = template.render({"query": "Who?", "paragraphs": [Segment("P1\n", 1), Segment("P2\n", 2)]})
    assert [message.role for message in prompt.messages] == ["system", "user"]
    assert prompt.messages[1].text == "P1\nP2\nQ: Who? {not a field}" and prompt.prefix == "A:"
    assert [segment.drop for segment in prompt.messages[1].segments] == [1, 2, None, None, None]
    assert template.identity.startswith("t v3 ")


@pytest.mark.parametrize(
    "text",
    [
        "{paragraphs}Q: {query}\n--- passage\n[{number}] {title}: {text}",
        "--- passage\n[{number}] {title}: {text}\n--- user\n{paragraphs}Q: {query}",
        "version: 2\n--- user\n{paragraphs}Q: {query}\n--- passage\n[{number}] {title}: {text}\n",
    ],
)
def test_a_text_in_place_of_a_file_may_say_how_passages_are_written(text):
    prompt = reader_prompt(QUESTION, [passage("A", "a."), passage("B", "b.")], ReaderConfig(qa_prompt=text))
    (message,) = prompt.messages
    assert (message.role, message.text) == ("user", "[1] A: a.\n[2] B: b.\nQ: Who?")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("no version\n--- user\nx", "must begin with 'version: N'"),
        ("version: 1\nno section", "must begin with"),
        ("version: 1\n--- usr\nx", "did you mean 'user'"),
        ("version: 1\n--- plain\nx\n--- user\ny", "stands alone"),
    ],
)
def test_a_broken_template_is_named(text, complaint):
    with pytest.raises(ConfigError, match=complaint):
        parse_template("t", text)


def test_what_is_optional_may_be_left_out_of_sections_and_of_how_an_item_is_written(tmp_path):
    shipped = (
        "version: 1\n{}--- passage\n{{title}}: {{text}}{{source}}\n--- user\n{{passages}}{{task}}{{query}}"
    )
    mine = "--- passage\n{text}\n--- user\n{passages}{query}"
    for optional in ("", "optional: task\n", "optional: task, source\n"):
        (tmp_path / f"s{len(optional)}.txt").write_text(shipped.format(optional))
    with raises_message(ConfigError):
        load_prompt(mine, "s0", tmp_path)
    with raises_message(ConfigError):
        load_prompt(mine, "s15", tmp_path)
    assert dict(load_prompt(mine, "s23", tmp_path).pieces) == {"passage": "{text}"}


@pytest.mark.parametrize(("goes_first", "passages"), [("first", ["1 P", "2 Q"]), ("last", ["2 Q", "1 P"])])
def test_demonstrations_are_left_out_before_passages_and_these_before_hops(tmp_path, goes_first, passages):
    file = tmp_path / "demonstrations.txt"
    file.write_text("Q: One?\nA: 1\n\n\nQ: Two?\nA: 2")
    template = parse_template(
        "t",
        "version: 1\n--- passage\n{number} {title}\n--- hop\n{sub_query}\n--- demonstration\n{query}\n"
        "--- user\n{hops}{passages}{demonstrations}Who?",
    )
    prompt = template.render(
        {
            "hops": template.items("hop", [{"sub_query": "A?"}, {"sub_query": "B?"}]),
            "passages": render_passages(
                [passage("P", "p"), passage("Q", "q")], template, goes_first=goes_first
            ),
            "demonstrations": render_demonstrations(read_demonstrations(str(file)), template),
        }
    )
    assert prompt.text == "A?\nB?\n1 P\n2 Q\nOne?\nTwo?\nWho?"
    _, gone = shorten(prompt, lambda _: 1, len)
    assert [segment.text.strip() for segment in gone] == ["One?", "Two?", *passages, "A?", "B?"]


def test_a_readers_prompt_may_say_how_passages_are_written(tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("version: 1\n--- passage\n<{title}> {text}\n--- user\n{paragraphs}Q {query}")
    shown = [passage("T", "one two three ")]
    prompt = reader_prompt(QUESTION, shown, ReaderConfig(qa_prompt=str(file), max_shown_words=2))
    assert prompt.text == "<T> one two\nQ Who?"
    file = tmp_path / "other.txt"
    file.write_text("version: 1\n--- user\n{paragraphs}Q {query}")
    prompt = reader_prompt(QUESTION, shown, ReaderConfig(qa_prompt=str(file)))
    assert prompt.text == "Wikipedia Title: T\none two three\n\nQ Who?", "as IRCoT does if it says nothing"


def test_passages_of_a_prompt_given_as_text_are_numbered_and_may_name_their_source():
    shown = [Passage("1", "T", "one", "a.pdf", 3), Passage("2", "U", "two")]
    prompt = reader_prompt(QUESTION, shown, ReaderConfig(qa_prompt="{paragraphs}Q {query}"))
    assert prompt.text == "[1] T\none\n\n[2] U\ntwo\n\nQ Who?"
    few_shot = "{demonstrations}{paragraphs}Q {query}"
    prompt = reader_prompt(QUESTION, shown[:1], ReaderConfig(qa_prompt=few_shot, demonstrations="default"))
    assert prompt.text.endswith("\n\nWikipedia Title: T\none\n\nQ Who?"), "as the examples are written"
    sourced = "{paragraphs}Q {query}\n--- passage\n[{source}] {text}"
    prompt = reader_prompt(QUESTION, shown[:1], ReaderConfig(qa_prompt=sourced))
    assert prompt.text == "[a.pdf, page 3] one\nQ Who?"
    own = "{passages}Q {query}\n{hops}\n--- passage\n[{source}] {text}"
    assert (
        "[a.pdf, page 3] one\nQ Who?"
        in final_answer_prompt("Who?", Chain(), shown, CoRAGConfig(final_answer_prompt=own)).text
    )


def test_every_released_demonstration_is_rebuilt_byte_for_byte():
    files = sorted((data_folder() / "ircot_demonstrations").glob("*/*.txt"))
    assert files
    for file in files:
        text = file.read_text(encoding="utf-8")
        demonstrations = parse_demonstrations(text, str(file))
        assert len(demonstrations) >= 20
        assert rebuild(demonstrations) == text
        if "_cot_" in file.name:
            assert all(stated_answer(demo.answer) for demo in demonstrations)


def test_demonstrations_can_be_direct_and_counted(tmp_path):
    file = tmp_path / "d.txt"
    file.write_text(
        "Q: One?\nA: It is so. So the answer is: 1.\n\n\nWikipedia Title: T\nText.\n\nQ: Two?\nA: So the "
        "answer is: 2."
    )
    layout = load_layout("layout")
    shown = render_demonstrations(bare_answers(read_demonstrations(str(file), 1), "d"), layout)
    assert [segment.text for segment in shown] == ["Q: One?\nA: 1\n\n\n"]
    (second,) = bare_answers(read_demonstrations(str(file), 1, ("2",)), "d")
    assert second.text == "Wikipedia Title: T\nText.\n\nQ: Two?\nA: 2"
    both = read_demonstrations(str(file))
    assert [segment.text for segment in render_demonstrations(both, layout)] == [
        f"{demo.text}\n\n\n" for demo in both
    ]
    with raises_message(DataError):
        read_demonstrations(str(file), 0, ("9",))
    with raises_message(DataError):
        parse_demonstrations("Q: no answer", "d.txt")
    for value in "9" * 5000, "[" * 50_000:
        (odd,) = parse_demonstrations(f'# METADATA: {{"qid": {value}}}\nQ: Who?\nA: She.\n', "d.txt")
        assert odd.qid == "", "Python reads no number of so many digits, nor brackets so deep"


@given(st.lists(st.integers(0, 30), max_size=12), st.integers(0, 40), st.integers(-5, 200))
def test_no_more_parts_go_than_must(sizes, rest, limit):
    def excess(number):  # joined, a token stands between two of them
        kept = sizes[number:]
        return rest + sum(kept) + max(0, len(kept) - 1) - limit

    number = count_to_drop(excess, sizes)
    assert number == next((n for n in range(len(sizes)) if excess(n) <= 0), len(sizes))
