"""Let a language model say which answers of some runs are right.

    corag judge runs/test/one_step-1a2b3c4d runs/test/corag-5e6f7a8b --model.name meta-llama/Llama-3.1-8B-Instruct

The verdicts lie in a folder of each run, one per judge, so the same command again goes on where it was. A
question that failed counts as wrong without being asked about; so does a verdict that cannot be read, and the
table says how many there were.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table

from core.errors import ConfigError
from core.protocols import Generator
from core.runner import answer_question
from core.runs.environment import environment
from core.runs.folder import RunFolder, read_rows
from core.runs.manifest import Manifest
from core.runs.rows import Row, SavedRow
from core.seeds import stable_hash
from core.tools import Tools
from core.types import Question
from eval.experiment.progress import answer_waiting
from eval.scoring.judge import JUDGE, JudgeConfig, judge
from eval.scoring.rows import score_row
from eval.scoring.scorers import chosen_scorer, scorer_title
from eval.statistics.intervals import Interval, bootstrap_mean, interval_record
from eval.tables.conditions import conditions_record
from eval.tables.runs import Runs, manifest_of_answers, names_of
from eval.tables.table import percent
from generation.config import ModelConfig
from generation.open import open_generator
from scripts.printing import wide_console


@dataclass(frozen=True)
class Config(Runs):
    """Options of 'corag judge'.

    Attributes:
        judge: the judge's prompt.
        model: the language model that judges, and its engine.
        batch_size: questions in flight at the same time.
    """

    USAGE = "corag judge RUN RUN ..."

    judge: JudgeConfig = field(default_factory=JudgeConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    batch_size: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, but it is {self.batch_size}.")


@dataclass(frozen=True, slots=True)
class Judged:
    """What a judge says of one run: the share of right answers over all ``n`` questions with gold answers,
    and beside it their EM.

    ``unreadable`` verdicts and questions that the ``judge_failed`` at count as wrong, as do the run's own
    ``failed`` questions. ``scorer``: what the EM is by, as a table names it.
    """

    right: Interval | None
    em: Interval | None
    n: int
    failed: int
    judge_failed: int
    unreadable: int
    folder: str
    scorer: str


def main(config: Config) -> int:
    """Judge the runs, print a table and a line of JSON.

    Return 0, or 1 if the judge failed at every question of some run.
    """
    folders = [Path(run) for run in config.runs]
    config.judge.check_files()  # and the runs, before minutes go into an engine
    runs = dict(zip(names_of(folders), folders, strict=True))
    manifests = {name: manifest_of_answers(folder) for name, folder in runs.items()}
    for folder in folders:
        rows_with_gold(folder)
    judged = asyncio.run(judge_runs(runs, config))
    (prompt,) = config.judge.templates()
    known = conditions_record(manifests)
    print_judged(judged, f"{config.model.name}, prompt {prompt.identity}", known)
    records = {name: record_of(one) for name, one in judged.items()}
    print(json.dumps({"judged": records, "prompt": prompt.identity, "conditions": known}))
    return (
        1
        if any(one.judge_failed and one.judge_failed + one.failed == one.n for one in judged.values())
        else 0
    )


async def judge_runs(runs: Mapping[str, Path], config: Config) -> dict[str, Judged]:
    """Open the model, judge run after run, and close it."""
    generator = await open_generator(config.model)
    try:
        return {name: await judge_run(run, config, generator) for name, run in runs.items()}
    finally:
        await generator.close()


async def judge_run(run: Path, config: Config, generator: Generator) -> Judged:
    """Judge what has not been judged of one run and count the verdicts.

    Raises :class:`ConfigError` if nothing can be judged.
    """
    manifest = manifest_of_answers(run)
    rows = rows_with_gold(run)
    predictions = {row.question.id: row.answer.text for row in rows if row.answer}
    method = partial(judge, config=config.judge, predictions=predictions)

    async def answer_one(question: Question) -> Row:
        return await answer_question(question, method, Tools(question, generator))

    settings = judge_settings(manifest, config.judge, generator.fingerprint)
    folder = run / f"{JUDGE}-{stable_hash(json.dumps(settings, sort_keys=True))[:8]}"
    questions = [row.question for row in rows if row.answer]
    with RunFolder(folder, settings, environment() | {"model": asdict(config.model)}) as judging:
        await answer_waiting(
            judging, questions, answer_one, f"{JUDGE} {run.name}", in_flight=config.batch_size
        )
    chosen = chosen_scorer(manifest.last.scorer, manifest.dataset)
    ems = [score_row(row, chosen, 1, searches=False).em for row in rows]
    title = scorer_title(chosen, [row.question for row in rows], manifest.last.aliases)
    return count_verdicts(folder, len(rows), len(predictions), bootstrap_mean(ems), title)


def rows_with_gold(run: Path) -> list[SavedRow]:
    """Return a run's rows of questions with gold answers. Raises :class:`ConfigError` if there are none."""
    rows = [row for row in read_rows(run).values() if row.question.answers]
    if not rows:
        raise ConfigError(
            f"the run '{run}' has no finished question with gold answers: there is nothing to judge."
        )
    return rows


def judge_settings(manifest: Manifest, config: JudgeConfig, model: str) -> dict[str, Any]:
    """Return what a judge's verdicts depend on: the judge, and the settings of the run that it judges."""
    return {
        "method": JUDGE,
        "options": asdict(config),
        "prompts": [template.identity for template in config.templates()],
        "model": model,
        "questions": manifest.questions,
        "retriever": "",
        "judged": manifest.settings,
    }


def count_verdicts(folder: Path, n: int, answered: int, em: Interval | None, scorer: str) -> Judged:
    """Count the verdicts in a judge's folder, over n questions of which so many were answered, to go beside
    their EM.
    """
    verdicts = [row.answer.stopped if row.answer else "failed" for row in read_rows(folder).values()]
    right = [float(verdict == "yes") for verdict in verdicts] + [0.0] * (n - len(verdicts))
    return Judged(
        right=bootstrap_mean(right),
        em=em,
        n=n,
        failed=n - answered,
        judge_failed=verdicts.count("failed"),
        unreadable=verdicts.count("unreadable"),
        folder=str(folder),
        scorer=scorer,
    )


def print_judged(judged: Mapping[str, Judged], who: str, known: Mapping[str, Any]) -> None:
    """Print a line per run, then what the EM is by, and what the runs were made with
    (:func:`conditions_record`).
    """
    table = Table("method")
    for heading in ("n", "judged right", "EM", "failed", "judge failed", "unreadable"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, one in judged.items():
        counts = str(one.failed), str(one.judge_failed), str(one.unreadable)
        table.add_row(name, str(one.n), percent(one.right), percent(one.em), *counts)
    console = wide_console()
    console.print(table)
    console.print(
        f"Percent with 95% bootstrap intervals; what failed or cannot be read counts as wrong. Judge: {who}. "
        "A judge is a model: look at some of its verdicts before you believe it.",
        soft_wrap=True,
        markup=False,
    )
    scorers = {one.scorer for one in judged.values()}
    shared = [f"EM by the scorer {scorer}." for scorer in scorers] if len(scorers) == 1 else []
    for line in [*shared, *known["shared"]]:
        console.print(line, soft_wrap=True, markup=False)
    for name, one in judged.items():
        scored = "" if shared else f"EM by the scorer {one.scorer}; "
        console.print(f"{name}: {scored}{known['own'][name]}", soft_wrap=True, markup=False)


def record_of(judged: Judged) -> dict[str, Any]:
    """Write what a judge says as JSON, shares as fractions."""
    counts = {name: value for name, value in asdict(judged).items() if name not in ("right", "em")}
    return interval_record("right", judged.right) | interval_record("em", judged.em) | counts
