"""'corag plan' against what the same run then took, and dry plans, which ask no model."""

import json
import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from corag.cli.main import main
from corag.core.runs.folder import TRACES, read_rows

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
        assert main(["plan", "--questions", "asked.jsonl", "--json", *words]) == 0
    return [run["rest"] for run in json.loads(printed.getvalue().splitlines()[-1])["runs"]]


def test_what_a_plan_says_is_what_the_run_then_takes(capsys: pytest.CaptureFixture[str]) -> None:
    """Questions, tokens and bytes within a factor of 1.5; seconds are the machine's (see test_estimate)."""
    own = ["--model", "own.py:llm", "--index", "own.py:search", "--batch_size", "8", "--out", "out", *CORAG]
    (planned,) = plans(*own, "--pilot", "20")
    pilot = read_rows(Path("out/corag"))
    before = (Path("out/corag") / TRACES).stat().st_size
    capsys.readouterr()
    assert main(["run", "--questions", "asked.jsonl", *own]) == 0
    rest = [row for key, row in read_rows(Path("out/corag")).items() if key not in pilot]
    assert planned["questions"] == len(rest) == 40
    assert set(planned) == {
        "questions", "judged_by", "tokens", "computed", "searches", "seconds", "bytes", "error",
    }, "programs read these keys"  # fmt: skip
    happened = {
        "tokens": sum(row.total_usage.total for row in rest),
        "searches": sum(row.searches for row in rest),
        "bytes": (Path("out/corag") / TRACES).stat().st_size - before,
    }
    for what, value in happened.items():
        assert 1 / 1.5 < value / planned[what] < 1.5, what
    told = capsys.readouterr().err
    (tokens,) = re.findall(r"corag: it took .* and ([\d.]+) times what was expected", told)
    assert 1 / 1.5 < float(tokens) < 1.5, told


def test_a_dry_plan_asks_no_model_and_leaves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """The default model's tokenizer counts; of 60 questions each has two hops and an answer."""
    (dry,) = plans("--dry", "true", "--index", "own.py:search", "--out", "out", *CORAG)
    assert (dry["questions"], dry["searches"], dry["seconds"]) == (60, 180, None)
    hop, prompts = 32 + 24, 5
    assert dry["tokens"] > 60 * (2 * hop + 16 + prompts * 40)
    assert not Path("out").exists()


def test_a_dry_plan_is_an_estimate_from_above() -> None:
    own = ["--index", "own.py:search", "--out", "out", *CORAG]
    assert main(["run", "--questions", "asked.jsonl", "--model", "own.py:llm", "--limit", "12", *own]) == 0
    rows = read_rows(Path("out/corag")).values()
    asked = sum(row.total_usage.total for row in rows) / 12
    (dry,) = plans("--dry", "true", *own)
    assert asked < dry["tokens"] / 60 < 3 * asked


def test_a_dry_plan_says_when_a_run_takes_more(capsys: pytest.CaptureFixture[str]) -> None:
    """A model that repeats a sub-query is asked again, so a plan without it is no bound."""
    repeating = OWN.replace('"word " * drawn(prompt + "!", 1, max_tokens)', '"word " * max_tokens')
    Path("own.py").write_text(repeating)
    own = ["--index", "own.py:search", "--out", "out", *CORAG]
    assert main(["run", "--questions", "asked.jsonl", "--model", "own.py:llm", "--limit", "3", *own]) == 0
    calls = [row.total_usage.calls for row in read_rows(Path("out/corag")).values()]
    assert min(calls) > 2 + 2 + 1, "more than two hops and an answer take"
    capsys.readouterr()
    assert main(["plan", "--questions", "asked.jsonl", "--dry", "true", *own]) == 0
    told = capsys.readouterr().out
    assert "Estimate from above: " in told and "repeats sub-queries" in told and "At most" not in told


def test_a_dry_plan_of_a_sweep_has_its_cells() -> None:
    grid = "{corag.strategy: best_of_n, corag.N: [2, 4], corag.L: 1}"
    two, four = plans("--grid", grid, "--dry", "true", "--index", "own.py:search", "--out", "out", *CORAG)
    assert two["tokens"] < four["tokens"] < 3 * two["tokens"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--method", "react"], "what react asks for depends on what the model replies"),
        (["--method", "one_step", "--model", "own.py:llm"], "a dry plan counts with the model's tokenizer"),
    ],
)
def test_what_no_dry_plan_can_tell_is_said(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["plan", "--questions", "asked.jsonl", "--dry", "true", "--index", "own.py:search", *words]
    assert main(command) == 2
    assert message in capsys.readouterr().err
