"""The run: chains for a file of questions, sampled into a folder like that of any other run.

The procedure for one question, the paper's, stands in ``sampling.py``, which knows no files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from corag.config import CoRAGConfig
from core.errors import ConfigError
from core.files import file_digest
from core.options import identity_of
from core.protocols import Ability, Generator, Retriever
from core.runner import Method
from core.runs.environment import environment
from core.runs.failures import check_max_failed
from core.runs.folder import RunFolder, writable_folder
from core.runs.manifest import CHAINS
from core.runs.rows import Row
from core.runs.shards import Shard, note_questions
from core.types import Question
from eval.experiment.backends import OPENED_ALIASES, Setup, require_abilities
from eval.experiment.crews import open_crew, open_searcher
from eval.experiment.opening import ENGINE_LOG, log_to
from eval.experiment.progress import answer_waiting
from eval.experiment.questions import QuestionFile
from eval.workers.config import WORKERS_ALIASES, WorkersConfig
from eval.workers.work import Answering, Described, Workforce
from generation.config import ModelConfig
from ircot.method import IRCoTConfig
from retrieval.config import RetrieverConfig
from training.sampling import (
    SampleConfig,
    SampledChains,
    check_question,
    collect_thoughts,
    sample_chains,
)


@dataclass(frozen=True)
class SampleRunConfig(QuestionFile):
    """Options of 'corag sample'.

    Attributes:
        sample: how many chains, how long, and which are kept.
        corag: prompts, passages and token limits, as in decoding; its strategy is not used, its stop rule
            only for chains whose answer is noted.
        ircot: the same for the source thoughts, which uses nothing of corag.
        model: the language model and its engine.
        retriever: the index or server to search.
        seed: all randomness derives from it.
        batch_size: questions in flight at the same time, with each worker if there are several.
        out: folder of the chains; "auto" is chains/NAME-OF-QUESTIONS.
        max_failed: questions that may fail; if more do, the exit status is 1.
        workers: who samples: this process, or others.
    """

    sample: SampleConfig = field(default_factory=SampleConfig)
    corag: CoRAGConfig = field(default_factory=CoRAGConfig)
    ircot: IRCoTConfig = field(default_factory=IRCoTConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    retriever: RetrieverConfig = field(default_factory=RetrieverConfig)
    seed: int = 0
    batch_size: int = 64
    out: str = "auto"
    max_failed: int = 0
    workers: WorkersConfig = field(default_factory=WorkersConfig)

    ALIASES: ClassVar[dict[str, str]] = OPENED_ALIASES | WORKERS_ALIASES

    def __post_init__(self) -> None:
        super().__post_init__()
        check_max_failed(self.max_failed)
        if self.batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, but it is {self.batch_size}.")

    @property
    def folder(self) -> Path:
        """Where the chains go."""
        out = (
            Path(self.out) if self.out != "auto" else Path("chains") / Path(self.questions).name.split(".")[0]
        )
        return Shard.parse(self.shard).folder(out) if self.shard else out


# What older versions did in another way, so that a folder that they began is not gone on with.
_MADE_ANEW = {"model": "tries over the whole chain", "decomposition": "relations asked as questions"}


async def sample_dataset(config: SampleRunConfig, questions: Sequence[Question]) -> None:
    """Sample for the questions that the folder does not hold yet.

    Raises :class:`core.errors.DataError` for a question that cannot be sampled for, before an engine opens.
    """
    for question in questions:
        check_question(question, config.sample)
    if config.sample.source == "thoughts" and not config.workers.wanted:
        opening = open_searcher(config.retriever)
    else:
        setup = Setup(method=["corag"], model=config.model, retriever=config.retriever, corag=config.corag)
        opening = open_crew(setup, config.workers, config.batch_size)
    writable_folder(config.folder)
    log_to(config.folder / ENGINE_LOG)
    async with opening as crew:
        await sample_into(config, questions, crew)


async def sample_into(config: SampleRunConfig, questions: Sequence[Question], crew: Workforce) -> None:
    """Do so with those who have a model and an index open."""
    if config.sample.source != "thoughts":
        require_abilities("sampling for training", {Ability.SCORES: ""}, crew.model)
    assert crew.index is not None
    noted = _chosen(config) | dict(crew.noted())
    with RunFolder(config.folder, settings_of(config, crew.model, crew.index), noted) as run:
        if config.shard:
            note_questions(config.folder, [question.id for question in questions])
        method: Method = partial(sample_chains, config=config.sample, corag=config.corag)
        if config.sample.source == "thoughts":
            method = partial(collect_thoughts, ircot=config.ircot)
        work = SamplingOnly(method, config.seed)
        in_flight, parts = crew.in_flight(config.batch_size), ("chains", _chains)
        await answer_waiting(
            run, questions, crew.doing(work), "sample", in_flight=in_flight, parts=parts, more=crew.said
        )


@dataclass(frozen=True)
class SamplingOnly(Answering):
    """Sample for a question, and keep no steps.

    They would say all of it again, at ten times the length: the answer has every candidate.
    """

    async def __call__(self, question: Question, generator: Generator, retriever: Retriever | None) -> Row:
        """Sample for one question."""
        return replace(await super().__call__(question, generator, retriever), steps=())


def settings_of(config: SampleRunConfig, generator: Described, retriever: Described) -> dict[str, Any]:
    """Everything that the chains depend on."""
    # A chain ends at a sub-answer that is an alias, and is scored by the likeliest one. Without aliases
    # nothing is noted, so that folders of older versions are gone on with.
    aliases = {"aliases": file_digest(config.aliases)} if config.aliases else {}
    options = {"sample": identity_of(config.sample)}
    if config.sample.source in _MADE_ANEW:
        options["sample"] |= {"made": _MADE_ANEW[config.sample.source]}
    if config.sample.source == "thoughts":
        prompts = [config.ircot.reasoning_template()]
        options["ircot"] = identity_of(config.ircot)
    else:
        prompts = list(config.corag.templates())
        options["corag"] = identity_of(config.corag)
    return {
        "method": CHAINS,
        "options": options,
        "prompts": [template.identity for template in prompts],
        "questions": config.source,
        # Gold thoughts are searched with alone.
        "model": "" if config.sample.source == "thoughts" else generator.fingerprint,
        "retriever": retriever.fingerprint,
        "seed": config.seed,
    } | aliases


def _chosen(config: SampleRunConfig) -> dict[str, Any]:
    names = {"questions": config.questions, "batch_size": config.batch_size, "shard": config.shard}
    return environment() | names | {"model": asdict(config.model), "retriever": asdict(config.retriever)}


def _chains(row: Row) -> int:
    return len(row.answer.chains) if isinstance(row.answer, SampledChains) else 0
