"""Questions made of linked passages: which pairs count, what each filter leaves out, marks, resuming."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from corag.cli.commands import questions
from corag.cli.main import main
from corag.core.errors import ConfigError
from corag.core.runs.folder import TRACES
from corag.core.runs.manifest import Manifest
from corag.core.types import Passage, Question
from eval.datasets import load_questions
from eval.making import run as making
from eval.making.procedure import FILTERS, KEPT_STATUS, _first_hop
from eval.making.run import MadeQuestions, MakingConfig, make_questions
from eval.making.wording import compose_by_template, describe_kind, find_answers
from eval.tables.conditions import describe_conditions
from eval.tables.runs import read_answers_manifest
from retrieval.index_manifest import IndexSettings, write_manifest
from retrieval.linked_pairs import LinkedPair, LinkedPassages
from retrieval.store import storing
from tests.messages import raises_message

SONG = Passage(
    "song", "Harbour Song", "It was first played in 1970. Harbour Song is by the band Copper Kettle."
)
BAND = Passage("band", "Copper Kettle", "Copper Kettle is a band from Tessmark that was formed in 1963.")
NOISE = [Passage(f"n{number}", f"Hill {number}", f"A hill of {number} metres.") for number in range(9)]

# A model that reads perfectly. It asks for an answer by spelling it backwards, names the passage that a
# question is about, and finds what fills a blank. MODE says what it does otherwise.
MODEL = """
import re, sys, pathlib
MODE = "{mode}"
BAND = "Copper Kettle"

def llm(prompt):
    text = prompt if isinstance(prompt, str) else "\\n".join(each["content"] for each in prompt)
    with (pathlib.Path(__file__).parent / "asked").open("a") as log:
        log.write(str(len(text)) + "\\n")
    if text.startswith("Write one question"):
        title = re.findall("Title: (.*)", text)[-1]
        answer = re.findall("Answer: (.*)", text)[-1]
        if MODE == "does not name it":
            return "What is " + answer[::-1] + " backwards?"
        return " What is <" + answer[::-1] + "> of " + title + " backwards?\\nAnswer: " + answer
    if text.startswith("Make one question"):
        second = re.findall("Second question: (.*)", text)[-1]
        return second if MODE == "keeps the name" else second.replace(BAND, "the band of Harbour Song")
    question = re.findall("Question: (.*)", text)[-1]
    passages = text[: text.rindex("Question: ")]
    answer = re.search("<(.*)>", question)[1][::-1]
    known = answer in passages and (
        BAND in question or answer == BAND or "by the band " + BAND in passages or MODE == "guesses"
    )
    if MODE == "reads one" and "Copper Kettle is" in passages and "Harbour Song is" in passages:
        return "no idea"
    if MODE == "reads nothing":
        return "no idea"
    if MODE == "knows" and BAND not in question and answer != BAND:
        return answer
    if MODE == "is told" and "Harbour Song is" in passages and BAND not in question and answer != BAND:
        return answer
    return answer if known else "no idea"
"""


def index_of(folder: Path, passages: Sequence[Passage]) -> str:
    shutil.rmtree(folder, ignore_errors=True)  # with the table of the titles that it had
    folder.mkdir()
    for _ in storing(passages, folder):
        pass
    write_manifest(folder, IndexSettings("bm25", ()), len(passages), ())
    return str(folder)


def model_of(folder: Path, mode: str) -> str:
    (folder / "oracle.py").write_text(MODEL.replace("{mode}", mode))
    return f"{folder / 'oracle.py'}:llm"


def config_of(folder: Path, mode: str, passages: Sequence[Passage], **options: object) -> MakingConfig:
    index = index_of(folder / "index", passages)
    model = replace(MakingConfig("a", "b.jsonl").model, name=model_of(folder, mode), backend="python")
    return MakingConfig(index, str(folder / "made.jsonl"), model=model, **options)  # type: ignore[arg-type]


def make(folder: Path, mode: str, **options: object) -> MadeQuestions:
    return asyncio.run(make_questions(config_of(folder, mode, [SONG, BAND, *NOISE], **options)))


def pairs_of(folder: Path, *passages: Passage) -> list[tuple[str, str]]:
    pairs = LinkedPassages(index_of(folder, passages)).pairs(0)
    return [(pair.first.id, pair.second.id) for pair in pairs]


def test_a_passage_is_paired_with_what_it_names_and_not_with_what_only_looks_like_it(tmp_path: Path) -> None:
    assert pairs_of(tmp_path / "plain", SONG, BAND) == [("song", "band")]

    def named_in(text: str, *others: Passage) -> list[tuple[str, str]]:
        first = replace(SONG, text=text)
        return pairs_of(tmp_path / "other", first, *others or [BAND])

    assert named_in("It is by Copper Kettle.") and named_in("Copper Kettle played it.")
    assert not named_in("It was sold at Copper Kettle Market."), "a longer name"
    assert not named_in("It was sold at Old Copper Kettle."), "a longer name"
    assert not named_in("It is in a copper kettle."), "words without capitals"
    kettle = Passage("kettle", "Kettle", "Kettle is a town.")
    assert named_in("He left Kettle.", kettle) and not named_in("Off they went. Kettle is far.", kettle)
    film = Passage("film", "Copper Kettle (film)", "Copper Kettle is a film of 1963.")
    assert not named_in("It is by Copper Kettle.", film), "nothing says that a film is meant"
    assert named_in("It is from the film Copper Kettle.", film)
    assert not named_in("It is by Copper Kettle.", BAND, film), "which of the two?"
    assert not named_in("It is by Copper Kettle.", replace(BAND, text="A band from Tessmark.")), (
        "another part"
    )
    assert len(named_in("It is by Copper Kettle. They left Copper Kettle in 1970.")) == 1, "once a pair"
    loud = replace(BAND, title="Copper Kettle!")
    assert not named_in("It is by Copper Kettle.", loud), "a title of another spelling"
    part = Passage("part", "Handbook > Copper Kettle", "Formed in 1963.", "handbook.md")
    assert named_in("More in Copper Kettle.", part), "a heading's words are not repeated below it"
    itself = Passage("p", "Oliver P.", "The team is led by Oliver Pryce.", "oliver-pryce.md")
    assert not pairs_of(tmp_path / "itself", itself), "a page that calls itself by its file's name"
    rest = replace(itself, id="q", text="He lives in Tessmark.")
    assert not pairs_of(tmp_path / "itself", itself, rest), "nor with the rest of it"
    back = replace(BAND, text="Copper Kettle is the band of Harbour Song.")
    assert not named_in("It is by Copper Kettle.", back), "a search for the first finds the second"


def test_the_first_hop_says_its_sentence_without_blanks() -> None:
    text = "Copper Kettle toured, and Harbour Song is by Copper Kettle."
    pair = LinkedPair(Passage("song", "Harbour Song", text), BAND, text.rindex("Copper"), len(text) - 1)
    assert _first_hop(pair, "Who played it?").says == text


def test_answers_are_dates_numbers_and_names_that_only_the_second_passage_has() -> None:
    text = (
        "Copper Kettle was formed on 3 May 1963 in Tessmark by Ida Brandt. Originally they sold 1,200 "
        "records in 1970. In May Brandt left."
    )
    pair = LinkedPair(SONG, replace(BAND, text=text), SONG.text.index("Copper"), len(SONG.text) - 1)
    assert sorted(find_answers(pair, 0)) == ["1,200", "3 May 1963", "Ida Brandt", "Tessmark"]
    assert find_answers(pair, 1) == find_answers(pair, 1) and find_answers(pair, 1) != find_answers(pair, 0)


def test_the_template_leaves_a_blank_for_the_second_passage_and_says_what_kind_of_thing_it_is() -> None:
    pair = LinkedPair(SONG, BAND, SONG.text.index("Copper"), len(SONG.text) - 1)
    assert compose_by_template("When was Copper Kettle formed?", pair) == (
        '"Harbour Song" says: "Harbour Song is by the band ____." When was that band formed?'
    )
    assert compose_by_template("When was it formed?", pair) == "", "it does not ask for the second passage"
    told = replace(SONG, text="A Kettle man wrote it: Harbour Song is by the band Copper Kettle.")
    pair = LinkedPair(told, BAND, told.text.rindex("Copper"), len(told.text) - 1)
    assert compose_by_template("When was Copper Kettle formed?", pair) == "", (
        "the sentence gives the name away"
    )


@pytest.mark.parametrize(
    ("sentence", "kind"),
    [
        ("Orva Park is a major Thoroughbred horse-racing facility located in Ribe.", "facility"),
        ("Orva is a 1998 album recorded by Copper Kettle.", "album"),
        ("Orva is a British aviation magazine covering defence.", "magazine"),
        ("An Orva is a medium-sized dog.", "dog"),
        ("Orva is a type of gun dog.", ""),
        ("Orva is a newly formed band from Ribe.", "band"),
        ("Orva is a privately held company.", "company"),
        ("Orva is a former of Ribe.", ""),
    ],
)
def test_the_kind_of_thing_is_a_noun_or_nothing(sentence: str, kind: str) -> None:
    assert describe_kind(Passage("1", "Orva", sentence), "Orva") == kind


@pytest.mark.parametrize("compose", ["model", "template"])
def test_a_made_question_is_read_by_run_with_answer_gold_passages_and_hops(
    compose: str, tmp_path: Path
) -> None:
    made = make(tmp_path, "reads", compose=compose)
    (question,) = load_questions(str(tmp_path / "made.jsonl"), strict=True)
    assert [question] == list(made.questions) and made.pair_count == 1
    assert question.supporting == ("song", "band") and question.hops == 2
    assert question.answers[0] in BAND.text and "Copper Kettle" not in question.text
    assert "Harbour Song" in question.text and question.answers[0] not in question.text
    first, second = question.decomposition
    assert (first.answer, first.passage_id) == ("Copper Kettle", "song")
    assert (second.answer, second.passage_id) == (question.answers[0], "band")
    assert question.kind == ("bridge" if compose == "model" else "bridge by template")
    assert question.synthetic.startswith("made by corag questions with ")


def test_a_model_that_keeps_the_second_name_is_replaced_by_the_template(tmp_path: Path) -> None:
    (question,) = make(tmp_path, "keeps the name").questions
    assert question.kind == "bridge by template" and "Copper Kettle" not in question.text


@pytest.mark.parametrize(
    ("mode", "left_out"),
    {
        "does not name it": "no question",
        "reads nothing": "not answered",
        "knows": "known",
        "is told": "first alone",
        "reads one": "not in both",
        "guesses": "second alone",
    }.items(),
)
def test_each_filter_leaves_a_question_out_and_says_so(
    mode: str, left_out: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = make(tmp_path, mode, compose="template")
    assert (len(made.questions), dict(made.left_out)) == (0, {left_out: 1})
    assert any(FILTERS[left_out] in line for line in made.lines())


def songs_and_bands(count: int) -> list[Passage]:
    """So many pairs of passages, each a song that names its band."""
    songs = [
        Passage(f"s{n}", f"Song Number{n}", f"It was sung by the band Copper Kettle{n} in a barn.")
        for n in range(count)
    ]
    bands = [
        Passage(f"b{n}", f"Copper Kettle{n}", f"Copper Kettle{n} is a band that was formed in {1900 + n}.")
        for n in range(count)
    ]
    return [*songs, *bands]


def test_what_has_been_tried_is_not_tried_again_and_the_file_is_the_same(tmp_path: Path) -> None:
    config = config_of(tmp_path, "knows", songs_and_bands(16), limit=16)
    first = asyncio.run(make_questions(config))
    assert first.pair_count == 16
    written, asked = (tmp_path / "made.jsonl").read_bytes(), (tmp_path / "asked").read_text()
    asyncio.run(make_questions(config))
    assert (tmp_path / "asked").read_text() == asked, "nothing is left to ask"
    traces = config.folder / TRACES
    lines = traces.read_bytes().splitlines(keepends=True)
    traces.write_bytes(b"".join(lines[:2]) + lines[2][:40])  # as kill -9 leaves it
    again = asyncio.run(make_questions(config))
    assert (tmp_path / "made.jsonl").read_bytes() == written and again == first
    with raises_message(ConfigError):
        asyncio.run(make_questions(replace(config, compose="template")))
    with raises_message(ConfigError):
        read_answers_manifest(config.folder)


def test_runs_and_tables_of_made_questions_say_that_they_are_synthetic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = config_of(tmp_path, "reads", [SONG, BAND, *NOISE])
    words = ["questions", config.index, "--out", config.out, "--llm", config.model.name, "--json"]
    assert main([*words, "--model.backend", "python", "--limit", "1"]) == 0
    record = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (record["kept"], record["tried"]) == (1, 1)
    answering = ["run", "--questions", config.out, "--method", "closed_book", "--llm", config.model.name]
    assert main([*answering, "--model.backend", "python", "--out", str(tmp_path / "runs")]) == 0
    shown = capsys.readouterr().out
    mark = f"synthetic, made by corag questions with {Path(config.model.name).name}"
    assert f"Questions: {mark}" in " ".join(shown.split())
    manifest = Manifest.read(tmp_path / "runs/closed_book")
    assert mark.endswith(manifest.last.synthetic) and manifest.last.synthetic
    assert any(mark in line for line in describe_conditions({"a": manifest}).common_lines)


def test_an_index_without_links_is_refused_and_so_is_what_is_no_index(tmp_path: Path) -> None:
    with raises_message(ConfigError):
        asyncio.run(make_questions(config_of(tmp_path, "reads", NOISE)))
    with raises_message(ConfigError):
        asyncio.run(make_questions(replace(config_of(tmp_path, "reads", NOISE), index=str(tmp_path))))
    for given in ({"index": "", "out": "a.jsonl"}, {"index": "a", "out": "a.csv"}):
        with raises_message(ConfigError):
            MakingConfig(**given)  # type: ignore[arg-type]


def test_a_command_that_keeps_nothing_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = config_of(tmp_path, "knows", [SONG, BAND, *NOISE])
    words = ["questions", config.index, "--out", config.out, "--llm", config.model.name]
    assert main([*words, "--model.backend", "python"]) == 1
    shown = capsys.readouterr().out
    assert "0 questions kept of 1 pairs of linked passages tried." in shown
    assert "Fewer than 50: the pairs are used up." in shown


def test_every_pair_is_accounted_for_and_what_ended_the_search_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(tmp_path, "knows", songs_and_bands(4), limit=2)
    monkeypatch.setattr(making, "PAIRS_PER_QUESTION", 1)
    monkeypatch.setattr(questions, "PAIRS_PER_QUESTION", 1)
    words = ["questions", config.index, "--out", config.out, "--llm", config.model.name, "--limit", "2"]
    assert main([*words, "--model.backend", "python"]) == 1
    assert "Fewer than 2: no more than 1 pairs for each are tried." in capsys.readouterr().out
    kept = [
        SimpleNamespace(
            question=Question(f"q{n}", "x", supporting=("a", f"b{n}")),
            answer=SimpleNamespace(stopped=KEPT_STATUS),
            text=f"Who sang song {n}?",
            further={"gold": f"Ada {n}", "kind": "bridge", "hops": []},
            error="",
        )
        for n in range(3)
    ]
    made = making._collect(kept, config)  # type: ignore[arg-type]
    assert (len(made.questions), made.pair_count, dict(made.left_out)) == (2, 3, {"spare": 1})
    assert any("1 passed, too, and are not needed" in line for line in made.lines())
