"""Many questions, from Python: ``run`` answers them into run folders, and returns the results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from corag.core.errors import ConfigError
from corag.core.method import Method, MethodConfig
from corag.core.system.installation import require
from corag.generation.config import ModelConfig
from eval.api.arguments import Questions, question_file, with_keywords
from eval.api.ask import AnyMethod, entry_of, options_of
from eval.api.background import waits
from eval.api.executors import choose_executor, index_options, model_options
from eval.api.opened import Index, Model, lend_index
from eval.api.own_objects import takes_own_objects
from eval.api.run_folders import FinishedRuns, RunFolders, folders_by_name
from eval.api.table import Table
from eval.experiment.backends import check_model
from eval.experiment.gold import match_gold
from eval.experiment.loop import in_turn
from eval.experiment.registry import METHODS, with_method
from eval.experiment.run import RunConfig, answer_with, repeats_of
from eval.judging import JudgedRun, judge_run
from eval.report.page import write_report
from eval.scoring.judge import JUDGE, JudgeConfig
from eval.sweeps.plots import draw_figure
from eval.tables.means import Over
from eval.tables.results import TableView, score_view, table_of_runs
from eval.tables.runs import Run, write_run_answers
from retrieval.config import RetrieverConfig

WithOptions = AnyMethod | tuple[AnyMethod, MethodConfig | Mapping[str, Any]]
Methods = WithOptions | Sequence[WithOptions] | Mapping[str, WithOptions]
Config = TypeVar("Config", bound=RunConfig)


@dataclass(frozen=True, repr=False)
class Results(FinishedRuns):
    """Finished runs on the same questions, read from their folders: those just made, or any that you name.

    ``print`` shows the table; :meth:`to_pandas` has a line per run and question, :meth:`table` one per run.

    Attributes:
        runs: run folders by name; they may be given in a list, too.
        questions: those to keep to, by whose gold answers all is scored. Without, they are the runs' own.
            What :func:`run` returns keeps to the questions that it was asked.
        over: "seeds" or "demonstrations": what runs of one mean differ in, for all tables and figures that do
            not say it themselves.

    Example::

        results = Results({"one_step": "runs/mine/one_step", "ircot": "runs/mine/ircot"})
        print(results.compare(baseline="one_step"))
    """

    over: Over = ""

    def table(self, **view: Any) -> Table:
        """Return the table.

        ``view``: options of :class:`eval.tables.results.TableView`, such as ``min_hops=2``.

        Raises:
            ConfigError: for an unknown option, or runs that do not go into one table.
        """
        options = with_keywords(TableView(over=self.over), view)
        return Table(table_of_runs(self.runs, options, self.questions))

    def compare(self, baseline: str, **view: Any) -> Table:
        """Return the table with paired tests of every run against the ``baseline``, by its name."""
        return self.table(baseline=baseline, **view)

    def records(self) -> list[dict[str, Any]]:
        """Return a record per run and question: answers, scores (fractions), tokens.

        They are of the questions of :meth:`table`: those that every run has.
        """
        view = score_view(self.runs, TableView(), self.questions)
        return [record for run in view.runs for record in _records(run)]

    def to_pandas(self) -> Any:
        """Return :meth:`records` as a data frame."""
        require("to_pandas()", "pandas")
        import pandas

        return pandas.DataFrame(self.records())

    def figure(self, out: str | Path = "score.pdf", **view: Any) -> Path:
        """Draw F1, or the first of ``measures``, over tokens per question; return the file.

        ``out`` ends in .png, .svg or .pdf. ``view``: as of :meth:`table`. Needs ``corag[plots]``.
        """
        draw_figure(self.table(**view).figures, out)
        return Path(out)

    def __str__(self) -> str:
        return str(self.table())

    def __repr__(self) -> str:
        return f"<Results of {', '.join(self.runs)}: print them, or call .table(), .compare(), .to_pandas()>"

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def _records(run: Run) -> Iterator[dict[str, Any]]:
    for key, row in run.rows.items():
        yield {
            "run": run.name,
            "id": key,
            "question": row.question.text,
            "answer": row.text,
            "gold": list(row.question.answers),
            **{measure: values.get(key) for measure, values in run.measures.items()},
            "tokens": row.total_usage.total,
            "computed_tokens": row.total_usage.computed,
            "seconds": row.seconds,
            "error": row.error.splitlines()[0] if row.error else "",
            "passage_ids": list(row.passage_ids),
            "read_ids": list(row.read_ids),
        }


def table(runs: RunFolders, **view: Any) -> Table:
    """Return a table of finished runs, given as for :func:`report`; ``view`` as of :meth:`Results.table`."""
    return Results(runs, runs.questions if isinstance(runs, FinishedRuns) else None).table(**view)


@waits
@takes_own_objects
async def report(
    runs: RunFolders,
    out: str | Path = "report.html",
    index: Index | RetrieverConfig | Any | None = None,
    baseline: str = "",
) -> Path:
    """Write one HTML file of finished runs: table, tests, curve and every trace.

    Args:
        runs: run folders by name or in a list, or what ``run`` or ``sweep`` returned.
        out: the file; one of that name is replaced.
        index: what :func:`run` was given as its index, for the passages' texts. An object of your own knows
            those that it has returned since it was opened.
        baseline: the run, by its name, that the page opens with as the one to test against; "" for the first.

    Raises:
        ConfigError: for runs of different questions.
    """
    folders = folders_by_name(runs, "report")
    questions = runs.questions if isinstance(runs, FinishedRuns) else None
    view = TableView(baseline=baseline)
    file, write = Path(out), partial(write_report, folders, view=view, questions=questions)
    if index is None:
        await write(file)
    elif isinstance(index, RetrieverConfig):
        async with lend_index(index) as retriever:
            await write(file, retriever)
    else:
        await write(file, index.engine)
    return file


@waits
@takes_own_objects
async def judge(runs: RunFolders, model: Model | Any, prompt: str = JUDGE) -> dict[str, JudgedRun]:
    """Let a language model say which answers of finished runs are right; by name what it says of each.

    The verdicts lie in a folder of each run, one per judge, so the same call again goes on where it was.

    Args:
        runs: run folders, as for :func:`report`.
        model: what :func:`open_model` returned, or an object or function that it takes.
        prompt: a shipped name, a file, or a text with {query}, {answers} and {prediction}.

    Raises:
        ConfigError: for a prompt that cannot be used, and a run without gold answers.
    """
    folders = folders_by_name(runs, "judge")
    finished = FinishedRuns(folders, runs.questions if isinstance(runs, FinishedRuns) else None)
    loaded_runs = [finished.load(name) for name in folders]
    config = JudgeConfig(prompt)
    return {each.name: await judge_run(each, config, model.engine, model.options) for each in loaded_runs}


@waits
@takes_own_objects
async def run(
    questions: Questions,
    methods: Methods,
    model: Model | ModelConfig | Any,
    index: Index | RetrieverConfig | Any | None = None,
    *,
    out: str | Path,
    **options: Any,
) -> Results:
    """Answer questions with some methods, each into a run folder of its own. The same call again resumes.

    Args:
        questions: a question file, or questions: :class:`Question` objects or records as in a file.
        methods: methods by function or name, with or without options: (corag, CoRAGConfig(chains=4)) or
            ("react", {"max_steps": 3}); or a mapping of names for their runs to such.
        model: what :func:`open_model` returned, or an object or function that it takes; or its
            options (:class:`ModelConfig`), of which every GPU gets an engine.
        index: what :func:`open_index` returned, or an object, a function or a list of texts that it takes;
            None if no method searches. Its options do, too.
        out: folder of the run folders.
        options: further ones of :class:`eval.experiment.run.RunConfig`, such as ``dataset="hotpotqa"``,
            ``answers_to="answers.csv"``, ``limit=100`` (0, the default, takes all questions),
            ``budget=8000``, ``batch_size=64``, ``recall_at=15``, ``seed=1``; or a method's, such as
            ``corag=CoRAGConfig(chains=4)``; or ``workers=ray_workers(count=4)``, each of which opens
            a model and searches an index with these options, whatever is open here; ``workers="none"`` for
            one engine.

    Raises:
        ConfigError: for settings that cannot be, or a folder that holds a run with other settings.
        BackendError: if the engine or the index is gone. A question that fails is a row with its error.
    """
    base = base_of(RunConfig, questions, model, index, Path(out), options)
    if base.answers_to and base.shard:
        raise ConfigError(
            f"a shard has its share of the answers only: leave answers_to out, and write {base.answers_to} "
            "when the shards are joined ('corag table RUN --join --answers_to FILE')."
        )
    configs: dict[str, RunConfig] = {}
    for name, (method, config) in name_methods(methods).items():  # all are checked before the first answers
        short, entry = entry_of(method)
        if config is None and METHODS.get(short) is entry:
            config = base.of(short)
        run_config = with_section(base, short, entry, options_of(short, entry, config, index))
        configs |= repeats_of(run_config, name)
    loaded_questions = base.load()
    in_flight = max(each.most_in_flight for each in configs.values())
    async with choose_executor(base.workers, in_flight, len(loaded_questions), model, index) as executor:
        loaded_questions = await match_gold(loaded_questions, executor.index, base.retriever.index)
        for each in configs.values():
            check_model(each.method[0], each.of(each.method[0]), each.model, executor.model)
        folders = await in_turn(
            partial(answer_with, each, each.method[0], loaded_questions, executor, cell=name)
            for name, each in configs.items()
        )
    runs = dict(zip(configs, folders, strict=True))
    results = Results(runs, loaded_questions, "seeds" if base.repeats > 1 else "")
    if base.answers_to:
        write_run_answers(runs, base.answers_to, loaded_questions)
    return results


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
    if derived_options := [name for name in ("method", "model", "retriever") if name in options]:
        raise ConfigError(
            f"{derived_options[0]} is no option here: it follows from the methods, the model and the index."
        )
    file, scoring = question_file(questions, out, options)
    scoring = {name: value for name, value in scoring.items() if name != "scorer" or name not in options}
    retriever = index_options(index) if index is not None else RetrieverConfig()
    base = kind(questions=file, out=str(out), model=model_options(model), retriever=retriever)
    # First the dataset as it was named, for what it implies; then how such questions are read and scored.
    return with_keywords(with_keywords(base, options), scoring)


def with_section(base: RunConfig, method: str, entry: Method, config: MethodConfig) -> RunConfig:
    """Return the options of a run of one method, with this method's own."""
    kind: Any = with_method(type(base), method, entry)
    values = {each.name: getattr(base, each.name) for each in fields(base)}
    run_config: RunConfig = kind(**values | {method: config, "method": [method]})
    return run_config


def _has_options(method: Any) -> bool:
    """Whether this is a method with options: (corag, CoRAGConfig(chains=4)), ("react", {"max_steps": 3})."""
    return isinstance(method, tuple) and len(method) == 2 and isinstance(method[1], MethodConfig | Mapping)


def name_methods(methods: Methods) -> dict[str, tuple[AnyMethod, MethodConfig | Mapping[str, Any] | None]]:
    """Return every method with its options by the name of its run.

    Raises:
        ConfigError: for two runs of one name, or none.
    """
    if isinstance(methods, Mapping):
        named: dict[str, Any] = dict(methods)
    else:
        is_one = isinstance(methods, str | Method) or callable(methods) or _has_options(methods)
        every: Sequence[Any] = [methods] if is_one else cast("Sequence[Any]", methods)
        named = {entry_of(each[0] if _has_options(each) else each)[0]: each for each in every}
        if len(named) < len(every):
            raise ConfigError(
                "a method is named twice: give a mapping of names to (method, config), such as "
                '{"two hops": (corag, CoRAGConfig(max_hops=2)), ...}.'
            )
    if not named:
        raise ConfigError("no method was given: give one or more, such as [corag, ircot].")
    return {name: each if isinstance(each, tuple) else (each, None) for name, each in named.items()}
