"""Many questions, from Python: ``run`` answers them into run folders, and hands back the results."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, cast

from core.errors import ConfigError
from core.method import MethodConfig
from core.runs.folder import read_rows
from core.runs.manifest import Manifest
from core.runs.rows import SavedRow
from core.types import Question
from eval.experiment.ask import Function, entry_of, options_of
from eval.experiment.background import background
from eval.experiment.crews import crew_of, options_of_index, options_of_model, refuse_sharing
from eval.experiment.given import Questions, question_file, with_keywords
from eval.experiment.opened import Index, Model
from eval.experiment.own_methods import Entry
from eval.experiment.registry import METHODS, with_method
from eval.experiment.run import RunConfig, answer_with, run_path
from eval.report.page import write_report
from eval.scoring.rows import measures_of
from eval.scoring.scorers import Scorer
from eval.tables.printing import print_table_parts, printed
from eval.tables.results import ResultsTable, TableView, table_of_runs
from eval.tables.runs import common_questions, rows_on
from generation.config import ModelConfig
from retrieval.config import RetrieverConfig

AnyMethod = Function | str
Methods = AnyMethod | Sequence[AnyMethod] | Mapping[str, AnyMethod | tuple[AnyMethod, MethodConfig]]
Config = TypeVar("Config", bound=RunConfig)


class Table:
    """A results table.

    ``print`` shows it as 'corag table' does, with all that must be known beside the figures.
    """

    def __init__(self, table: ResultsTable) -> None:
        self.figures = table

    def __str__(self) -> str:
        return printed(lambda console: print_table_parts(self.figures, console))

    def __repr__(self) -> str:
        return f"<Table of {', '.join(self.figures.runs)}: print it, or see .figures>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def to_json(self) -> dict[str, Any]:
        """Return the figures as a JSON object: fractions, intervals as [low, high]."""
        return self.figures.to_json()


class Results:
    """Finished runs on the same questions, read from their folders: those just made, or any that you name.

    Args:
        runs: run folders by name.
        questions: those to keep to, by whose gold answers all is scored. Without, they are the runs' own.
            What :func:`run` returns keeps to the questions that it was asked.

    Example::

        results = Results({"one_step": "runs/mine/one_step", "ircot": "runs/mine/ircot"})
        print(results.compare(baseline="one_step"))
    """

    def __init__(self, runs: Mapping[str, str | Path], questions: Sequence[Question] | None = None) -> None:
        if not isinstance(cast("object", runs), Mapping):
            raise ConfigError(
                f"Results takes run folders by name, but was given a {type(runs).__name__}: write "
                'Results({"mine": "runs/mine"}).'
            )
        self.runs = {name: Path(folder) for name, folder in runs.items()}
        self._questions = questions

    def table(self, **view: Any) -> Table:
        """Return the table.

        ``view``: options of :class:`eval.tables.results.TableView`, such as ``min_hops=2``.

        Raises:
            ConfigError: for an unknown option, or runs that do not go into one table.
        """
        known = [each.name for each in fields(TableView)]
        if unknown := [name for name in view if name not in known]:
            raise ConfigError(f"a table has no option '{unknown[0]}': choose from {', '.join(known)}.")
        return Table(table_of_runs(self.runs, TableView(**view), self._questions))

    def compare(self, baseline: str, **view: Any) -> Table:
        """Return the table with paired tests of every run against the ``baseline``, by its name."""
        return self.table(baseline=baseline, **view)

    def rows(self, name: str) -> Mapping[str, SavedRow]:
        """Return one run's rows by question id."""
        if name not in self.runs:
            raise ConfigError(f"there is no run '{name}' among these: {', '.join(self.runs)}.")
        return rows_on(read_rows(self.runs[name]), self._questions)

    def to_pandas(self) -> Any:
        """Return a data frame with a line per run and question: answers, scores (fractions), tokens.

        It has the questions of :meth:`table`: those that every run has.
        """
        import pandas

        table = self.table().figures
        common = common_questions({name: self.rows(name) for name in self.runs})
        return pandas.DataFrame(
            [
                record
                for name in self.runs
                for record in self._records(name, common, table.scorer, table.recall_at)
            ]
        )

    def _records(
        self, name: str, questions: Sequence[Question], scorer: Scorer, recall_at: int
    ) -> list[dict[str, Any]]:
        rows, searches = rows_on(self.rows(name), questions), Manifest.read(self.runs[name]).searches
        measured = measures_of(rows.values(), scorer, recall_at, searches=searches)
        return [
            {
                "run": name,
                "id": key,
                "question": row.question.text,
                "answer": row.text,
                "gold": list(row.question.answers),
                **{measure: values.get(key) for measure, values in measured.items()},
                "tokens": row.total_usage.total,
                "computed_tokens": row.total_usage.computed,
                "seconds": row.seconds,
                "error": row.error.splitlines()[0] if row.error else "",
                "passage_ids": list(row.passage_ids),
            }
            for key, row in rows.items()
        ]

    def report(self, out: str | Path = "report.html", index: Index | None = None, baseline: str = "") -> Path:
        """Write one HTML file of the runs and return its path.

        With an ``index`` it has the passages' texts. It opens with the ``baseline``, by name, or the first
        run. It shows all that the run folders hold.
        """
        return report(self.runs, out, index, baseline)

    def __str__(self) -> str:
        return str(self.table())

    def __repr__(self) -> str:
        return f"<Results of {', '.join(self.runs)}: print them, or call .table(), .compare(), .to_pandas()>"

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def report(
    runs: Mapping[str, str | Path],
    out: str | Path = "report.html",
    index: Index | None = None,
    baseline: str = "",
) -> Path:
    """Write one HTML file of finished runs: table, tests, curve and every trace.

    Args:
        runs: run folders by name.
        out: the file; one of that name is replaced.
        index: the index that was searched, for the passages' texts.
        baseline: the run, by its name, that the page opens with as the one to test against; "" for the first.

    Raises:
        ConfigError: for runs of different questions, or an index that has none of their passages.
    """
    return background().run(_report(runs, Path(out), index, baseline))


async def areport(
    runs: Mapping[str, str | Path],
    out: str | Path = "report.html",
    index: Index | None = None,
    baseline: str = "",
) -> Path:
    """Do what :func:`report` does, from a coroutine."""
    return await background().await_(_report(runs, Path(out), index, baseline))


async def _report(runs: Mapping[str, str | Path], out: Path, index: Index | None, baseline: str) -> Path:
    folders = {name: Path(folder) for name, folder in runs.items()}
    await write_report(folders, out, index.engine if index is not None else None, baseline=baseline)
    return out


def run(
    questions: Questions,
    methods: Methods,
    model: Model | ModelConfig,
    index: Index | RetrieverConfig | None = None,
    *,
    out: str | Path,
    **options: Any,
) -> Results:
    """Answer questions with some methods, each into a run folder of its own. The same call again resumes.

    Args:
        questions: a question file, or questions: :class:`Question` objects or records as in a file.
        methods: methods by function or name; or a mapping of names to a function or to (function, its
            config).
        model: what :func:`open_model` returned; for workers, its options do.
        index: what :func:`open_index` returned; None if no method searches. For workers, its options do.
        out: folder of the run folders.
        options: further ones of :class:`eval.experiment.run.RunConfig`, such as ``dataset="hotpotqa"``,
            ``limit=100``, ``budget=8000``, ``batch_size=64``, ``recall_at=15``, ``seed=1``; or a method's,
            such as ``corag=CoRAGConfig(chains=4)``; or ``workers=ray_workers(count=4)``, each of which opens
            a model and searches an index with these options, whatever is open here.

    Raises:
        ConfigError: for settings that cannot be, or a folder that holds a run with other settings.
        BackendError: if the engine or the index is gone. A question that fails is a row with its error.
    """
    return background().run(_run(questions, methods, model, index, Path(out), options))


async def arun(
    questions: Questions,
    methods: Methods,
    model: Model | ModelConfig,
    index: Index | RetrieverConfig | None = None,
    *,
    out: str | Path,
    **options: Any,
) -> Results:
    """Do what :func:`run` does, from a coroutine."""
    return await background().await_(_run(questions, methods, model, index, Path(out), options))


async def _run(
    questions: Questions,
    methods: Methods,
    model: Model | ModelConfig,
    index: Index | RetrieverConfig | None,
    out: Path,
    options: dict[str, Any],
) -> Results:
    base = base_of(RunConfig, questions, model, index, out, options)
    chosen = {}
    for name, (method, config) in named(methods).items():  # all are checked before the first answers
        short, entry = entry_of(method)
        if config is None and METHODS.get(short) is entry:
            config = base.of(short)
        chosen[name] = with_section(base, short, entry, options_of(short, entry, config, index))
    check_folders(chosen)
    if base.workers.wanted:
        for each in chosen.values():
            refuse_sharing(each.method[0], each.of(each.method[0]))
    asked = base.load()
    made = {}
    async with crew_of(base.workers, base.batch_size, model, index) as crew:
        for name, each in chosen.items():
            made[name] = await answer_with(each, each.method[0], asked, crew, cell=name)
    return Results(made, asked)


def check_folders(chosen: Mapping[str, RunConfig]) -> None:
    """Raise :class:`ConfigError` if two runs would share a folder, which is called after the run."""
    names: dict[Path, str] = {}
    for name, config in chosen.items():
        if config.out == "auto":  # folders are then called after their settings
            continue
        folder = run_path(config, config.method[0], {}, name)
        if folder in names:
            raise ConfigError(
                f"the runs '{names[folder]}' and '{name}' would share the folder '{folder}': call one "
                "otherwise."
            )
        names[folder] = name


def base_of(
    kind: type[Config],
    questions: Questions,
    model: Model | ModelConfig,
    index: Index | RetrieverConfig | None,
    out: Path,
    options: Mapping[str, Any],
) -> Config:
    """Return the options that runs have in common.

    Raises:
        ConfigError: for options that cannot be, or questions that are others than those in the folder.
    """
    if given := [name for name in ("method", "model", "retriever") if name in options]:
        raise ConfigError(
            f"{given[0]} is no option here: it follows from the methods, the model and the index."
        )
    file, scoring = question_file(questions, out, options.get("dataset", ""))
    scoring = {name: value for name, value in scoring.items() if name == "dataset" or name not in options}
    searched = options_of_index(index) if index is not None else RetrieverConfig()
    base = kind(questions=file, out=str(out), model=options_of_model(model), retriever=searched)
    # First the dataset as it was named, for what it implies; then how such questions are read and scored.
    return with_keywords(with_keywords(base, options), scoring)


def with_section(base: RunConfig, method: str, entry: Entry, config: MethodConfig) -> RunConfig:
    """Return the options of a run of one method, with this method's own."""
    kind: Any = with_method(type(base), method, entry)
    stated = {each.name: getattr(base, each.name) for each in fields(base)}
    chosen: RunConfig = kind(**stated | {method: config, "method": [method]})
    return chosen


def named(methods: Methods) -> dict[str, tuple[AnyMethod, MethodConfig | None]]:
    """Return every method with its options by the name of its run.

    Raises:
        ConfigError: for two runs of one name, or none.
    """
    found: dict[str, tuple[AnyMethod, MethodConfig | None]] = {}
    if isinstance(methods, Mapping):
        pairs = {name: each if isinstance(each, tuple) else (each, None) for name, each in methods.items()}
        found.update(pairs)
    else:
        every = [methods] if isinstance(methods, str) or callable(methods) else list(methods)
        if any(isinstance(each, tuple | MethodConfig) for each in every):
            raise ConfigError(
                "a method came with options, but without a name for its run: give a mapping of names to "
                '(method, config), such as {"mine": (corag, CoRAGConfig(max_hops=2))}.'
            )
        found.update({entry_of(method)[0]: (method, None) for method in every})
        if len(found) < len(every):
            raise ConfigError(
                "a method is named twice: give a mapping of names to (method, config), such as "
                '{"two hops": (corag, CoRAGConfig(max_hops=2)), ...}.'
            )
    if not found:
        raise ConfigError("no method was given: give one or more, such as [corag, ircot].")
    return found
