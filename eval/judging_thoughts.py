"""Factual errors in finished runs' chains of thought, by a language model's verdicts (IRCoT, section 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from corag.core.errors import ConfigError, DataError
from corag.core.protocols import Generator
from corag.core.runs.failures import Failures
from corag.core.runs.rows import SavedRow
from corag.core.sentences import split_sentences
from corag.core.tools import GenerateStep
from corag.core.types import Passage
from eval.experiment.executor import AnswerTask
from eval.experiment.opening import open_model_quietly
from eval.judging import JudgingConfig, verdict_rows
from eval.scoring.rows import PassageTexts
from eval.scoring.thoughts import ThoughtsToJudge, judge_thoughts
from eval.statistics.intervals import Interval, bootstrap_mean, interval_record
from eval.tables.passage_texts import passage_texts
from eval.tables.runs import Run


@dataclass(frozen=True, slots=True)
class Borne:
    """How statements stand to some paragraphs, over ``n`` questions whose chains could be judged by them.

    Attributes:
        faulty: the share of questions with at least one statement that is not borne out: the paper's count;
            None if no verdict can be read.
        statements: how many there are; ``out``: how many of them are borne out.
        unreadable: verdicts that are neither yes nor no; such a statement counts as not borne out.
    """

    faulty: Interval | None
    n: int
    statements: int
    out: int
    unreadable: int

    def to_json(self) -> dict[str, Any]:
        """Return the figures as a JSON object, shares as fractions."""
        counts = {name: value for name, value in asdict(self).items() if name != "faulty"}
        return interval_record("faulty", self.faulty) | counts


@dataclass(frozen=True, slots=True)
class JudgedChains:
    """What a judge says of one run's chains of thought.

    Attributes:
        by_gold: by the gold paragraphs.
        by_retrieved: by what the method had collected.
        without: the run's questions without a statement: they failed, or nothing was stated.
        judge_failed: questions that the judge failed at, which are left out of all shares.
        asked: questions that it was asked about.
        folder: where the verdicts are.
        reasons: why the judge failed, and at how many questions.
    """

    by_gold: Borne
    by_retrieved: Borne
    without: int
    judge_failed: int
    asked: int
    folder: str
    reasons: Mapping[str, int] = field(default_factory=dict)

    @property
    def failures(self) -> Failures:
        """The questions that the judge failed at, of those that it was asked."""
        return Failures(self.asked, self.reasons)

    @property
    def unreadable(self) -> int:
        """Verdicts that cannot be read, by both kinds of paragraphs."""
        return self.by_gold.unreadable + self.by_retrieved.unreadable

    @property
    def judged_nothing(self) -> bool:
        """Whether the judge failed at every question that it was asked, or replied what cannot be read."""
        if self.judge_failed == self.asked:
            return self.asked > 0
        return 0 < self.unreadable == self.by_gold.statements + self.by_retrieved.statements

    def to_json(self) -> dict[str, Any]:
        """Return the figures as a JSON object."""
        counts = {"without": self.without, "judge_failed": self.judge_failed, "asked": self.asked}
        shares = {"by_gold": self.by_gold.to_json(), "by_retrieved": self.by_retrieved.to_json()}
        return shares | counts | {"folder": self.folder, "reasons": dict(self.reasons)}


def read_reasoning(runs: Sequence[Run]) -> dict[str, dict[str, ThoughtsToJudge]]:
    """Return what there is to judge of some runs, by their names and by question id.

    A run that searches nothing has its gold paragraphs from the indexes of the others. Raises
    :class:`ConfigError` for a run without chains of thought, or if no index with their paragraphs is here.
    """
    texts = {run.name: _texts(run) for run in runs}
    lent = next((each for each in texts.values() if each is not None), None)
    if lent is None:
        raise ConfigError(
            f"the paragraphs of '{runs[0].folder}' are not at hand: thoughts are judged by the texts in the "
            "index that a run searched, a folder made by 'corag index'. Judge the runs where it lies."
        )
    return {run.name: _reasoning(run, texts[run.name] or lent) for run in runs}


def _texts(run: Run) -> PassageTexts | None:
    try:
        return passage_texts(run.folder, run.manifest.last) if run.manifest.searches else None
    except ConfigError:
        return None


def _reasoning(run: Run, texts: PassageTexts) -> dict[str, ThoughtsToJudge]:
    options = run.manifest.settings.get("options", {})
    by_reader = options.get("reader") == "cot"
    chains = {name: statements(row, by_reader=by_reader) for name, row in run.rows.items() if row.answer}
    if not any(chains.values()):
        raise ConfigError(
            f"the run '{run.folder}' has no chain of thought: its method states none. Judge runs of ircot, "
            "or of a method whose reader reasons (--one_step.reader cot, --closed_book.reader cot)."
        )
    return {
        name: ThoughtsToJudge(
            chain,
            _passages(run.rows[name].question.supporting, texts),
            _passages(run.rows[name].answer.passage_ids, texts) if run.manifest.searches else None,  # type: ignore[union-attr]
        )
        for name, chain in chains.items()
        if chain
    }


def statements(row: SavedRow, *, by_reader: bool) -> tuple[str, ...]:
    """Return what an answer's chain of thought states, a sentence each, without the answer's own sentence.

    ``by_reader``: the reader's reply is the chain, as in the paper's count; else IRCoT's thoughts are.
    """
    if by_reader:
        reader_steps = [
            step for step in row.steps if isinstance(step, GenerateStep) and step.role == "reader"
        ]
        sentences = list(split_sentences(reader_steps[-1].texts[0])) if reader_steps else []
    else:
        further = row.answer.further if row.answer else {}
        sentences = list(further.get("cot_sentences", ()))
    return tuple(each.strip() for each in sentences if each.strip() and "answer is" not in each.lower())


def _passages(ids: Sequence[str], texts: PassageTexts) -> tuple[Passage, ...] | None:
    """Return passages of an index; None if there are none, or it lacks one."""
    try:
        passage_texts = texts(ids)
    except DataError:
        return None
    return tuple(Passage(name, "", text) for name, text in zip(ids, passage_texts, strict=True)) or None


async def judge_all_chains(runs: Sequence[Run], config: JudgingConfig) -> dict[str, JudgedChains]:
    """Open the model, judge run after run, and close it. Return what it says of each, by name.

    Raises :class:`ConfigError` as :func:`read_reasoning` does, before minutes go into an engine.
    """
    config.judge.check_files()
    reasoning = read_reasoning(runs)
    generator = await open_model_quietly(config.model)
    try:
        return {run.name: await judge_chains(run, config, generator, reasoning[run.name]) for run in runs}
    finally:
        await generator.close()


async def judge_chains(
    run: Run, config: JudgingConfig, generator: Generator, reasoning: Mapping[str, ThoughtsToJudge]
) -> JudgedChains:
    """Judge what has not been judged of one run's chains and count the verdicts."""
    task = AnswerTask(partial(judge_thoughts, config=config.judge, reasoning=reasoning))
    questions = [run.rows[name].question for name in reasoning]
    folder, rows = await verdict_rows(run, config, generator, task, questions)
    verdicts = [row.answer.further for row in rows if row.answer]
    failures = Failures.count(row.error for row in rows)
    return JudgedChains(
        by_gold=_count([each["by_gold"] for each in verdicts]),
        by_retrieved=_count([each["by_retrieved"] for each in verdicts]),
        without=len(run.rows) - len(questions),
        judge_failed=len(rows) - len(verdicts),
        asked=len(questions),
        folder=str(folder),
        reasons=failures.reasons,
    )


def _count(verdicts: Sequence[Sequence[str]]) -> Borne:
    readable = [each for each in verdicts if each]
    flat = [verdict for each in readable for verdict in each]
    faulty = [float(any(verdict != "yes" for verdict in each)) for each in readable]
    return Borne(
        faulty=bootstrap_mean(faulty) if {"yes", "no"} & set(flat) else None,
        n=len(readable),
        statements=len(flat),
        out=flat.count("yes"),
        unreadable=flat.count("unreadable"),
    )
