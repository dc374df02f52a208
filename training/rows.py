"""Writing rows to disk: the rows of all chains as a ``datasets`` dataset, and a report of what is in it.

What a row holds is decided in ``data.py``, which knows no files.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

from corag.config import CoRAGConfig
from core.errors import ConfigError, DataError
from core.options import identity_of
from core.prompting.prompt import Shortening
from core.prompting.shorten import texts_left
from core.protocols import Retriever
from core.text import mentions
from core.types import Passage
from eval.experiment.backends import open_searched, require_index
from generation.models import model_folder
from generation.rendering import Renderer
from ircot.method import IRCoTConfig
from retrieval.config import RetrieverConfig
from training import tables
from training.chains import ChainRow, config_of, manifest_of_chains, read_chains, reasoning_of
from training.data import (
    RowsConfig,
    TrainingExample,
    TrainingRow,
    examples_of,
    of_each_length,
    set_aside,
    thought_examples,
    tokenise,
    verify_examples,
)

REPORT = "report.json"
# Passages of so many questions are held at a time: some tens of megabytes, however many there are.
_QUESTIONS_AT_ONCE = 500


@dataclass(frozen=True)
class MakeRowsConfig:
    """Options of 'corag rows'.

    Attributes:
        chains: one or more folders that 'corag sample' wrote.
        out: folder of the rows.
        model: the model that will be trained, whose tokenizer the rows are written for: "default", a folder
            or a Hugging Face name.
        chat: whether prompts go through the model's chat template, as in decoding; auto does if it has one.
        rows: which rows are made.
        retriever: the index that the chains were sampled with.
    """

    chains: list[str] = field(default_factory=list)
    out: str = ""
    model: str = "default"
    chat: Literal["auto", "yes", "no"] = "auto"
    rows: RowsConfig = field(default_factory=RowsConfig)
    retriever: RetrieverConfig = field(default_factory=RetrieverConfig)

    ALIASES: ClassVar[dict[str, str]] = {"llm": "model", "index": "retriever.index"}

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
        shortened: how many of what a prompt lost to fit, by row.
        cut: names of replies that are not taught, since they were cut off at their limit of tokens, or are
            annotated ones that would be.
        lost: names of rows that are left out, since the passage that they rest on found no room.
        tokens: of all rows.
        files: the question files that the chains were sampled for, by name; none in older reports.
    """

    settings: dict[str, Any]
    questions: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    lengths: dict[str, RowLengths] = field(default_factory=dict)
    shortened: dict[str, dict[str, int]] = field(default_factory=dict)
    cut: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    tokens: int = 0
    files: list[str] = field(default_factory=list)

    def add(self, split: str, row: TrainingRow, name: str, shortening: Shortening) -> None:
        """Count a row."""
        self.lengths.setdefault(f"{split}/{row.task}", RowLengths()).add(row)
        self.tokens += len(row.input_ids)
        if shortening:
            lost = {"token": shortening.cut_tokens} if shortening.cut_tokens else {}
            self.shortened[name] = dict(shortening.dropped) | lost

    def lines(self) -> Iterator[str]:
        """Write it for a reader."""
        yield (
            f"questions {self.questions}, left out {self.left_out or 0}; rows whose prompt was shortened: "
            f"{len(self.shortened)}; replies that reached their limit of tokens, left out: {len(self.cut)}"
            + (f"; rows that lost what they rest on, left out: {len(self.lost)}" if self.lost else "")
        )
        heads = f"{'rows':>7} {'prompt':>9} {'completion':>11} {'longest':>8}"
        yield f"{'split/task':<26} {heads}   (mean tokens)"
        for name, found in sorted(self.lengths.items()):
            prompt, completion = found.prompt_tokens / found.rows, found.completion_tokens / found.rows
            yield f"{name:<26} {found.rows:>7} {prompt:>9.1f} {completion:>11.1f} {found.longest:>8}"


async def make_rows(config: MakeRowsConfig) -> RowsReport:
    """Open index and tokenizer and write the rows."""
    async with open_searched(config.retriever) as retriever:
        return await make_rows_with(config, retriever)


async def make_rows_with(config: MakeRowsConfig, retriever: Retriever) -> RowsReport:
    """Write the rows, with an index that is open."""
    folder = model_folder(config.model, weights=False)
    renderer = Renderer.load(folder, config.chat)
    folders = [Path(chains) for chains in config.chains]
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
    corag, ircot = config_of(folders), reasoning_of(folders)
    settings = settings_of(folders, retriever, renderer, config, corag)
    if (found := read_report(out)) is not None:
        tables.refuse_others(out, found.settings, settings)
        return found
    tables.make_room(out)
    report = RowsReport(settings, files=tables.question_files(folders))
    rows: dict[str, list[Any]] = {"train": [], "validation": []}
    # Chains lie in the order in which they were finished, which may differ between two runs that sampled the
    # same.
    every = sorted(read_chains(folders), key=lambda row: row.question.id)
    check_answers(every, config)
    taught = of_each_length(every, config)
    for start in range(0, len(every), _QUESTIONS_AT_ONCE):
        chunk = every[start : start + _QUESTIONS_AT_ONCE]
        passages = await passages_of(chunk, retriever, candidates="verify" in config.tasks)
        made_of = partial(_examples, count=renderer.count, config=config, corag=corag, ircot=ircot)
        for split, made in _tokenised(
            chunk, partial(made_of, passages=passages), taught, renderer, config, report
        ).items():
            rows[split] += [_table(made)] if made else []
    if not rows["train"]:
        named = ", ".join(map(str, folders))
        if ircot is None and set(config.tasks) == {"thought"}:
            raise DataError(
                f"the row task thought wants IRCoT's thoughts, but '{named}' holds chains: sample with "
                "--sample.source thoughts into another folder."
            )
        raise DataError(
            f"the chains in {named} give no training rows of {', '.join(config.tasks)}; questions left "
            f"out, by reason: {report.left_out or 'none'}."
        )
    tables.save(out, rows, REPORT, report)
    return report


def settings_of(
    folders: Sequence[Path], retriever: Retriever, renderer: Renderer, config: RowsConfig, corag: CoRAGConfig
) -> dict[str, Any]:
    """Everything that the rows depend on. Raises :class:`ConfigError` if the index is not the chains' own."""
    for folder in folders:
        check_index(folder, retriever)
    settings = {
        "chains": tables.identify(folders),
        "rows": identity_of(config),
        "tokenizer": renderer.fingerprint,
    }
    if "stop" in config.tasks:  # sampling does not use its prompt, so the chains do not say which it was
        settings["stop_prompt"] = corag.prompt("stop_check").identity
    if "thought" in config.tasks:
        settings["thoughts"] = "go on"  # those of older versions ended the turn
    if "verify" in config.tasks:
        settings["verify_prompt"] = corag.prompt("verify").identity
    return tables.plain(settings)


def check_index(folder: Path, retriever: Retriever) -> None:
    """Raise :class:`ConfigError` if an index is not the one that a folder's chains were sampled with."""
    manifest = manifest_of_chains(folder)
    if manifest.retriever != retriever.fingerprint:
        raise ConfigError(
            f"the chains in '{folder}' were sampled with the index {manifest.retriever}, but this one is "
            f"{retriever.fingerprint}: give the same --retriever options."
        )


def read_report(folder: Path) -> RowsReport | None:
    """Read what was written to a folder of rows; None if there are none."""
    return tables.read_report(folder / REPORT, RowsReport, RowLengths)


def check_answers(rows: Sequence[ChainRow], config: RowsConfig) -> None:
    """Raise :class:`ConfigError` if answers are to be judged, but the chains have none."""
    if "verify" in config.tasks and not any(chain.answer for row in rows for chain in row.chains):
        raise ConfigError(
            "the row task verify wants the chains' answers, which these were sampled without: sample with "
            "--sample.answers final, or leave verify out of --rows.tasks."
        )


async def passages_of(
    rows: Sequence[ChainRow], retriever: Retriever, *, candidates: bool = False
) -> dict[str, Passage]:
    """Fetch every passage that the kept chains and their questions read; with ``candidates`` all chains."""
    wanted: dict[str, None] = {}
    for row in rows:
        kept = () if row.chain is None else (row.chain,)
        for chain in row.chains if candidates else kept:
            hops = itertools.chain.from_iterable(hop.passage_ids for hop in chain.hops)
            wanted |= dict.fromkeys([*row.context_ids, *hops])
        wanted |= dict.fromkeys(itertools.chain.from_iterable(each.passage_ids for each in row.thoughts))
    return {passage.id: passage for passage in await retriever.passages(list(wanted))}


def _examples(
    row: ChainRow,
    *,
    kept: bool,
    passages: Mapping[str, Passage],
    count: Callable[[str], int],
    config: RowsConfig,
    corag: CoRAGConfig,
    ircot: IRCoTConfig | None,
) -> Iterator[TrainingExample]:
    """Yield all that is taught of a question. ``kept``: of its chosen chain too."""
    if kept:
        yield from examples_of(row, passages, count, config, corag)
    yield from verify_examples(row, passages, count, config, corag)
    if ircot is not None:
        yield from thought_examples(row, passages, count, config, ircot)


def _tokenised(
    chunk: Sequence[ChainRow],
    examples: Callable[..., Iterator[TrainingExample]],
    taught: Collection[str],
    renderer: Renderer,
    config: RowsConfig,
    report: RowsReport,
) -> dict[str, list[TrainingRow]]:
    made: dict[str, list[TrainingRow]] = {"train": [], "validation": []}
    left_out = Counter(report.left_out)
    for row in chunk:
        kept = row.question.id in taught
        if kept or row.thoughts:
            report.questions += 1
        else:
            left_out["length" if row.chain is not None else row.rejected or "failed"] += 1
        split = "validation" if set_aside(row.question.id, config) else "train"
        for asked in examples(row, kept=kept):
            if asked.cut:
                report.cut.append(asked.name)
                continue
            done, shortening = tokenise(asked, renderer, config)
            if asked.rests_on and not mentions(
                texts_left(asked.prompt, "passage", shortening), [asked.rests_on]
            ):
                report.lost.append(asked.name)
                continue
            made[split].append(done)
            report.add(split, done, asked.name, shortening)
    report.left_out = dict(left_out)
    return made


def _table(rows: Sequence[TrainingRow]) -> Any:
    import datasets

    tokens = {
        "input_ids": datasets.List(datasets.Value("int32")),
        "completion_mask": datasets.List(datasets.Value("int8")),
    }
    texts = {name: datasets.Value("string") for name in ("question_id", "task", "prompt", "completion")}
    features = datasets.Features(texts | {"hop": datasets.Value("int32")} | tokens)
    return datasets.Dataset.from_list([asdict(row) for row in rows], features=features)
