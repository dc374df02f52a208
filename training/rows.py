"""Writing rows to disk: the rows of all chains as a ``datasets`` dataset, and a report of what is in it.

What a row holds is decided in ``data.py``, which knows no files.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from corag.chains.config import CoRAGConfig
from corag.core.errors import ConfigError, DataError, nearest
from corag.core.json_types import to_json_types
from corag.core.options.classes import Options
from corag.core.options.names import LocalPath, NameOrPath
from corag.core.protocols import Retriever
from corag.core.runs.provenance import settings_of
from corag.core.system.installation import require
from corag.core.types import Passage
from corag.core.web.hub_files import local_folder
from corag.generation.encoder_decoder import refuse_encoder_decoder
from corag.generation.models import model_folder
from corag.generation.rendering import Renderer
from corag.generation.thinking import ThinkingOptions
from eval.experiment.backends import open_index_or_client, require_index
from retrieval.config import RetrieverConfig
from training import tables
from training.chains import ChainRow, load_corag_options, load_ircot_options, read_chain_manifest, read_chains
from training.columns import with_labels
from training.data import MadeRow, RowMaker, RowsConfig, TrainingRow, balance_by_length, is_validation
from training.row_tasks import ROW_TASKS, extra_prompts, trained_prompts

REPORT = "report.json"
# Passages of so many questions are held at a time: some tens of megabytes, however many there are.
_QUESTIONS_AT_ONCE = 500


@dataclass(frozen=True)
class MakeRowsConfig(Options):
    """Options of 'corag rows'."""

    chains: list[NameOrPath] = field(default_factory=list)
    """one or more folders that 'corag sample' wrote, or shared ones (hub:OWNER/NAME)."""

    out: LocalPath = ""
    """folder of the rows."""

    model: NameOrPath = "default"
    """the model that will be trained, whose tokenizer the rows are written for: "default", a folder or a
    Hugging Face name."""

    chat: Literal["auto", "no"] = "auto"
    """whether prompts go through the model's chat template, as in decoding; auto does if it has one."""

    rows: RowsConfig = field(default_factory=RowsConfig)
    """which rows are made."""

    retriever: RetrieverConfig = field(default_factory=RetrieverConfig)
    """the index that the chains were sampled with."""

    template_args: dict[str, Any] = field(default_factory=dict)
    """further arguments of the chat template, as ``--model.template_args`` gives them in decoding."""

    ALIASES: ClassVar[dict[str, str]] = {
        "llm": "model",
        "index": "retriever.index",
        "for": "rows.purpose",
    }

    def __post_init__(self) -> None:
        if not self.chains or not self.out:
            raise ConfigError(
                "name the chains and where the rows go: corag rows CHAINS --out ROWS --retriever.index INDEX."
            )
        require_index(self.retriever)


@dataclass
class RowLengths:
    """How many rows of one task and split there are, and how long they are in tokens."""

    rows: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    longest: int = 0

    def add(self, row: TrainingRow) -> None:
        """Count a row."""
        completion = sum(row.completion_mask)
        self.rows += 1
        self.prompt_tokens += len(row.input_ids) - completion
        self.completion_tokens += completion
        self.longest = max(self.longest, len(row.input_ids))


@dataclass
class RowsReport:
    """What was written.

    Attributes:
        settings: all that the rows depend on.
        questions: those with a kept chain, or with thoughts.
        left_out: questions without one, by reason.
        lengths: by "split/task".
        shortened: how many of what a prompt lost to fit, by row; "cut_passage": its best passage, alone too
            long, lost its last sentences.
        cut: names of replies that are not taught, since they were cut off at their limit of tokens, or are
            annotated ones that would be.
        lost: names of rows that are left out, since the passages that they rest on found no room.
        unfit: sentences on rows that cannot be made, such as of a gold answer that is longer than a row.
        plain: names of rows that are left out of distillation, since a teacher would know no more.
        tokens: of all rows.
        without_rows: tasks that no row was made of.
        trained_for: the prompts that are taught, by the method that asks them.
        search: what the chains searched, as options of the command line.
    """

    settings: dict[str, Any]
    questions: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    lengths: dict[str, RowLengths] = field(default_factory=dict)
    shortened: dict[str, dict[str, int]] = field(default_factory=dict)
    cut: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    unfit: list[str] = field(default_factory=list)
    plain: list[str] = field(default_factory=list)
    tokens: int = 0
    without_rows: list[str] = field(default_factory=list)
    trained_for: dict[str, list[str]] = field(default_factory=dict)
    search: list[str] = field(default_factory=list)

    @property
    def tasks(self) -> set[str]:
        """Tasks of which there are rows."""
        return {name.partition("/")[2] for name in self.lengths}

    def add_question(self, row: ChainRow, *, is_taught: bool) -> None:
        """Count a question: with rows, or left out and why."""
        if is_taught or row.thoughts:
            self.questions += 1
            return
        reason = "length" if row.chain is not None else row.rejected or "failed"
        self.left_out[reason] = self.left_out.get(reason, 0) + 1

    def add(self, split: str, outcome: MadeRow) -> None:
        """Count what became of an example."""
        if outcome.row is None:
            reasons = {"cut": self.cut, "lost": self.lost, "unfit": self.unfit, "plain": self.plain}
            reasons[outcome.left_out].append(outcome.name)
            return
        self.lengths.setdefault(f"{split}/{outcome.row.task}", RowLengths()).add(outcome.row)
        self.tokens += len(outcome.row.input_ids)
        if shortening := outcome.shortening:
            cut_tokens = {"token": shortening.cut_tokens} if shortening.cut_tokens else {}
            cut_passage = {"cut_passage": 1} if outcome.is_passage_cut else {}
            self.shortened[outcome.name] = dict(shortening.dropped) | cut_passage | cut_tokens

    def lines(self) -> Iterator[str]:
        """Write it for a reader."""
        yield (
            f"questions {self.questions}, left out {self.left_out or 0}; rows whose prompt was shortened: "
            f"{_by_task(self.shortened)}; replies that reached their limit of tokens, left out: "
            + str(len(self.cut))
            + (f"; rows that lost what they rest on, left out: {_by_task(self.lost)}" if self.lost else "")
            + (f"; rows without privileged context, left out: {_by_task(self.plain)}" if self.plain else "")
        )
        if self.without_rows:
            yield f"no row was made of: {', '.join(self.without_rows)}"
        if self.unfit:
            yield f"rows that cannot be made, left out: {_by_task(self.unfit)}, such as: {self.unfit[0]}"
        if cut := [name for name, losses in self.shortened.items() if "cut_passage" in losses]:
            yield f"rows whose best passage alone was too long, and lost its last sentences: {_by_task(cut)}"
        heads = f"{'rows':>7} {'prompt':>9} {'completion':>11} {'longest':>8}"
        yield f"{'split/task':<26} {heads}   (mean tokens)"
        for name, each in sorted(self.lengths.items()):
            prompt, completion = each.prompt_tokens / each.rows, each.completion_tokens / each.rows
            yield f"{name:<26} {each.rows:>7} {prompt:>9.1f} {completion:>11.1f} {each.longest:>8}"


def _by_task(names: Collection[str]) -> str:
    """Return how many rows there are, and of which tasks."""
    tasks = Counter(name.partition(" of question ")[0] for name in names)
    parts = ", ".join(f"{task} {number}" for task, number in sorted(tasks.items()))
    return f"{len(names)} ({parts})" if names else "0"


async def make_rows(config: MakeRowsConfig) -> RowsReport:
    """Open index and tokenizer and write the rows."""
    async with open_index_or_client(config.retriever) as retriever:
        return await make_rows_with(config, retriever)


async def make_rows_with(config: MakeRowsConfig, retriever: Retriever) -> RowsReport:
    """Write the rows, with an index that is open."""
    require("making training rows", "transformers", "datasets")
    folder = model_folder(config.model, weights=False)
    refuse_encoder_decoder(folder, "none is trained here")
    renderer = Renderer.load(folder, config.chat, ThinkingOptions("auto", config.template_args))
    folders = [local_folder(chains) for chains in config.chains]
    length = tables.within_window(config.rows.max_length, config.model, folder, "rows")
    return await write_rows(
        folders, Path(config.out), retriever, renderer, replace(config.rows, max_length=length)
    )


async def write_rows(
    folders: Sequence[Path], out: Path, retriever: Retriever, renderer: Renderer, config: RowsConfig
) -> RowsReport:
    """Make the rows of some folders of chains and write them to ``out``, with splits train and validation.

    Rows of the same chains and settings that are there already are left as they are. Raises
    :class:`ConfigError` if ``out`` holds others, or the index or a prompt is not the one that the chains were
    sampled with; :class:`DataError` if there is nothing to learn.
    """
    corag, ircot = load_corag_options(folders), load_ircot_options(folders)
    settings = row_settings(folders, retriever, renderer, config, corag)
    if of_thoughts := [task for task in config.tasks if ROW_TASKS[task].of_thoughts]:
        settings["prompts"] = trained_prompts(of_thoughts, corag, ircot)
    if (report := read_report(out)) is not None:
        tables.refuse_others(out, report.settings, settings)
        return report
    tables.make_room(out)
    report = RowsReport(settings, search=tables.search_arguments(folders))
    # Chains lie in the order in which they were finished, which may differ between two runs that sampled the
    # same.
    chain_rows = sorted(read_chains(folders), key=lambda row: row.question.id)
    maker = RowMaker(renderer, config, corag, ircot)
    splits = await _make_splits(maker, chain_rows, retriever, report)
    report.trained_for = trained_prompts(sorted(report.tasks), corag, ircot)
    report.without_rows = [task for task in config.tasks if task not in report.tasks]
    if not splits["train"]:
        raise DataError(
            f"the chains in {', '.join(map(str, folders))} give no training rows of "
            f"{', '.join(config.tasks)}; questions left out, by reason: {report.left_out or 'none'}."
            f"{' '.join(['', *report.unfit[:1]])}"
        )
    tables.save(out, splits, REPORT, report)
    return report


async def _make_splits(
    maker: RowMaker, chain_rows: Sequence[ChainRow], retriever: Retriever, report: RowsReport
) -> dict[str, list[Any]]:
    """Return tables of rows by split, and count in the report what became of every question."""
    config = maker.config
    taught_ids = balance_by_length(chain_rows, config)
    splits: dict[str, list[Any]] = {"train": [], "validation": []}
    for start in range(0, len(chain_rows), _QUESTIONS_AT_ONCE):
        chunk = chain_rows[start : start + _QUESTIONS_AT_ONCE]
        passages = await load_passages(chunk, retriever)
        rows: dict[str, list[TrainingRow]] = {split: [] for split in splits}
        for row in chunk:
            is_taught = row.question.id in taught_ids
            report.add_question(row, is_taught=is_taught)
            split = (
                "validation" if is_validation(row.question.id, config.seed, config.validation) else "train"
            )
            for outcome in maker.make(row, passages, is_taught=is_taught):
                report.add(split, outcome)
                rows[split] += [outcome.row] if outcome.row is not None else []
        for split, part in rows.items():
            splits[split] += [rows_table(part)] if part else []
    return splits


def row_settings(
    folders: Sequence[Path], retriever: Retriever, renderer: Renderer, config: RowsConfig, corag: CoRAGConfig
) -> dict[str, Any]:
    """Return everything that the rows depend on.

    Raises :class:`ConfigError` if the index is not the chains' own.
    """
    for folder in folders:
        check_index(folder, retriever)
    # The chains' settings name the prompts of sampling; a task may use a further one.
    prompts = {
        f"{task}_prompt": corag.prompt(name).identity for task, name in extra_prompts(config.tasks).items()
    }
    settings: dict[str, Any] = to_json_types(
        {
            "chains": tables.identify(folders),
            "rows": settings_of(config),
            "tokenizer": renderer.fingerprint,
            **({"template_args": renderer.template_args} if renderer.template_args else {}),
            **prompts,
        }
    )
    return settings


def check_index(folder: Path, retriever: Retriever) -> None:
    """Raise :class:`ConfigError` if an index is not the one that a folder's chains were sampled with."""
    manifest = read_chain_manifest(folder)
    if manifest.retriever != retriever.fingerprint:
        raise ConfigError(
            f"the chains in '{folder}' were sampled with the index {manifest.retriever}, but this one is "
            f"{retriever.fingerprint}: give the same 'retriever' options."
        )


def read_report(folder: Path) -> RowsReport | None:
    """Read what was written to a folder of rows; None if there are none."""
    return tables.read_report(folder / REPORT, RowsReport, RowLengths)


def load_report(name: str) -> RowsReport:
    """Return the report of a folder of rows. Raises :class:`DataError` if it is none."""
    report = read_report(Path(name))
    if report is None:
        raise DataError(f"'{name}' is no folder of rows: make them with 'corag rows'.")
    return report


async def load_passages(rows: Sequence[ChainRow], retriever: Retriever) -> dict[str, Passage]:
    """Fetch every passage that the kept chains and their questions read."""
    ids: dict[str, None] = {}
    for row in rows:
        if row.chain is not None:
            hops = itertools.chain.from_iterable(hop.passage_ids for hop in row.chain.hops)
            ids |= dict.fromkeys([*row.context_ids, *hops])
        ids |= dict.fromkeys(itertools.chain.from_iterable(each.passage_ids for each in row.thoughts))
    return {passage.id: passage for passage in await retriever.passages(list(ids))}


def rows_table(rows: Sequence[TrainingRow]) -> Any:
    """Return rows as a ``datasets.Dataset``, as they lie in a folder of rows."""
    import datasets

    tokens = {
        "input_ids": datasets.List(datasets.Value("int32")),
        "completion_mask": datasets.List(datasets.Value("int8")),
    }
    if rows[0].privileged_context is not None:
        tokens["privileged_context"] = datasets.List(datasets.Value("int32"))
    texts = {name: datasets.Value("string") for name in ("question_id", "task", "prompt", "completion")}
    features = datasets.Features(texts | {"hop": datasets.Value("int32")} | tokens)
    records = [{name: value for name, value in asdict(row).items() if name in features} for row in rows]
    return with_labels(datasets.Dataset.from_list(records, features=features))


def row_lines(folder: Path, question: str, model: str) -> Iterator[str]:
    """Yield the rows of a question as the model reads them, with [[ ]] around what is learned.

    Of "" a line for each row. Raises :class:`ConfigError` if there are none, or for another ``model`` than
    the one whose tokenizer they were written with.
    """
    require("reading training rows", "transformers", "datasets")
    import datasets

    splits = datasets.load_from_disk(str(folder))
    rows = [(split, row) for split, table in splits.items() for row in table]
    if not question:
        yield from (f"{_row_title(split, row)}: {row['completion']}" for split, row in rows)
        return
    chosen = [(split, row) for split, row in rows if row["question_id"] == question]
    if not chosen:
        raise ConfigError(
            f"'{folder}' has no rows of a question '{question}': "
            + nearest(question, {row["question_id"] for _, row in rows})
        )
    renderer, report = Renderer.load(model_folder(model, weights=False)), read_report(folder)
    written = report.settings["tokenizer"] if report else ""
    if renderer.fingerprint.partition(":")[0] != written.partition(":")[0]:
        raise ConfigError(
            f"the rows in '{folder}' were written with another tokenizer than '{model}' has: name the model "
            "that they are for with 'model'."
        )
    for split, row in chosen:
        yield f"-- {_row_title(split, row)}"
        pairs = zip(row["input_ids"], row["completion_mask"], strict=True)
        for is_learned, part in itertools.groupby(pairs, key=lambda pair: pair[1]):
            text = renderer.decode([token for token, _ in part])
            yield f"[[{text}]]" if is_learned else text


def _row_title(split: str, row: Mapping[str, Any]) -> str:
    hop = f", hop {row['hop']}" if row["hop"] else ""
    tokens = f"{len(row['input_ids'])} tokens, {sum(row['completion_mask'])} learned"
    return f"{row['question_id']}  {split}/{row['task']}{hop}  {tokens}"
