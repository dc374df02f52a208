"""Many questions, from Python: ``run`` answers them into run folders, and hands back the results."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from core.errors import ConfigError
from core.files import write_atomically
from core.method import MethodConfig
from core.runs.folder import read_rows
from core.runs.manifest import Manifest
from core.runs.rows import SavedRow
from core.types import Question
from eval.datasets.plain import question_record
from eval.experiment.ask import Function, entry_of
from eval.experiment.background import background
from eval.experiment.opened import Index, Model
from eval.experiment.registry import with_method
from eval.experiment.run import RunConfig, answer_run
from eval.report.page import write_report
from eval.scoring.rows import measures_of
from eval.scoring.scorers import Scorer
from eval.tables.printing import print_table_parts, printed
from eval.tables.results import ResultsTable, TableView, table_of_runs
from retrieval.config import RetrieverConfig

Methods = Sequence[Function | str] | Mapping[str, Function | tuple[Function, MethodConfig]]
Questions = str | Path | Sequence[Question] | Sequence[Mapping[str, Any]]


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

    Example::

        results = Results({"one_step": "runs/mine/one_step", "ircot": "runs/mine/ircot"})
        print(results.compare(baseline="one_step"))
    """

    def __init__(self, runs: Mapping[str, str | Path]) -> None:
        self.runs = {name: Path(folder) for name, folder in runs.items()}

    def table(self, **view: Any) -> Table:
        """Return the table.

        ``view``: options of :class:`eval.tables.results.TableView`, such as ``min_hops=2``.

        Raises:
            ConfigError: for an unknown option, or runs that do not go into one table.
        """
        known = [each.name for each in fields(TableView)]
        if unknown := [name for name in view if name not in known]:
            raise ConfigError(f"a table has no option '{unknown[0]}': choose from {', '.join(known)}.")
        return Table(table_of_runs(self.runs, TableView(**view)))

    def compare(self, baseline: str, **view: Any) -> Table:
        """Return the table with paired tests of every run against the ``baseline``, by its name."""
        return self.table(baseline=baseline, **view)

    def rows(self, name: str) -> Mapping[str, SavedRow]:
        """Return one run's rows by question id."""
        if name not in self.runs:
            raise ConfigError(f"there is no run '{name}' among these: {', '.join(self.runs)}.")
        return read_rows(self.runs[name])

    def to_pandas(self) -> Any:
        """Return a data frame with a line per run and question: answers, scores (fractions), tokens."""
        import pandas

        table = table_of_runs(self.runs)
        return pandas.DataFrame(
            [record for name in self.runs for record in self._records(name, table.scorer, table.recall_at)]
        )

    def _records(self, name: str, scorer: Scorer, recall_at: int) -> list[dict[str, Any]]:
        rows, searches = self.rows(name), Manifest.read(self.runs[name]).searches
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

    def report(self, out: str | Path = "report.html", index: Index | None = None) -> Path:
        """Write one HTML file of the runs and return its path.

        With an ``index`` it has the passages' texts.
        """
        return report(self.runs, out, index)

    def __str__(self) -> str:
        return str(self.table())

    def __repr__(self) -> str:
        return f"<Results of {', '.join(self.runs)}: print them, or call .table(), .compare(), .to_pandas()>"

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def report(
    runs: Mapping[str, str | Path], out: str | Path = "report.html", index: Index | None = None
) -> Path:
    """Write one HTML file of finished runs: table, tests, curve and every trace.

    Args:
        runs: run folders by name.
        out: the file; one of that name is replaced.
        index: the index that was searched, for the passages' texts.

    Raises:
        ConfigError: for runs of different questions, or an index that has none of their passages.
    """
    folders = {name: Path(folder) for name, folder in runs.items()}
    options = index.options if index is not None else RetrieverConfig()
    background().run(write_report(folders, Path(out), options))
    return Path(out)


def run(
    questions: Questions,
    methods: Methods,
    model: Model,
    index: Index | None = None,
    *,
    out: str | Path,
    **options: Any,
) -> Results:
    """Answer questions with some methods, each into a run folder of its own. The same call again resumes.

    Args:
        questions: a question file, or questions: :class:`Question` objects or records as in a file.
        methods: methods by function or name; or a mapping of names to a function or to (function, its
            config).
        model: what :func:`open_model` returned.
        index: what :func:`open_index` returned; None if no method searches.
        out: folder of the run folders.
        options: further ones of :class:`eval.experiment.run.RunConfig`, such as ``dataset="hotpotqa"``,
            ``limit=100``, ``budget=8000``, ``batch_size=64``, ``recall_at=15``, ``seed=1``.

    Raises:
        ConfigError: for settings that cannot be, or a folder that holds a run with other settings.
        BackendError: if the engine or the index is gone. A question that fails is a row with its error.
    """
    return background().run(_run(questions, methods, model, index, Path(out), options))


async def arun(
    questions: Questions,
    methods: Methods,
    model: Model,
    index: Index | None = None,
    *,
    out: str | Path,
    **options: Any,
) -> Results:
    """Do what :func:`run` does, from a coroutine."""
    return await background().await_(_run(questions, methods, model, index, Path(out), options))


async def _run(
    questions: Questions,
    methods: Methods,
    model: Model,
    index: Index | None,
    out: Path,
    options: dict[str, Any],
) -> Results:
    file = str(questions) if isinstance(questions, str | Path) else str(_written(questions, out))
    made = {}
    for name, (method, config) in _named(methods).items():
        short, entry = entry_of(method)
        kind: Any = with_method(RunConfig, short, entry)
        chosen: RunConfig = kind(
            **options,
            **{short: entry.config() if config is None else config},
            questions=file,
            method=[short],
            model=model.options,
            retriever=index.options if index is not None else RetrieverConfig(),
            out=str(out),
        )
        chosen.of(short).check_files()
        retriever = index.engine if index is not None else None
        made[name] = await answer_run(chosen, short, chosen.load(), model.engine, retriever, cell=name)
    return Results(made)


def _named(methods: Methods) -> dict[str, tuple[Function | str, MethodConfig | None]]:
    """Return every method with its options by the name of its run."""
    if isinstance(methods, Mapping):
        return {name: each if isinstance(each, tuple) else (each, None) for name, each in methods.items()}
    return {entry_of(method)[0]: (method, None) for method in methods}


def _written(questions: Sequence[Question] | Sequence[Mapping[str, Any]], out: Path) -> Path:
    """Write questions that came as objects beside their runs, so that the folder is whole."""
    records = [question_record(each) if isinstance(each, Question) else dict(each) for each in questions]
    text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    file = out / "questions.jsonl"
    if file.is_file() and file.read_text(encoding="utf-8") != text:
        raise ConfigError(f"'{out}' holds runs on other questions: choose another out, or remove it.")
    write_atomically(file, text)
    return file
