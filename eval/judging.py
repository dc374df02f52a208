"""A language model's verdicts on the answers of finished runs.

They lie in a folder of each run, one per judge, which is a run folder like any other: the same call goes on
where it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from corag.core.errors import ConfigError
from corag.core.protocols import Generator
from corag.core.runs.environment import environment
from corag.core.runs.failures import Failures
from corag.core.runs.folder import RunFolder, read_rows
from corag.core.runs.manifest import VERDICTS, Manifest
from corag.core.runs.provenance import Provenance
from corag.core.runs.rows import SavedRow
from corag.core.seeds import stable_hash
from corag.core.system.files import read_anew
from corag.core.types import Question
from corag.generation.config import ModelConfig
from eval.experiment.executor import AnswerTask, LocalExecutor
from eval.experiment.in_flight import questions_in_flight
from eval.experiment.loop import answer_into
from eval.scoring.judge import JudgeConfig, judge
from eval.scoring.rows import score_row
from eval.scoring.scorers import choose_scorer, scorer_title
from eval.statistics.intervals import Interval, bootstrap_mean, interval_record
from eval.tables.columns import percent
from eval.tables.runs import Run


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """What a judge says of one run.

    Attributes:
        right: the share of right answers over all ``n`` questions with gold answers; None if no verdict of
            those that were asked for can be read.
        em: their EM, beside it.
        failed: the run's own failed questions, which count as wrong without being asked about.
        judge_failed: questions that the judge failed at; they count as wrong.
        unreadable: verdicts that are neither yes nor no; they count as wrong.
        folder: where the verdicts are.
        scorer: what the EM is by, as a table names it.
        reasons: why the judge failed, and at how many questions.
    """

    right: Interval | None
    em: Interval | None
    n: int
    failed: int
    judge_failed: int
    unreadable: int
    folder: str
    scorer: str
    reasons: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        wrong = f"{self.failed} failed, {self.judge_failed} the judge failed at, {self.unreadable} unreadable"
        return f"judged right {percent(self.right)}, EM {percent(self.em)}, n = {self.n} ({wrong})"

    def to_json(self) -> dict[str, Any]:
        """Return the figures as a JSON object, shares as fractions."""
        counts = {name: value for name, value in asdict(self).items() if name not in ("right", "em")}
        return interval_record("right", self.right) | interval_record("em", self.em) | counts


async def judge_run(run: Run, config: JudgeConfig, generator: Generator, model: ModelConfig) -> JudgedRun:
    """Judge what has not been judged of one run and count the verdicts. ``model``: the generator's options.

    Raises :class:`ConfigError` if nothing can be judged.
    """
    read_anew()
    config.check_files()
    manifest, rows = run.manifest, rows_with_gold(run)
    # By question, answer and gold answers: a run that was made anew has other ones than were judged.
    answered = [(row.question, row.answer.text) for row in rows if row.answer]
    questions = [
        replace(each, id=f"{each.id} {stable_hash(' '.join([text, *each.answers]))}")
        for each, text in answered
    ]
    predictions = {each.id: text for each, (_, text) in zip(questions, answered, strict=True)}
    task = AnswerTask(partial(judge, config=config, predictions=predictions))
    folder, verdict_list = await verdict_rows(run, config, generator, model, task, questions)
    judgements = [each for each in verdict_list if each.question.id in predictions]
    scorer = choose_scorer(manifest.last.scorer, manifest.dataset)
    verdicts = [row.answer.stopped if row.answer else "failed" for row in judgements]
    right = [float(verdict == "yes") for verdict in verdicts] + [0.0] * (len(rows) - len(verdicts))
    is_empty = verdicts and not {"yes", "no"} & set(verdicts)
    return JudgedRun(
        right=None if is_empty else bootstrap_mean(right),
        em=bootstrap_mean([score_row(row, scorer, 1, searches=False).em for row in rows]),
        n=len(rows),
        failed=len(rows) - len(predictions),
        judge_failed=verdicts.count("failed"),
        unreadable=verdicts.count("unreadable"),
        folder=str(folder),
        scorer=scorer_title(scorer, [row.question for row in rows], manifest.last.aliases),
        reasons=Failures.count(row.error for row in judgements).reasons,
    )


async def verdict_rows(
    run: Run,
    config: JudgeConfig,
    generator: Generator,
    model: ModelConfig,
    task: AnswerTask,
    questions: Sequence[Question],
) -> tuple[Path, list[SavedRow]]:
    """Judge what has not been judged of a run; return the folder of the verdicts, and all of them as rows."""
    settings = judge_settings(run.manifest, config, generator.fingerprint)
    folder = run.folder / f"{VERDICTS}-{Provenance(settings).digest}"
    with RunFolder(folder, settings, environment() | {"model": asdict(model)}) as judging:
        title, executor = f"{VERDICTS} {run.folder.name}", LocalExecutor(generator, None)
        in_flight = questions_in_flight(0, model)
        await answer_into(judging, questions, task, executor, title=title, batch_size=in_flight)
    return folder, list(read_rows(folder).values())


def rows_with_gold(run: Run) -> list[SavedRow]:
    """Return a run's rows of questions with gold answers. Raises :class:`ConfigError` if there are none."""
    rows = [row for row in run.rows.values() if row.question.answers]
    if not rows:
        raise ConfigError(
            f"the run '{run.folder}' has no finished question with gold answers: there is nothing to judge."
        )
    return rows


def judge_settings(manifest: Manifest, config: JudgeConfig, model: str) -> dict[str, Any]:
    """Return what a judge's verdicts depend on: the judge, and the settings of the run that it judges."""
    return {
        "method": VERDICTS,
        "options": asdict(config),
        "prompts": [template.identity for template in config.templates()],
        "model": model,
        "questions": manifest.questions,
        "retriever": "",
        "judged": manifest.settings,
    }
