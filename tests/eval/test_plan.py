"""'corag run --pilot' against what the same run then took."""

import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from corag.cli.main import main
from corag.core.runs.folder import read_rows

# A model and a search of the user's own: waits and lengths differ from prompt to prompt.
OWN = """
import asyncio, zlib

def drawn(text, low, high):
    return low + zlib.crc32(text.encode()) % (high - low)

async def llm(prompt, max_tokens):
    await asyncio.sleep(drawn(prompt, 40, 120) / 1000)
    return "word " * drawn(prompt + "!", 1, max_tokens)

def search(query, k):
    return [f"Passage {number} of {query}. " + "More. " * drawn(query, 5, 60) for number in range(k)]
"""
CORAG = ["--method", "corag", "--corag.max_hops", "2", "--corag.preset", "small_model"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)
    lines = [{"id": f"{n}", "question": f"Who is the {n}th?", "answers": ["x"]} for n in range(60)]
    Path("asked.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def plans(*words: str) -> list[dict[str, int]]:
    """Return what a plan says of the rest of each run."""
    with redirect_stdout(printed := StringIO()):
        assert main(["run", "--questions", "asked.jsonl", "--json", *words]) == 0
    return [run["rest"] for run in json.loads(printed.getvalue().splitlines()[-1])["runs"]]


def test_what_a_plan_says_is_what_the_run_then_takes() -> None:
    """Questions, and tokens within a factor of 1.5; seconds are the machine's (see test_estimate)."""
    own = ["--model", "own.py:llm", "--index", "own.py:search", "--batch_size", "8", "--out", "out", *CORAG]
    (planned,) = plans(*own, "--pilot", "20")
    pilot = read_rows(Path("out/corag"))
    assert main(["run", "--questions", "asked.jsonl", *own]) == 0
    rest = [row for key, row in read_rows(Path("out/corag")).items() if key not in pilot]
    assert planned["questions"] == len(rest) == 40
    assert set(planned) == {
        "questions", "tokens", "computed", "seconds", "error",
    }, "programs read these keys"  # fmt: skip
    happened = sum(row.total_usage.total for row in rest)
    assert 1 / 1.5 < happened / planned["tokens"] < 1.5
