"""Where tokens and seconds went: sums that must agree, intervals against a grid, and what is said when
something is not known.
"""

import asyncio
import json
import math
import time
from dataclasses import replace
from pathlib import Path

import pytest

from corag.chains.config import CoRAGConfig
from corag.cli.main import main
from corag.core.prompting.prompt import NOTHING_LEFT_OUT
from corag.core.protocols import GenerateRequest, ScoreRequest
from corag.core.runner import answer_all, answer_question
from corag.core.runs.folder import RunFolder, read_attempts, write_run
from corag.core.runs.manifest import Manifest, Start
from corag.core.runs.rows import Row
from corag.core.runs.shards import join, write_questions
from corag.core.tools import GenerateStep, ScoreStep, SearchStep, Step, Tools
from corag.core.types import Answer, Question, TokenUsage
from corag.generation.cached import CachedGenerator
from eval.experiment.registry import MethodOptions, bind
from eval.tables.ledger import add_up, read_ledger, spending_by_role
from tests.fakes import PROMPTS, ScriptedGenerator, WordRetriever, kind
from tests.story import WORLD

USAGE = TokenUsage(1, 100, 10, 60, 10)


def generated(
    started: float, seconds: float, role: str = "thought", usage: TokenUsage = USAGE
) -> GenerateStep:
    return GenerateStep(role, "", ("x",), ("stop",), usage, NOTHING_LEFT_OUT, seconds, "", started)


def row(name: str, begun: float, seconds: float, *steps: Step, error: str = "") -> Row:
    usage: dict[str, TokenUsage] = {}
    for step in steps:
        if not isinstance(step, SearchStep):
            usage[step.role] = usage.get(step.role, TokenUsage()) + step.usage
    answer = None if error else Answer("x")
    return Row(Question(name, "Who?"), answer, steps, usage, seconds, error, begun)


def ledger_printed(capsys: pytest.CaptureFixture[str], *runs: Path) -> tuple[str, dict]:
    assert main(["table", *map(str, runs), "--ledger", "--json"]) == 0
    printed = capsys.readouterr().out
    return printed, json.loads(printed.splitlines()[-1])["runs"]


def written(folder: Path, *lines: bytes) -> Path:
    folder.mkdir()
    write_run(folder, Manifest({"method": "ircot"}, [Start.from_json({})]), lines)
    return folder


def test_failed_attempts_and_remembered_calls_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    search, remembered = (
        SearchStep("q", "", 5, (), 4.0, 4.0),
        SearchStep("q", "", 5, (), 0.0, 2.0, remembered=True),
    )
    score = ScoreStep(
        "score", "", -1.0, 2, replace(USAGE, generated=2, computed_generated=2), NOTHING_LEFT_OUT, 2.0, 8.0
    )
    run = written(
        tmp_path / "run",
        row("a", 1000.0, 10.0, generated(0.0, 4.0), search, score).to_json(1000.0),
        row("b", 1002.0, 3.0, generated(0.0, 3.0), error="no luck").to_json(1000.0),
        row("b", 5000.0, 2.0, generated(0.0, 2.0, usage=USAGE.remembered()), remembered).to_json(5000.0),
    )
    printed, runs = ledger_printed(capsys, run)
    figures = runs["run"]
    assert (figures["questions"], figures["failed"], figures["retried"]) == (2, 0, 1)
    assert figures["wall_seconds"] == 12.0
    assert (
        figures["retried_tokens"] == 110 and "1 failed attempts that were tried again, 110 tokens" in printed
    )
    assert figures["waiting"]["search"] == {"calls": 2, "total": 4.0, "mean": 2.0, "p50": 2.0, "p95": 3.8}
    assert figures["remembered_searches"] == 1
    assert figures["roles"]["thought"] == {
        "calls": 2, "prompt": 200, "generated": 20, "in_cache": 40, "remembered": 110, "computed": 70,
        "share": round(70 / 132, 4),
    }  # fmt: skip


def test_chains_without_steps_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stepless = replace(row("b", 1000.0, 5.0, generated(0.0, 4.0)), steps=())
    folder = written(tmp_path / "chains", stepless.to_json(999.0))
    assert main(["table", str(folder), "--ledger"]) == 2
    assert "has no steps" in capsys.readouterr().err


async def answer_some(folder: Path, names: str) -> None:
    """Answer questions with CoRAG's best of N: several roles, scores, repeated sub-answers that are
    remembered.
    """

    def reply(request: GenerateRequest) -> str:
        hops = request.prompt.text.count("\n")
        sub_query = f"Where was Mara Velden after {hops} years?"
        return {"NEXT": sub_query, "ANSWER": "Mara Velden", "FINAL": "Mara"}[kind(request)]

    async def pause(request: GenerateRequest | ScoreRequest) -> None:
        await asyncio.sleep(0.002)

    generator = CachedGenerator(ScriptedGenerator(reply, pause))
    config = CoRAGConfig(strategy="best_of_n", chains=2, max_hops=2, **PROMPTS)
    method = bind("corag", MethodOptions(corag=config))
    with RunFolder(folder, {"method": "corag"}, {}) as run:

        async def answer_one(question: Question) -> Row:
            return await answer_question(question, method, Tools(question, generator, WordRetriever(WORLD)))

        waiting = [Question(name, f"Who is {name}?") for name in names if name not in run.answered_ids]
        await answer_all(waiting, answer_one, run.append, in_flight=3)


async def test_the_add_up_a_real_run_agrees_with_its_steps_and_rows(tmp_path: Path) -> None:
    await answer_some(tmp_path, "abc")
    await answer_some(tmp_path, "abcde")
    rows = list(read_attempts(tmp_path))
    ledger = add_up(rows)
    assert {"sub_query", "sub_answer", "score", "final"} <= set(ledger.roles)
    steps = [step for row in rows for step in row.steps if not isinstance(step, SearchStep)]
    spent = sum((step.usage for step in steps), TokenUsage())
    noted = sum((row.total_usage for row in rows), TokenUsage())
    assert ledger.total.usage == spent == noted
    assert math.isclose(sum(ledger.share(role) for role in ledger.roles), 1.0)
    assert ledger.total.remembered_tokens, "equal sub-answers of two chains are asked for once"
    for spending in ledger.roles.values():
        usage = spending.usage
        assert usage.total == spending.in_cache + spending.remembered_tokens + usage.computed
    assert ledger.question_seconds.p50 <= ledger.question_seconds.p95


def test_shards_that_ran_side_by_side_take_their_time_once(tmp_path: Path) -> None:
    for shard in range(3):
        with RunFolder(
            folder := tmp_path / f"run.shard-{shard + 1}-of-3", {}, {"shard": f"{shard + 1}/3"}
        ) as run:
            run.append(row(str(shard), opened := time.time(), 10.0))
        write_questions(folder, [str(shard)])
    assert 10 <= read_ledger(join(tmp_path / "run")).wall < 12 + time.time() - opened


def test_thoughts_have_a_line_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    thought = TokenUsage(0, 0, 300, 0, 300)
    step = replace(generated(0.0, 1.0, "reader"), thinking=thought, thoughts_cut=2)
    line = replace(row("a", 1000.0, 2.0, step), usage={"reader": USAGE, "thinking": thought})
    run = written(tmp_path / "run", line.to_json(1000.0))
    _, figures = ledger_printed(capsys, run)
    (ledger,) = figures.values()
    assert (ledger["roles"]["thinking"]["generated"], ledger["roles"]["thinking"]["in_cache"]) == (300, 0)
    assert ledger["total"]["generated"] == 310
    assert spending_by_role([step])["thinking"].usage == thought
