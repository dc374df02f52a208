"""Sampling and rows, from Python: functions that hand back what they made as objects that print well.

The method for one question is :func:`training.sampling.sample_chains`; the commands' own functions, which
open model and index themselves, are :mod:`training.sample` and :mod:`training.rows`.
"""

from __future__ import annotations

import html
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from corag.config import CoRAGConfig
from eval.experiment.background import background
from eval.experiment.crews import crew_of, options_of_index, options_of_model
from eval.experiment.given import Questions, or_default, question_file, with_keywords
from eval.experiment.opened import Index, Model
from generation.config import ModelConfig
from retrieval.config import RetrieverConfig
from training.chains import ChainRow, Description, describe, manifest_of_chains, read_chains
from training.data import RowsConfig
from training.rows import MakeRowsConfig, RowsReport, make_rows_with
from training.sample import SampleRunConfig, sample_into
from training.sampling import SampleConfig, check_question


class _Folder:
    """Something on disk that says in lines what it is, and may be given wherever its folder may."""

    folder: Path

    def lines(self) -> Sequence[str]:
        """Describe it for a reader."""
        raise NotImplementedError

    def __fspath__(self) -> str:
        return str(self.folder)

    def __str__(self) -> str:
        return "\n".join([f"{self.folder}:", *(f"  {line}" for line in self.lines())])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


class ChainSet(_Folder):
    """Sampled chains in their folder: those just made, or any that you name.

    Attributes:
        folder: a run folder, with a line per question.
        rows: the questions with all their candidates, and which was kept.
        description: how many were kept, how long they are, how likely they make the gold answer.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.rows: Sequence[ChainRow] = read_chains([self.folder])
        self.description: Description = describe(self.rows)

    def lines(self) -> Sequence[str]:
        """Describe them for a reader."""
        return list(self.description.lines())

    def to_pandas(self) -> Any:
        """Return a data frame with a line per candidate: its hops, its score, whether it was kept."""
        import pandas

        return pandas.DataFrame(
            [
                {
                    "id": row.question.id,
                    "question": row.question.text,
                    "chain": number,
                    "kept": number == row.chosen,
                    "score": chain.means[-1] if chain.means else None,
                    "hops": len(chain.hops),
                    "stopped": chain.stopped,
                    "sub_queries": [hop.sub_query for hop in chain.hops],
                    "sub_answers": [hop.sub_answer for hop in chain.hops],
                }
                for row in self.rows
                for number, chain in enumerate(row.chains)
            ]
        )

    def __repr__(self) -> str:
        found = self.description
        return f"<ChainSet {str(self.folder)!r}: {found.kept} kept of {found.questions} questions>"


class RowSet(_Folder):
    """Training rows in their folder.

    Attributes:
        folder: a ``datasets`` dataset with the splits train and validation, for training/sft.py.
        report: how many rows there are of each task, how long, and what was left out.
    """

    def __init__(self, folder: str | os.PathLike[str], report: RowsReport) -> None:
        self.folder = Path(folder)
        self.report = report

    def lines(self) -> Sequence[str]:
        """Describe them for a reader."""
        return list(self.report.lines())

    def load(self) -> Mapping[str, Any]:
        """Return the rows as the dataset that they are, by split."""
        import datasets

        rows: Mapping[str, Any] = datasets.load_from_disk(str(self.folder))
        return rows

    def __repr__(self) -> str:
        rows = sum(found.rows for found in self.report.lengths.values())
        return f"<RowSet {str(self.folder)!r}: {rows:,} rows, {self.report.tokens:,} tokens>"


ChainFolder = ChainSet | str | os.PathLike[str]


def sample_chains(
    questions: Questions,
    model: Model | ModelConfig,
    index: Index | RetrieverConfig,
    *,
    out: str | os.PathLike[str],
    config: SampleConfig | None = None,
    corag: CoRAGConfig | None = None,
    **options: Any,
) -> ChainSet:
    """Sample several chains per question and keep the one that makes its gold answer likeliest.

    The same call again goes on where it was.

    Args:
        questions: a question file, or questions with gold answers: objects or records as in a file.
        model: what :func:`open_model` returned.
        index: what :func:`open_index` returned.
        out: folder of the chains.
        config: how many chains, how long, which are kept; the paper's values without it.
        corag: prompts, passages and token limits, as in decoding.
        options: further ones of :class:`training.sample.SampleRunConfig`, such as ``limit=100`` or
            ``workers=ray_workers(count=2)``; then ``model`` and ``index`` may be their options.

    Raises:
        ConfigError: for settings that cannot be, or a folder that holds chains of other settings.
        DataError: for a question without a gold answer.
        BackendError: if the engine or the index is gone.
    """
    return background().run(_sample(questions, model, index, Path(out), config, corag, options))


async def asample_chains(
    questions: Questions,
    model: Model | ModelConfig,
    index: Index | RetrieverConfig,
    *,
    out: str | os.PathLike[str],
    config: SampleConfig | None = None,
    corag: CoRAGConfig | None = None,
    **options: Any,
) -> ChainSet:
    """Do what :func:`sample_chains` does, from a coroutine."""
    return await background().await_(_sample(questions, model, index, Path(out), config, corag, options))


def make_rows(
    chains: ChainFolder | Sequence[ChainFolder],
    index: Index,
    *,
    out: str | os.PathLike[str],
    model: str | Model | None = None,
    chat: Literal["auto", "yes", "no"] = "auto",
    config: RowsConfig | None = None,
) -> RowSet:
    """Turn sampled chains into training rows, tokenised as decoding does.

    Args:
        chains: what :func:`sample_chains` returned, or folders of chains.
        index: the index that the chains were sampled with: it has the passages' texts.
        out: folder of the rows. Rows of the same chains and settings that are there already are left.
        model: the model that will be trained, whose tokenizer the rows are written for; without it the one
            that sampled the chains.
        chat: whether prompts go through the model's chat template; auto does if it has one.
        config: which rows are made.

    Raises:
        ConfigError: for another index than the chains', or a folder that holds other rows.
        DataError: if there is nothing to learn.
    """
    return background().run(_make_rows(chains, index, out, model, chat, config))


async def amake_rows(
    chains: ChainFolder | Sequence[ChainFolder],
    index: Index,
    *,
    out: str | os.PathLike[str],
    model: str | Model | None = None,
    chat: Literal["auto", "yes", "no"] = "auto",
    config: RowsConfig | None = None,
) -> RowSet:
    """Do what :func:`make_rows` does, from a coroutine."""
    return await background().await_(_make_rows(chains, index, out, model, chat, config))


async def _sample(
    questions: Questions,
    model: Model | ModelConfig,
    index: Index | RetrieverConfig,
    out: Path,
    config: SampleConfig | None,
    corag: CoRAGConfig | None,
    options: Mapping[str, Any],
) -> ChainSet:
    file, _ = question_file(questions, out, "")
    base = SampleRunConfig(
        questions=file,
        out=str(out),
        sample=or_default(config, SampleConfig),
        corag=or_default(corag, CoRAGConfig),
        model=options_of_model(model),
        retriever=options_of_index(index),
    )
    chosen = with_keywords(base, options)
    asked = chosen.load()
    for question in asked:
        check_question(question, chosen.sample)
    chosen.corag.check_files()
    async with crew_of(chosen.workers, chosen.batch_size, model, index) as crew:
        await sample_into(chosen, asked, crew)
    return ChainSet(chosen.folder)


async def _make_rows(
    chains: ChainFolder | Sequence[ChainFolder],
    index: Index,
    out: str | os.PathLike[str],
    model: str | Model | None,
    chat: Literal["auto", "yes", "no"],
    config: RowsConfig | None,
) -> RowSet:
    several = chains if isinstance(chains, Sequence) and not isinstance(chains, str) else [chains]
    folders = [os.fspath(each) for each in several]
    if model is None and folders:
        model = manifest_of_chains(Path(folders[0])).last.model
    chosen = MakeRowsConfig(
        folders,
        os.fspath(out),
        model.options.name if isinstance(model, Model) else model or "default",
        chat,
        or_default(config, RowsConfig),
        index.options,
    )
    return RowSet(chosen.out, await make_rows_with(chosen, index.engine))
