"""'corag ask' as it is typed: what it prints, and question after question on one engine."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import corag.cli.commands.ask
from corag.cli.main import main
from corag.core.protocols import Generator, Retriever
from eval.experiment.backends import Setup
from tests.fakes import ScriptedGenerator, WordRetriever
from tests.story import QUESTION, WORLD

ROOT = Path(__file__).parents[2]
ASK = ["ask", "--method", "one_step", "--one_step.k", "2"]


class Opened:
    """Scripted back ends in the place of real ones, and how often they were opened."""

    def __init__(self, reply: str = "Answer {}.") -> None:
        self.times, self.reply = 0, reply

    @asynccontextmanager
    async def __call__(self, setup: Setup) -> AsyncIterator[tuple[Generator, Retriever | None]]:
        self.times += 1
        yield ScriptedGenerator(self.reply.format(n) for n in range(1, 99)), WordRetriever(WORLD)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    opened = Opened()
    monkeypatch.setattr(corag.cli.commands.ask, "open_backends", opened)
    monkeypatch.setattr(corag.cli.commands.ask, "check_setup", lambda setup: None)
    monkeypatch.setattr(corag.cli.commands.ask, "visible_gpus", lambda: [])
    return opened


def test_without_a_terminal_it_prints_the_tree_answer_sources_and_cost(
    opened: Opened, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*ASK[:1], QUESTION.text, *ASK[1:]]) == 0
    printed = capsys.readouterr()
    question, search, reader, answer, sources, cost = printed.out.splitlines()
    assert question == QUESTION.text and "search  'river flows" in search and "Answer 1." in reader
    assert answer == "answer   Answer 1"
    assert sources == "sources  read: The Glass Orchard; Tarn Hollow" and cost.startswith("cost     1 call, ")
    assert printed.err.startswith("corag: transformers answers a single question sooner than vLLM here")
    assert printed.err.splitlines()[1:] == ["corag: answering by one_step ('method' takes another)."]


def test_an_answer_from_documents_is_shown_with_what_it_cites_and_what_that_does_not_bear_out(
    opened: Opened, capsys: pytest.CaptureFixture[str]
) -> None:
    opened.reply = 'It is in [2]. It was "never written" [1].'
    assert main([*ASK[:1], QUESTION.text, *ASK[1:], "--prompts", "documents"]) == 0
    *_, answer, doubt, sources, _ = capsys.readouterr().out.splitlines()
    assert answer == f"answer   {opened.reply}"
    assert doubt.startswith('doubt    It was "never written" [1]. (the passage')
    assert sources == "sources  [1] The Glass Orchard; [2] Tarn Hollow"


def test_a_single_question_goes_to_what_answers_it_sooner_unless_one_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = []

    @asynccontextmanager
    async def opened(setup: Setup) -> AsyncIterator[tuple[Generator, Retriever | None]]:
        chosen.append(setup.model.backend)
        yield ScriptedGenerator(f"Answer {n}." for n in range(1, 99)), WordRetriever(WORLD)

    monkeypatch.setattr(corag.cli.commands.ask, "open_backends", opened)
    monkeypatch.setattr(corag.cli.commands.ask, "check_setup", lambda setup: None)
    monkeypatch.setattr(corag.cli.commands.ask, "visible_gpus", lambda: [])
    single = ["ask", QUESTION.text, *ASK[1:]]
    assert main(single) == 0 and "model.backend=vllm overrules" in capsys.readouterr().err
    assert main([*single, "--model.backend", "vllm"]) == 0
    assert "overrules" not in capsys.readouterr().err
    assert main([*single, "--model.urls", "http://localhost:1"]) == 0
    assert main(["ask", QUESTION.text, "--method", "one_step,closed_book"]) == 0
    many = ["--method", "corag", "--corag.strategy", "best_of_n", "--corag.max_hops", "1"]
    assert main(["ask", QUESTION.text, *many]) == 0
    monkeypatch.setattr(corag.cli.commands.ask, "visible_gpus", lambda: ["0"])
    assert main(single) == 0
    assert chosen == ["transformers", "vllm", "server", "vllm", "vllm", "vllm"]


def test_several_methods_are_told_apart_and_json_has_a_line_for_each(
    opened: Opened, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ask", QUESTION.text, "--method", "one_step,closed_book", "--json"]) == 0
    *told, first, second = capsys.readouterr().out.splitlines()
    assert [line for line in told if line.startswith("── ")] == ["── one_step", "── closed_book"]
    records = [json.loads(line) for line in (first, second)]
    assert [record["method"] for record in records] == ["one_step", "closed_book"]
    assert records[0]["answer"]["text"] == "Answer 1" and records[0]["question"] == QUESTION.text


def test_a_piped_question_is_answered_and_several_or_none_open_nothing(
    opened: Opened, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for piped in ("", "Who?\nWhere?\n"):
        monkeypatch.setattr(sys, "stdin", io.StringIO(piped))
        assert main(ASK) == 2 and opened.times == 0
        assert "corag run --questions FILE" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{QUESTION.text}\n\n"))
    assert main([*ASK, "--json"]) == 0 and opened.times == 1
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["question"] == QUESTION.text


CHILD = """
import sys
import corag.cli.commands.ask
from corag.cli.main import main
from tests.cli.test_ask import Opened
corag.cli.commands.ask.open_backends = Opened()
corag.cli.commands.ask.check_setup = lambda setup: None
sys.exit(main(sys.argv[1:]))
"""


class Terminal:
    """A terminal in which a command runs."""

    def __init__(self, *words: str) -> None:
        ours, theirs = pty.openpty()
        environment = os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "COLUMNS": "100"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, *words],
            stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self.descriptor, self.seen = ours, ""

    def read_until(self, text: str) -> str:
        """Return what came since the last call, up to a text that must come."""
        deadline = time.monotonic() + 300
        while text not in self.seen:
            assert time.monotonic() < deadline, self.seen
            if select.select([self.descriptor], [], [], 1)[0]:
                self.seen += os.read(self.descriptor, 4096).decode(errors="replace")
        told, _, self.seen = self.seen.partition(text)
        return told

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal(*ASK)
    yield terminal
    terminal.process.kill()
    terminal.process.wait()
    os.close(terminal.descriptor)


@pytest.mark.parametrize("ending", ["\x04", signal.SIGINT])
def test_a_prompt_line_answers_again_and_again(terminal: Terminal, ending: str | signal.Signals) -> None:
    assert "Ctrl-D ends" in terminal.read_until("> ")
    for number, question in enumerate(["Who wrote The Glass Orchard?", "Who is Mara Velden?"], 1):
        terminal.type(question + "\n")
        shown = terminal.read_until("cost")
        assert f"Answer {number}" in shown and "sources" in shown
        terminal.read_until("> ")
    if isinstance(ending, str):
        terminal.type(ending)
    else:
        time.sleep(1)  # a signal between Python's showing a prompt and its waiting for a line is lost to it
        terminal.process.send_signal(ending)
    assert terminal.process.wait(30) == 0, "Ctrl-D and Ctrl-C end it"
