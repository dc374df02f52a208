"""Which questions a command works on."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

from core.errors import ConfigError
from core.files import file_digest
from core.runs.shards import Shard
from core.seeds import stable_hash
from core.types import Question
from eval.datasets import load_questions
from eval.datasets.kilt import KILT_TASKS
from eval.datasets.single_hop import beir_queries
from retrieval.config import RetrieverConfig


@dataclass(frozen=True)
class QuestionFile:
    """Options that choose questions.

    Attributes:
        questions: a question file, or the name of a Hugging Face dataset; for beir a file of judgements
            (nq/qrels/test.tsv).
        dataset: the file's format and scorer, such as jsonl, hotpotqa, musique, flashrag or kilt_fever
            ('corag datasets').
        split: which split of a Hugging Face dataset.
        subset: which configuration of a Hugging Face dataset, such as "distractor".
        shuffle: take the questions in an order drawn from this number, before skip and limit; 0 leaves them
            in the file's. For files that are sorted, such as MuSiQue's by hops, of which the first hundred
            are no sample.
        skip: leave out the first so many questions.
        limit: take so many questions only, the first after those; 0 for all.
        shard: take a share of these only, such as "2/8": every eighth from the second on.
        aliases: 2WikiMultihopQA's file of answer aliases (id_aliases.json), if at hand.
    """

    questions: str = ""
    dataset: str = "jsonl"
    split: str = ""
    subset: str = ""
    shuffle: int = 0
    skip: int = 0
    limit: int = 0
    shard: str = ""
    aliases: str = ""

    IMPLIED: ClassVar[dict[str, dict[str, dict[str, str]]]] = {
        "dataset": {name: {"corag.task": each.task} for name, each in KILT_TASKS.items()}
    }

    def __post_init__(self) -> None:
        if not self.questions:
            raise ConfigError(
                "no questions were given: name a file with --questions ('corag world' writes one)."
            )
        if self.limit < 0 or self.skip < 0:
            raise ConfigError(
                "limit must be 0 (all questions) or a number of questions, and skip not below 0, but they "
                f"are {self.limit} and {self.skip}."
            )
        if self.shard:
            Shard.parse(self.shard)

    @property
    def source(self) -> dict[str, str]:
        """What tells these questions from others, for a run's settings."""
        digest = file_digest(self.questions)
        if digest and self.dataset == "beir":  # the file has the judgements only: the questions are beside it
            digest = stable_hash(f"{digest} {file_digest(beir_queries(self.questions))}")
        return {
            "source": digest or self.questions,
            "dataset": self.dataset,
            "split": self.split,
            "subset": self.subset,
        }

    @property
    def question_options(self) -> dict[str, Any]:
        """The options of a question file alone, for the configuration of another command."""
        return {each.name: getattr(self, each.name) for each in fields(QuestionFile)}

    def load(self) -> Sequence[Question]:
        """Load the chosen questions. Raises :class:`core.errors.DataError` for a file that cannot be read."""
        last = self.skip + self.limit if self.limit else 0
        questions = load_questions(
            self.questions,
            self.dataset,
            self.split,
            0 if self.shuffle else last,
            subset=self.subset,
            aliases=self.aliases,
        )
        if self.shuffle:
            questions = random.Random(self.shuffle).sample(questions, len(questions))
        questions = questions[self.skip : last or None]
        if not questions:
            raise ConfigError(
                f"skip leaves out all {self.skip} questions of '{self.questions}' and more: skip fewer."
            )
        return Shard.parse(self.shard).of(questions) if self.shard else questions


@dataclass(frozen=True)
class FurtherQuestions(QuestionFile):
    """Dev or test questions, besides those that a command is about; there are none without ``questions``.

    Attributes:
        dataset: the file's format and scorer; "" for those of the main questions, along with their aliases.
        retriever: its index, if it is not that of the main questions.
    """

    dataset: str = ""
    retriever: RetrieverConfig = field(default_factory=RetrieverConfig)

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
        aliases = self.aliases or (main.aliases if dataset == main.dataset else "")
        return replace(self, dataset=dataset, aliases=aliases)
