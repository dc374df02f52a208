"""What a person gets wrong first with models, retrievers and methods of their own: taken, or told."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from corag import Question, Tools, ask, closed_book, one_step, open_index, report, run
from corag.core.errors import ConfigError
from eval.api import Results
from retrieval.config import RetrieverConfig
from tests.messages import raises_message

TEXTS = ["Paris is the capital of France.", "Rome is the capital of Italy.", "Lyon is a city in France."]
ASKED = "What is the capital of France?"
RECORDS = [{"id": str(n), "question": f"{ASKED} ({n})", "answers": ["Paris"]} for n in range(3)]


class Rule:
    """A model."""

    def generate(self, prompt: str) -> str:
        return "Paris"


class Searcher:
    """A retriever."""

    def search(self, query: str, k: int) -> list[str]:
        return TEXTS[:k]


def test_a_class_in_the_place_of_an_object_is_told() -> None:
    with raises_message(ConfigError):
        ask(ASKED, one_step, Rule, Searcher())
    with raises_message(ConfigError):
        ask(ASKED, one_step, Rule(), Searcher)


def test_a_hit_has_its_passages_words_and_a_role_need_not_be_named(tmp_path: Path) -> None:
    async def reading(question: Question, tools: Tools) -> str:
        (hit,) = await tools.search(question, k=1)
        assert (hit.id, hit.title, hit.text) == (hit.passage.id, hit.passage.title, TEXTS[0])
        return (await tools.generate(hit.text, max_tokens=20)).text

    answered = ask(ASKED, reading, Rule(), Searcher())
    assert answered.text == "Paris" and not answered.error


def _asking(ask_tools: Callable[[Tools], Any]) -> Any:
    async def asking(question: Question, tools: Tools) -> str:
        await ask_tools(tools)
        return "Paris"

    return asking


def test_values_that_depend_on_the_question_fail_it_with_a_sentence() -> None:
    errors = [
        ask(ASKED, _asking(lambda tools: tools.search(ASKED, k=0)), Rule(), Searcher()).error,
        ask(ASKED, _asking(lambda tools: tools.search(None, k=2)), Rule(), Searcher()).error,
        ask(ASKED, _asking(lambda tools: tools.score(ASKED, None)), Rule(), Searcher()).error,
    ]
    assert errors == [
        "DataError: k of tools.search must be 1 or more, but it is 0.",
        "DataError: tools.search takes a text or a question, but was given None.",
        "DataError: tools.score takes a text as its target, but was given None.",
    ]
    seen: list[Any] = []
    one_stop = _asking(lambda tools: tools.generate(ASKED, max_tokens=np.int64(9), stop="Question:"))
    answered = ask(ASKED, one_stop, lambda prompt, stop: seen.append(stop) or "Paris")
    assert answered.text == "Paris" and list(seen[0]) == ["Question:"], "a text is one stop string"


async def dividing(question: Question, tools: Tools) -> str:
    await tools.search(question, k=1)
    return str(1 // (len(question.text) - len(question.text)))


def test_an_error_in_the_user_s_code_is_told_with_its_line_and_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*asked: Any) -> Any:
        raise ValueError("boom\nand more")

    line = dividing.__code__.co_firstlineno + 2
    failed = ask(ASKED, dividing, Rule(), Searcher())
    first, *traced = failed.error.splitlines()
    assert first.startswith("ZeroDivisionError: ") and first.endswith(f"test_own_mistakes.py, line {line})")
    assert f"failed: {first}\nTraceback (most recent call last):\n" in str(failed)
    assert "Traceback (most recent call last):" in traced
    monkeypatch.chdir(Path(__file__).parent)  # a file is named from here on
    boom = f"ValueError: boom (test_own_mistakes.py, line {failing.__code__.co_firstlineno + 1})"
    for model, index in ((failing, Searcher()), (Rule(), lambda query, k: failing(query))):
        assert ask(ASKED, one_step, model, index).error.splitlines()[:2] == [boom, "and more"]
    printed = str(run(RECORDS, [dividing], Rule(), Searcher(), out=tmp_path))
    assert f"3 x {first.split(' (')[0]} (test_own_mistakes.py, line {line})" in printed
    assert "whole traceback of each is its 'error' in traces.jsonl of the run's folder." in printed
    assert "Traceback" in (tmp_path / "dividing" / "traces.jsonl").read_text()


def test_estimated_tokens_of_an_answer_are_marked() -> None:
    assert re.search(r"1 call, ~\d+ tokens \(~\d+ computed\)", str(ask(ASKED, closed_book, Rule())))


def test_a_type_error_of_the_users_own_code_stays_what_it_is() -> None:
    def broken(query: str, k: int) -> Any:
        return len(k)  # type: ignore[arg-type]

    assert "object of type 'int' has no len()" in ask(ASKED, one_step, Rule(), broken).error


def test_a_table_in_the_place_of_texts_or_hits_is_told() -> None:
    frame = pd.DataFrame({"body": TEXTS})
    with raises_message(ConfigError):
        open_index(frame)
    error = ask(ASKED, one_step, Rule(), lambda query, k: frame).error
    assert "that is no list of passages. Return a list of texts" in error.splitlines()[0]


def test_a_report_takes_what_run_took(tmp_path: Path) -> None:
    results = run(RECORDS, {"one": one_step}, Rule(), Searcher(), out=tmp_path / "runs")
    for index in (Searcher(), open_index(Searcher())):
        page = report(results, tmp_path / "report.html", index).read_text()
        assert '"texts_per_block":0' in page.replace(" ", "")
    listed = run(RECORDS, {"one": one_step}, Rule(), TEXTS, out=tmp_path / "listed")
    for index in (TEXTS, RetrieverConfig(index=open_index(TEXTS).options.index)):
        page = report(listed, tmp_path / "report.html", index).read_text()
        assert '"texts_per_block":0' not in page.replace(" ", "")
    folder = results.runs["one"]
    for runs in ([folder], str(folder), results, {"one": folder}):
        assert '"runs":["one"' in report(runs, tmp_path / "report.html").read_text().replace(" ", "")
    assert list(Results([folder]).runs) == ["one"]
    for wrong in (3, [], {"one": {}}, [folder, folder]):
        with raises_message(ConfigError):
            report(wrong)
