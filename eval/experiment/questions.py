"""Which questions a command works on."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Self

from annotated_types import Ge

from corag.chains.config import CoRAGConfig
from corag.core.errors import ConfigError
from corag.core.options.classes import Options
from corag.core.options.names import LocalPath, Mark, NameOrPath
from corag.core.runs.shards import Shard
from corag.core.seeds import stable_hash
from corag.core.system.files import file_digest
from corag.core.types import Question
from eval.datasets import DATASETS, load_questions
from eval.datasets.records import source_digest
from eval.experiment.progress import print_line
from retrieval.config import RetrieverConfig


def has_gold_answers(question: Question) -> bool:
    """Whether a question can be scored."""
    return bool(question.answers) and all(map(str.strip, question.answers))


def keep_usable(
    questions: Sequence[Question],
    is_usable: Callable[[Question], object],
    lacking: str,
    why: str,
    *,
    strict: bool = False,
) -> list[Question]:
    """Return the usable questions, and print how many are left out.

    ``lacking``: what the others have none of; ``why``: what it is for. Raises :class:`ConfigError` if no
    question is usable; if ``strict``, if some are not.
    """
    kept = [each for each in questions if is_usable(each)]
    if len(kept) == len(questions):
        return kept
    first = next(each.id for each in questions if not is_usable(each))
    count = f"{len(questions) - len(kept):,} of {len(questions):,}"
    sentence = f"{count} questions have no {lacking}, such as '{first}'"
    if strict or not kept:
        raise ConfigError(f"{sentence}: {why}, so leave them out.")
    print_line(f"corag: {sentence}, so they are left out: {why}.")
    return kept


def question_notes(questions: Sequence[Question]) -> dict[str, Any]:
    """Return what a run's start records of its questions: how many, and which of them a program made."""
    makers = dict.fromkeys(each.synthetic for each in questions if each.synthetic)
    synthetic_count = sum(bool(each.synthetic) for each in questions)
    share = "" if synthetic_count == len(questions) else f" ({synthetic_count:,} of {len(questions):,})"
    synthetic = {"synthetic": f"{'; '.join(makers)}{share}"} if makers else {}
    return {"asked": len(questions), **synthetic}


@dataclass(frozen=True)
class QuestionFile(Options):
    """Options that choose questions."""

    questions: NameOrPath = ""
    """a question file, or the name of a Hugging Face dataset; for beir a file of relevance judgements
    (nq/qrels/test.tsv)."""

    dataset: Annotated[str, Mark.PUBLIC] = "jsonl"
    """the file's format and scorer, such as jsonl, hotpotqa, musique, flashrag or kilt_fever ('corag
    list')."""

    split: str = ""
    """split of a Hugging Face dataset."""

    subset: str = ""
    """configuration of a Hugging Face dataset, such as "distractor"."""

    shuffle: int = 0
    """shuffle the questions with this seed, before skip and limit; 0 keeps the file's order. For sorted
    files, such as MuSiQue's (by hops), whose first hundred are no random sample."""

    skip: Annotated[int, Ge(0)] = 0
    """skip the first n questions."""

    limit: Annotated[int, Ge(0)] = 0
    """number of questions to use, after skip; 0 for all."""

    shard: str = ""
    """process one shard of the questions only, such as "2/8": every eighth, from the second on."""

    aliases: LocalPath = ""
    """2WikiMultihopQA's file of answer aliases (id_aliases.json), if you have it."""

    columns: Annotated[list[str], Mark.PUBLIC] = field(default_factory=list)
    """your file's names for our fields (id, question, answers, supporting ...), such as
    "question=prompt,answers=gold"; the official formats' own are known. A field within another is written
    with a dot (answers=answer.aliases)."""

    encoding: Annotated[str, Mark.PUBLIC] = ""
    """encoding of text that is not UTF-8, such as cp1252; "" takes the likeliest and says which."""

    delimiter: Annotated[str, Mark.PUBLIC] = ""
    """between the cells of a table, such as ;; "" is a comma for .csv and a tab for .tsv."""

    strict: bool = False
    """refuse the whole file at the first invalid record, instead of skipping and counting such records."""

    def __post_init__(self) -> None:
        if not self.questions:
            raise ConfigError(
                "no questions were given: name a file with 'questions' ('corag world' writes one)."
            )
        if self.shard:
            Shard.parse(self.shard)

    def with_task(self, corag: CoRAGConfig) -> CoRAGConfig:
        """Return CoRAG's options with its paper's description of the dataset's task, if none is stated."""
        dataset = DATASETS.get(self.dataset)
        is_usual = corag.task == CoRAGConfig.task
        return replace(corag, task=dataset.task) if dataset and dataset.task and is_usual else corag

    @property
    def source(self) -> dict[str, str]:
        """What tells these questions from others, for a run's settings."""
        digest = source_digest(self.questions)
        if digest and self.dataset in DATASETS:
            for file in DATASETS[self.dataset].source_files(self.questions):
                digest = stable_hash(f"{digest} {file_digest(file)}")
        return {
            "source": digest or self.questions,
            "dataset": self.dataset,
            "split": self.split,
            "subset": self.subset,
        } | {
            name: value
            for name, value in (
                ("columns", ",".join(self.columns)),
                ("encoding", self.encoding),
                ("delimiter", self.delimiter),
            )
            if value
        }

    @property
    def question_options(self) -> dict[str, Any]:
        """The options of a question file alone, for the configuration of another command."""
        return {each.name: getattr(self, each.name) for each in fields(QuestionFile)}

    def load(self) -> Sequence[Question]:
        """Load the chosen questions. Raises :class:`DataError` for a file that cannot be read."""
        last = self.skip + self.limit if self.limit else 0
        questions = load_questions(
            self.questions,
            self.dataset,
            self.split,
            0 if self.shuffle else last,
            subset=self.subset,
            aliases=self.aliases,
            columns=self.columns,
            encoding=self.encoding,
            delimiter=self.delimiter,
            strict=self.strict,
        )
        if self.shuffle:
            questions = random.Random(self.shuffle).sample(questions, len(questions))
        count = len(questions)
        questions = questions[self.skip : last or None]
        if not questions:
            raise ConfigError(
                f"skip is {self.skip}, but '{self.questions}' has {count} questions: skip fewer."
            )
        return Shard.parse(self.shard).select(questions) if self.shard else questions


@dataclass(frozen=True)
class FurtherQuestions(QuestionFile):
    """Dev or test questions, besides those that a command is about; there are none without ``questions``."""

    dataset: Annotated[str, Mark.PUBLIC] = ""
    """the file's format and scorer; "" for those of the main questions, along with their aliases and
    columns."""

    retriever: RetrieverConfig = field(default_factory=RetrieverConfig)
    """its index, if it is not that of the main questions."""

    def __post_init__(self) -> None:
        if self.shard:
            raise ConfigError(
                f"dev and test questions are not sharded, but these are to be shard {self.shard}: choose "
                "some of them with their skip and limit."
            )
        if self.questions:
            super().__post_init__()

    @property
    def has_index(self) -> bool:
        """Whether they have an index or server of their own to search."""
        return bool(self.retriever.index or self.retriever.url)

    def beside(self, main: QuestionFile) -> Self:
        """Return them with what they take over from the main questions filled in."""
        dataset = self.dataset or main.dataset
        is_same_dataset = dataset == main.dataset
        return replace(
            self,
            dataset=dataset,
            aliases=self.aliases or (main.aliases if is_same_dataset else ""),
            columns=self.columns or (main.columns if is_same_dataset else []),
            strict=self.strict or main.strict,
        )
