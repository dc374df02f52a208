"""Files that are nearly right: hundreds of each format. Each is read whole or refused in a sentence."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from corag.core.errors import CoragError
from corag.core.options.command_line import parse
from corag.core.prompting.demonstrations import parse_demonstrations, read_demonstrations, rebuild
from corag.core.prompting.prompt import Prompt
from corag.core.prompting.template import load_template
from eval.datasets import load_questions
from eval.datasets.report import QuestionReport
from eval.experiment.run import RunConfig
from eval.sweeps.sweep import SweepConfig
from retrieval.corpora.formats import read_corpus
from retrieval.corpora.sifting import CorpusReport
from tests.eval.test_datasets import MUSIQUE, PLAIN, TWO_WIKI
from tests.story import DEMONSTRATIONS

HOTPOT = {
    "_id": "h1", "question": "Who?", "answer": "Ada", "type": "bridge", "level": "hard",
    "context": [["Ada", ["Ada was born.", "She wrote."]]], "supporting_facts": [["Ada", 0]],
}  # fmt: skip
KILT = {
    "id": "k1", "input": "Who?",
    "output": [{"answer": "Ada", "provenance": [{"wikipedia_id": "12", "title": "Ada"}]}],
}  # fmt: skip
FLASHRAG = {"id": "f1", "question": "Who?", "golden_answers": ["Ada"], "metadata": {"x": 1}}
PASSAGE = {"id": "p1", "title": "Ada", "text": "Ada was born in Orvale."}
ARTICLE = {"wikipedia_id": "12", "wikipedia_title": "Ada", "text": ["Ada\n", "Ada was born."]}
POPQA = "id\tsubj\tprop\tobj\tquestion\tpossible_answers\n"
POPQA += '1\tAda\tborn\tOrvale\tWhere?\t["Orvale", "Orval"]\n'
DPR = 'id\ttext\ttitle\n1\t"Ada was born in ""Orvale""."\tAda\n2\tIt rains.\tRain\n'
PROMPT = """version: 1
--- system
Be brief.
--- passage
[{number}] {title}
{text}

--- no_passages
(none)
--- user
{passages}Question: {query}
--- assistant
Answer:
"""
YAML = """method: [ircot, corag]
questions: q.jsonl
retriever:
  index: [one, two]
  cache_size: 10
corag.strategy: best_of_n
corag: {chains: 4, max_hops: 3}
ircot:
  max_steps: 3
model.max_context: 2048
seed: 3
"""
MARKDOWN = "---\ntitle: Ada\n---\n# Life\n\nAda was *born*.\n\n"
MARKDOWN += "| a | b |\n|---|---|\n| 1 | 2 |\n\n```\ncode\n```\n"
HTML = "<html><head><title>Ada</title></head><body><h1>Life</h1>"
HTML += "<p>Born &amp; bred<table><tr><td>1</td></tr></table>"

# Texts that have broken readers: signs of each format, marks that are not seen, halves of characters.
ODD = [
    "", " ", "\n", "\r\n", "\t", "\x00", "\x1b[31m", "\u2028", "\ufeff", "\u202e", "😀", '"', "'", "{", "}",
    "{{}}", "{x}", "[", "]", ":", "-", "--- user\n", "--- plain\n", "---\n", "&a *a", "<<: *a", "!!int",
    "!!python/object/apply:os.system [ls]", "NaN", "1e999", "-1", "0", "9" * 5000, "null", "true", "Q: ",
    "\nA: ", "\n\n\n", "# METADATA: ", "version: 2\n", ",", "x" * 5000, "[" * 3000, "%", "\\", "\\ud800",
    "<script>", "]]>", "&#0;",
]  # fmt: skip
VALUES = [None, True, 0, -1, 1.5, float("nan"), float("inf"), [], {}, [[]], [{}], [None], {"a": None}, *ODD]


def damaged(chance: Random, text: str) -> str:
    """Return a text in which something was put in, left out, moved or cut off, up to three times."""
    for _ in range(chance.randint(1, 3)):
        start = chance.randint(0, len(text))
        end = min(len(text), start + chance.randint(0, 40))
        text = chance.choice(
            [
                text[:start] + chance.choice(ODD) + text[end:],
                text[:start] + text[end:],
                text[:end] + text[start:],
            ]
            + [text[:start]] * (chance.random() < 0.2)
        )
    return text


def altered(chance: Random, record: dict[str, Any]) -> dict[str, Any]:
    """Return a record of which one or two values, however deep, are others, or gone."""
    record = copy.deepcopy(record)
    for _ in range(chance.randint(1, 2)):
        at: Any = record
        while at:
            key = chance.choice(list(at) if isinstance(at, dict) else range(len(at)))
            if isinstance(at[key], dict | list) and at[key] and chance.random() < 0.6:
                at = at[key]
            elif chance.random() < 0.2:
                del at[key]
                break
            else:
                at[key] = chance.choice(VALUES)
                break
    return record


def a_thousand(check: Callable[[Random], None]) -> None:
    """Call a check a thousand times, each with other chances: the same in every run, but for --all."""
    factor = int(os.environ.get("CORAG_FUZZ", "1"))

    @settings(
        max_examples=250 * factor, deadline=None, derandomize=factor == 1, database=None,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.integers(0, 2**40).map(Random))
    def run(chance: Random) -> None:
        check(chance)

    run()


def lines(records: Iterable[dict[str, Any]]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def write(path: Path, text: str) -> str:
    path.write_bytes(text.encode())
    return str(path)


def read_or_refused(read: Callable[[], Any]) -> Any:
    """What was read; None if it was refused, which takes a sentence."""
    try:
        return read()
    except CoragError as error:
        said = str(error)
        assert len(said) > 20 and " " in said and "Traceback" not in said, f"no sentence: {said!r}"
        said.encode()  # it can be printed
        return None


_QUESTIONS = {
    "jsonl": PLAIN, "hotpotqa": HOTPOT, "2wikimultihopqa": TWO_WIKI, "musique": MUSIQUE, "flashrag": FLASHRAG,
    "kilt_nq": KILT,
}  # fmt: skip


@pytest.mark.parametrize("dataset", _QUESTIONS)
def test_questions(dataset: str, tmp_path: Path) -> None:
    record = _QUESTIONS[dataset]
    second = record | {name: "other" for name in ("id", "_id") if name in record}

    def check(chance: Random) -> None:
        whole = chance.random() < 0.5
        text = lines([altered(chance, record), second]) if whole else damaged(chance, lines([record, second]))
        path = write(tmp_path / "q.jsonl", text)
        report = QuestionReport(path)
        questions = read_or_refused(lambda: load_questions(path, dataset, report=report))
        if questions is not None:
            assert len(questions) == report.question_count and (report.records == 2 or not whole)
            for question in questions:
                assert question.id and question.text.strip() and all(question.answers)
                (question.id + question.text + "".join(question.answers)).encode()

    a_thousand(check)


def test_tables_of_questions(tmp_path: Path) -> None:
    def check(chance: Random) -> None:
        text = damaged(chance, POPQA)
        path = write(tmp_path / "q.tsv", text)
        read_or_refused(lambda: load_questions(path, "popqa"))

    a_thousand(check)


RECORDS = {"jsonl": PASSAGE, "beir": PASSAGE, "kilt": ARTICLE, "hotpotqa": HOTPOT, "musique": MUSIQUE}
_CORPORA = {
    "jsonl": (lines([PASSAGE, PASSAGE | {"id": "p2", "text": "It rains."}]), "c.jsonl"),
    "beir": (lines([{"_id": "p1", "title": "Ada", "text": "Born."}]), "c.jsonl"),
    "kilt": (lines([ARTICLE]), "c.jsonl"),
    "hotpotqa": (json.dumps([HOTPOT]), "c.json"),
    "musique": (lines([MUSIQUE]), "c.jsonl"),
    "dpr": (DPR, "c.tsv"),
}


@pytest.mark.parametrize("form", _CORPORA)
def test_corpora(form: str, tmp_path: Path) -> None:
    import eval.datasets.corpora  # noqa: F401 - registers the datasets' formats

    whole, name = _CORPORA[form]

    def check(chance: Random) -> None:
        if form in RECORDS and chance.random() < 0.5:
            text = lines([altered(chance, RECORDS[form]), RECORDS[form]])
        else:
            text = damaged(chance, whole)
        path, report = write(tmp_path / name, text), CorpusReport()
        passages = read_or_refused(lambda: list(read_corpus([path], form, report)))
        if passages is not None:
            assert len(passages) == report.passages > 0
            for passage in passages:
                assert isinstance(passage.title, str) and passage.text.strip() and passage.id
                f"{passage.id}{passage.contents}".encode()

    a_thousand(check)


@pytest.mark.parametrize(
    ("name", "whole"),
    [("c.md", MARKDOWN), ("c.html", HTML), ("c.txt", MARKDOWN)],
    ids=["markdown", "html", "text"],
)
def test_documents(name: str, whole: str, tmp_path: Path) -> None:
    def check(chance: Random) -> None:
        text = damaged(chance, whole)
        path, report = write(tmp_path / name, text), CorpusReport()
        passages = read_or_refused(lambda: list(read_corpus([path], "documents", report)))
        assert passages is None or len(passages) == report.passages > 0
        for passage in passages or ():
            passage.contents.encode()

    a_thousand(check)


@pytest.mark.parametrize("config", [RunConfig, SweepConfig])
def test_yaml(config: type[Any], tmp_path: Path) -> None:
    def check(chance: Random) -> None:
        text = damaged(chance, YAML)
        path = write(tmp_path / "c.yaml", text)
        read_or_refused(lambda: parse(config, ["--config", path], "corag run", ""))

    a_thousand(check)


def test_prompts(tmp_path: Path) -> None:
    values = {"query": "{x} {query}", "passages": "{{}}"}

    def ask(path: str) -> Prompt:
        template = load_template.__wrapped__(path, tmp_path)  # not the copy of the last one
        template.items("passage", [{"title": "{text}", "text": "{title} {0} {}"}])
        return template.render(values)

    def check(chance: Random) -> None:
        text = damaged(chance, PROMPT)
        path = write(tmp_path / "p.txt", text)
        prompt = read_or_refused(lambda: ask(path))
        if prompt is not None and "{query}" in text:
            assert prompt.messages

    a_thousand(check)


def test_demonstrations(tmp_path: Path) -> None:
    whole = f"{DEMONSTRATIONS}\n\n\n{DEMONSTRATIONS.replace('d1', 'd2')}"

    def check(chance: Random) -> None:
        text = damaged(chance, whole)
        path = write(tmp_path / "d.txt", text)
        found = read_or_refused(lambda: read_demonstrations.__wrapped__(path))
        if found is not None:
            assert parse_demonstrations(rebuild(found), "again") == found, "nothing is lost"

    a_thousand(check)
