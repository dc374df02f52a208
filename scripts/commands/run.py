"""Answer a dataset with one or more methods and print the table.

    corag run --questions world/test.jsonl --method closed_book,one_step,ircot --retriever.index indexes/world-bm25
    corag run --config experiment.yaml --limit 100

Each method gets a run folder of its own. The same command again resumes; the last line printed is JSON. With
--shard 2/8 it answers every eighth question from the second on; 'corag join' joins the shards
(scripts/recipes/batch_inference.sh does it all).
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from corag.adaptive import purse_of
from core.errors import ConfigError
from core.files import file_digest
from core.protocols import Generator, Retriever
from core.runner import answer_question
from core.runs.environment import environment
from core.runs.folder import RunFolder, read_rows
from core.runs.manifest import Manifest
from core.runs.rows import Row
from core.runs.shards import Shard, note_questions
from core.seeds import stable_hash
from core.tools import Purse, Tools
from core.types import Question
from eval.experiment.backends import Setup, open_backends
from eval.experiment.conditions import conditions, corpus_of, pages_note
from eval.experiment.progress import answer_waiting
from eval.experiment.questions import QuestionFile
from eval.experiment.registry import bind
from eval.scoring.scorers import Scorer, chosen_scorer, scorer_title
from eval.tables.table import FURTHER, HEADINGS, Summary, Texts, cells, json_record, percent, summarise
from scripts.printing import wide_console

Questions = Sequence[Question]
NO_TEXTS: Mapping[str, Texts] = {}


@dataclass(frozen=True)
class Config(Setup, QuestionFile):
    """Options of 'corag run'.

    Attributes:
        scorer: how answers are scored; "auto" takes the dataset's own.
        recall_at: recall is measured over so many collected passages.
        batch_size: questions in flight at the same time.
        out: folder of the runs; "auto" is runs/NAME-OF-QUESTIONS with one folder per method and settings.
        keep_prompts: store every prompt in the traces.
    """

    scorer: str = "auto"
    recall_at: int = 15
    batch_size: int = 64
    out: str = "auto"
    keep_prompts: bool = False

    def __post_init__(self) -> None:
        Setup.__post_init__(self)
        QuestionFile.__post_init__(self)
        if self.batch_size < 1 or self.recall_at < 1:
            raise ConfigError(
                f"batch_size and recall_at must be at least 1, but they are {self.batch_size} and "
                f"{self.recall_at}."
            )


def main(config: Config) -> int:
    """Run the methods, print the table, return 0; 1 if every question of some method failed."""
    questions = config.load()
    chosen = chosen_scorer(config.scorer, config.dataset)
    runs = asyncio.run(answer_dataset(config, questions))
    return report(runs, questions, chosen, config.recall_at)


def report(runs: Mapping[str, Path], questions: Sequence[Question], chosen: Scorer, recall_at: int) -> int:
    """Print the table of some runs, then a line of JSON.

    Return 0, or 1 if every question of some method failed.
    """
    summaries = summarise_runs(runs, questions, chosen, recall_at)
    aliases = Manifest.read(next(iter(runs.values()))).last.aliases
    print_table(summaries, runs, scorer_title(chosen, questions, aliases))
    print(json.dumps(figures(summaries, runs, chosen)))
    return status(summaries)


def figures(summaries: Sequence[Summary], runs: Mapping[str, Path], chosen: Scorer) -> dict[str, Any]:
    """Return the table as the JSON object that is printed last."""
    by_run = {s.method: json_record(s) | {"folder": str(runs[s.method])} for s in summaries}
    return {"runs": by_run, "scorer": chosen.name}


def status(summaries: Sequence[Summary]) -> int:
    """Return 1 if every question of some method failed, else 0."""
    return 1 if any(summary.failed == summary.n for summary in summaries) else 0


async def answer_dataset(config: Config, questions: Questions) -> dict[str, Path]:
    """Answer every question with every method, resuming what there is.

    Return the run folder of each method.
    """
    async with open_backends(config) as (generator, retriever):
        return {
            name: await answer_run(config, name, questions, generator, retriever) for name in config.method
        }


async def answer_run(
    config: Config,
    method: str,
    questions: Questions,
    generator: Generator,
    retriever: Retriever | None,
    *,
    cell: str = "",
) -> Path:
    """Answer with one method what its run does not hold yet, and return the run's folder.

    ``cell``: its name in a sweep.
    """
    settings = run_settings(config, method, generator, retriever)
    folder = run_path(config, method, settings, cell)
    chosen = {
        "model": asdict(config.model),
        "retriever": asdict(config.retriever),
        "batch_size": config.batch_size,
        "questions": config.questions,
        "scorer": config.scorer,
        "recall_at": config.recall_at,
        "shard": config.shard,
        "corpus": corpus_of(config.retriever.index) if settings["retriever"] else "",
        "aliases": file_digest(config.aliases),
    }
    with RunFolder(folder, settings, environment() | chosen) as run:
        if config.shard:
            note_questions(folder, [question.id for question in questions])
        await answer_rest(config, method, questions, generator, retriever, run, cell or method)
    return folder


async def answer_rest(
    config: Config,
    name: str,
    questions: Questions,
    generator: Generator,
    retriever: Retriever | None,
    run: RunFolder,
    title: str,
) -> None:
    """Answer what the run does not hold yet."""
    method = bind(name, config)
    shared = name == "corag" and config.corag.strategy == "adaptive"
    purse = purse_of(read_rows(run.path), config.corag) if shared else Purse()

    async def answer_one(question: Question) -> Row:
        tools = Tools(
            question,
            generator,
            retriever,
            seed=config.seed,
            budget=config.budget,
            keep_prompts=config.keep_prompts,
            purse=purse,
        )
        return await answer_question(question, method, tools)

    await answer_waiting(run, questions, answer_one, title, in_flight=config.batch_size)


def run_settings(
    config: Config, name: str, generator: Generator, retriever: Retriever | None
) -> dict[str, Any]:
    """Everything that the method's results depend on; ``limit`` and ``batch_size`` are not among it."""
    return method_settings(config, name) | {
        "model": generator.fingerprint,
        "retriever": retriever.fingerprint if retriever is not None and config.entry(name).searches else "",
    }


def method_settings(config: Config, name: str) -> dict[str, Any]:
    """What the method's results depend on besides model and index: known before either is opened."""
    options, entry = config.of(name), config.entry(name)
    own = {"code": entry.code} if entry.code else {}
    return own | {
        "method": name,
        "options": asdict(options),
        "prompts": [template.identity for template in options.templates()],
        "demonstrations": {given: file_digest(file) for given, file in options.files().items()},
        "questions": config.source,
        "seed": config.seed,
        "budget": config.budget,
    }


def run_path(config: Config, name: str, settings: Mapping[str, Any], cell: str = "") -> Path:
    """Return the folder of a method's run.

    The automatic name changes with the settings, so it is never refused.
    """
    if config.out != "auto":
        run = Path(config.out) / (re.sub(r"[^\w.=-]+", "-", cell) or name)
    else:
        stem = Path(config.questions).name.split(".")[0]
        digest = stable_hash(json.dumps(settings, sort_keys=True, default=str))[:8]
        run = Path("runs") / stem / f"{name}-{digest}"
    return Shard.parse(config.shard).folder(run) if config.shard else run


def summarise_runs(
    runs: Mapping[str, Path],
    questions: Sequence[Question],
    chosen: Scorer,
    recall_at: int,
    texts: Mapping[str, Texts] = NO_TEXTS,
) -> list[Summary]:
    """Read the runs back from disk and summarise the given questions of each.

    ``texts``: passages by id, for some runs.
    """
    asked = {question.id: question for question in questions}
    summaries = []
    for name, folder in runs.items():
        found = read_rows(folder)
        searches = Manifest.read(folder).searches
        # Gold answers come from the question file: aliases may have been added to it since.
        rows = [replace(found[key], question=question) for key, question in asked.items() if key in found]
        summaries.append(
            summarise(name, rows, chosen, recall_at=recall_at, searches=searches, texts=texts.get(name))
        )
    return summaries


def print_table(summaries: Sequence[Summary], runs: Mapping[str, Path], scoring: str) -> None:
    """Print the table with what a reader must know to trust it, which is read from the manifests."""
    console = wide_console()
    table = Table(caption_justify="left")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == "method" else "right", no_wrap=True)
    for summary in summaries:
        table.add_row(*cells(summary))
    console.print(table)
    print_further(console, summaries)
    manifests = {name: Manifest.read(folder) for name, folder in runs.items()}
    shared, own = conditions(manifests)
    recall_at = summaries[0].recall_at
    console.print(
        f"EM, F1 and recall@{recall_at} in percent with 95% bootstrap intervals (exact where all score "
        f"alike). Scorer: {scoring}."
    )
    if note := pages_note(manifests[each.method] for each in summaries if "r_precision" in each.further):
        console.print(note, soft_wrap=True, markup=False)
    for line in shared:
        console.print(line, soft_wrap=True, markup=False)
    for summary in summaries:
        console.print(
            f"{summary.method}: {runs[summary.method]} ({own[summary.method]})", soft_wrap=True, markup=False
        )
        if summary.unscored:
            console.print(
                f"{summary.method}: {summary.unscored} questions have no gold answers: not scored.",
                markup=False,
            )
        for measure, n in summary.measured_on_fewer.items():
            title = FURTHER.get(measure, measure)
            console.print(
                f"{summary.method}: {title} is of {n} of {summary.n} questions, which can be measured by it."
            )
        if summary.failed:
            console.print(
                f"{summary.method}: {summary.failed} failed, first: {summary.first_error}", markup=False
            )


def print_further(console: Console, summaries: Sequence[Summary]) -> None:
    """Print the measures that this scorer or an option adds, if any."""
    names = list(dict.fromkeys(name for summary in summaries for name in summary.further))
    if names:
        table = Table("method")
        for name in names:
            table.add_column(FURTHER[name], justify="right", no_wrap=True)
        for summary in summaries:
            table.add_row(summary.method, *(percent(summary.further.get(name)) for name in names))
        console.print(table)
