"""Many questions at once, run folders, resume, and failures that stay where they belong."""

import asyncio
import random
import subprocess
import sys

import pytest

from corag.core.errors import BackendError, ConfigError, DataError
from corag.core.runner import answer_all, answer_question
from corag.core.runs.folder import TRACES, RunFolder, read_rows
from corag.core.runs.manifest import Manifest
from corag.core.tools import Tools
from corag.core.types import Question
from eval.experiment.registry import MethodOptions, bind
from tests.fakes import ScriptedGenerator, WordRetriever
from tests.messages import raises_message
from tests.story import WORLD

QUESTIONS = [
    Question(f"q{number}", f"Who wrote book {number} of Mara Velden?", ("X",)) for number in range(40)
]


def reply(request):
    """Depend on the prompt alone, so that any order of work gives the same replies."""
    draw = random.Random(request.prompt.text).randrange(4)
    return [
        "Mara Velden was born in Tarn Hollow.",
        "Thus, nothing.",
        "So the answer is: Issel.",
        "The Glass Orchard is a book.",
    ][draw]


async def shuffled_pauses(request):
    for _ in range(random.Random(request.prompt.text + "!").randrange(5)):
        await asyncio.sleep(0)


async def run_all(folder, in_flight, questions=QUESTIONS, generator=None, settings=None, method="ircot"):
    generator = generator or ScriptedGenerator(reply, shuffled_pauses)
    retriever = WordRetriever(WORLD)
    with RunFolder(folder, settings or {"a": {"b": 1}}, {"start": 1}) as run:
        waiting = [question for question in questions if question.id not in run.answered_ids]

        async def answer_one(question):
            return await answer_question(
                question, bind(method, MethodOptions()), Tools(question, generator, retriever)
            )

        await answer_all(waiting, answer_one, run.append, in_flight=in_flight)
    return generator


async def test_resume_asks_only_what_is_missing_and_drops_a_torn_line(tmp_path):
    await run_all(tmp_path, 8, QUESTIONS[:10])
    traces = tmp_path / TRACES
    whole = traces.read_bytes()
    *finished, _ = read_rows(tmp_path)
    traces.write_bytes(whole[:-25])
    generator = await run_all(tmp_path, 8)
    assert not any(f"book {name[1:]} of" in prompt for prompt in generator.prompts for name in finished)
    rows = traces.read_text().splitlines()
    assert len(rows) == len(QUESTIONS) == len(read_rows(tmp_path))
    assert len(Manifest.read(tmp_path).starts) == 2


@pytest.mark.parametrize(
    ("line", "said"), [(b'{"id": "q0", ', "is damaged"), (b"[1]", "is not an answered question")]
)
async def test_a_damaged_line_in_the_middle_is_named(tmp_path, line, said):
    await run_all(tmp_path, 8, QUESTIONS[:3])
    traces = tmp_path / TRACES
    first, _, third = traces.read_bytes().splitlines()
    traces.write_bytes(b"\n".join([first, line, third, b""]))
    with pytest.raises(DataError, match=f"line 2 of .*{said}"):
        read_rows(tmp_path)
    with pytest.raises(DataError, match=f"line 2 of .*{said}"):
        await run_all(tmp_path, 8)


async def test_failed_questions_are_rows_and_are_tried_again(tmp_path):
    def failing(request):
        if "book 3 of" in request.prompt.text:
            raise RuntimeError("no luck")
        return "So the answer is: X."

    await run_all(tmp_path, 4, QUESTIONS[:6], ScriptedGenerator(failing))
    first, second, *_ = read_rows(tmp_path)["q3"].error.splitlines()
    assert first.startswith("RuntimeError: no luck (") and "test_runner.py, line " in first
    assert second.startswith("Traceback")
    again = await run_all(tmp_path, 4, QUESTIONS[:6])
    assert {row.error for row in read_rows(tmp_path).values()} == {""}
    assert all("book 3 of" in prompt for prompt in again.prompts)


async def test_a_failed_back_end_stops_the_run_and_keeps_what_was_finished(tmp_path):
    def dying(request):
        if "book 5 of" in request.prompt.text:
            raise BackendError("the engine is gone: start it again.")
        return "So the answer is: X."

    with raises_message(BackendError):
        await run_all(tmp_path, 1, QUESTIONS, ScriptedGenerator(dying))
    assert list(read_rows(tmp_path)) == [f"q{number}" for number in range(5)]


async def test_other_settings_are_refused_with_the_difference(tmp_path):
    await run_all(tmp_path, 8, QUESTIONS[:2])
    with raises_message(ConfigError):
        await run_all(tmp_path, 8, QUESTIONS[:2], settings={"a": {"b": 2}})


def test_two_writers_are_refused(tmp_path):
    with RunFolder(tmp_path, {}, {}), raises_message(ConfigError):
        RunFolder(tmp_path, {}, {})


def test_a_disk_without_room_is_a_sentence_and_leaves_whole_lines(tmp_path):
    """The operating system refuses to let the file grow past 3 kB, as a full disk does."""
    script = f"""
import resource
from pathlib import Path
from corag.core.runs.folder import RunFolder
from corag.core.runs.rows import Row
from corag.core.types import Answer, Question
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
with RunFolder(Path({str(tmp_path)!r}), {{}}, {{}}) as run:
    for number in range(100):
        run.append(Row(Question(str(number), "Who?"), Answer("X" * 300), (), {{}}, 0.0))
"""
    # -B: else a .pyc file, too, would be cut at 3 kB, which Python does not notice until it reads it.
    printed = subprocess.run(
        [sys.executable, "-B", "-c", script], capture_output=True, text=True, check=False
    ).stderr
    assert "answered questions are safe there: free some space and run the same command again" in printed
    text = (tmp_path / TRACES).read_text()
    assert text.endswith("\n") and 2 <= len(text.splitlines()) == len(read_rows(tmp_path)) < 10
