"""Sampling, rows and training, from Python: functions that return what they made as objects that print well.

The method for one question is :func:`training.sampling.sample_chains`; the commands' own functions, which
open model and index themselves, are :mod:`training.sample` and :mod:`training.rows`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from corag.chains.config import CoRAGConfig
from corag.core.errors import BackendError
from corag.core.system.files import read_anew
from corag.core.system.installation import require
from corag.generation.config import ModelConfig
from eval.api.arguments import Questions, or_default, question_file, with_keywords
from eval.api.background import waits
from eval.api.executors import choose_executor, index_options, model_options
from eval.api.opened import Index, Model
from retrieval.config import RetrieverConfig
from training.chains import ChainRow, Description, describe, read_chain_manifest, read_chains
from training.data import RowsConfig
from training.rows import MakeRowsConfig, RowsReport, make_rows_with
from training.sample import SampleRunConfig, sample_into, usable_questions
from training.sampling import SampleConfig
from training.stages import SFT, TrainOptions, launch_program


class _Folder:
    """Something on disk that says in lines what it is, and may be given wherever its folder may."""

    def __init__(self, folder: str | os.PathLike[str], summary: Description | RowsReport) -> None:
        self.folder = Path(folder)
        self._summary = summary

    def __fspath__(self) -> str:
        return str(self.folder)

    def __str__(self) -> str:
        return "\n".join([f"{self.folder}:", *(f"  {line}" for line in self._summary.lines())])

    __repr__ = __str__  # a notebook shows it


class ChainSet(_Folder):
    """Sampled chains in their folder: those just made, or any that you name.

    Attributes:
        folder: a run folder, with a line per question.
        rows: the questions with all their candidates, and which was kept.
        description: how many were kept, how long they are, how likely they make the gold answer.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.rows: Sequence[ChainRow] = read_chains([Path(folder)])
        self.description: Description = describe(self.rows)
        super().__init__(folder, self.description)


class RowSet(_Folder):
    """Training rows in their folder.

    Attributes:
        folder: a ``datasets`` dataset with the splits train and validation, for training/sft.py.
        report: how many rows there are of each task, how long, and what was left out.
    """

    def __init__(self, folder: str | os.PathLike[str], report: RowsReport) -> None:
        super().__init__(folder, report)
        self.report = report

    def load(self) -> Mapping[str, Any]:
        """Return the rows as the dataset that they are, by split."""
        require("load()", "datasets")
        import datasets

        rows: Mapping[str, Any] = datasets.load_from_disk(str(self.folder))
        return rows


ChainFolder = ChainSet | str | os.PathLike[str]
RowFolder = RowSet | str | os.PathLike[str]


@waits
async def sample_chains(
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
        model: what :func:`open_model` returned, or its options, of which every GPU gets an engine.
        index: what :func:`open_index` returned, or its options.
        out: folder of the chains.
        config: how many chains, how long, which are kept; the paper's values without it.
        corag: prompts, passages and token limits, as in decoding.
        options: further ones of :class:`training.sample.SampleRunConfig`, such as ``limit=100`` or
            ``workers=ray_workers(count=2)``.

    Raises:
        ConfigError: for settings that cannot be, a folder that holds chains of other settings, or questions
            none of which has what sampling needs (gold answers, a decomposition); others are left out.
        BackendError: if the engine or the index is gone.
    """
    file, read_as = question_file(questions, Path(out), options)
    base = SampleRunConfig(
        questions=file,
        out=os.fspath(out),
        sample=or_default(config, SampleConfig),
        corag=or_default(corag, CoRAGConfig),
        model=model_options(model),
        retriever=index_options(index),
    )
    # The file is written in our own format, whatever the questions came in.
    run = with_keywords(base, {**options, **{name: read_as[name] for name in read_as if name != "scorer"}})
    question_list = usable_questions(run)
    read_anew()
    run.corag.check_files()
    async with choose_executor(run.workers, run.batch_size, len(question_list), model, index) as executor:
        await sample_into(run, question_list, executor)
    return ChainSet(run.folder)


@waits
async def make_rows(
    chains: ChainFolder | Sequence[ChainFolder],
    index: Index,
    *,
    out: str | os.PathLike[str],
    model: str | Model | None = None,
    config: RowsConfig | None = None,
) -> RowSet:
    """Turn sampled chains into training rows, tokenised as decoding does.

    Args:
        chains: what :func:`sample_chains` returned, or folders of chains.
        index: the index that the chains were sampled with: it has the passages' texts.
        out: folder of the rows. Rows of the same chains and settings that are there already are left.
        model: the model that will be trained, whose tokenizer the rows are written for; without it the one
            that sampled the chains.
        config: which rows are made.

    Raises:
        ConfigError: for another index than the chains', or a folder that holds other rows.
        DataError: if there is nothing to learn.
    """
    several = chains if isinstance(chains, Sequence) and not isinstance(chains, str) else [chains]
    folders = [os.fspath(each) for each in several]
    asked: Any = asdict(model.options) if isinstance(model, Model) else {"name": model or "default"}
    if model is None and folders:
        asked = read_chain_manifest(Path(folders[0])).last.record.get("model", asked)
    options = MakeRowsConfig(
        folders,
        os.fspath(out),
        asked["name"],
        asked.get("chat", "auto"),
        or_default(config, RowsConfig),
        index.options,
        asked.get("template_args", {}),
    )
    return RowSet(options.out, await make_rows_with(options, index.engine))


def train(rows: RowFolder | Sequence[RowFolder], *, out: str | os.PathLike[str], **options: Any) -> Path:
    """Fine-tune on rows, in a process of its own, and return the folder: ``open_model(adapter=train(...))``.

    The same call again goes on from the last checkpoint. Close a model that is open here first: it has the
    memory.

    Args:
        rows: what :func:`make_rows` returned, or folders of rows.
        out: folder of the adapter, or of the model.
        options: those of 'corag train', such as ``epochs=1``, ``model="Qwen/Qwen3-8B"`` or
            ``launch=("--config_file", "accelerate.yaml")``.

    Raises:
        ConfigError: for settings that cannot be.
        BackendError: if the training failed; it has printed why.
    """
    several = rows if isinstance(rows, Sequence) and not isinstance(rows, str) else [rows]
    base = TrainOptions(rows=[os.fspath(each) for each in several], out=os.fspath(out))
    config = with_keywords(base, options)
    if status := launch_program(SFT, config):
        raise BackendError(f"the training of '{config.out}' ended with status {status}: it has printed why.")
    return Path(out)
