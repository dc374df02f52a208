"""The run: chains for a file of questions, sampled into a folder like that of any other run.

The procedure for one question, the paper's, stands in ``sampling.py``, which knows no files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

from annotated_types import Ge

from corag.chains.config import CoRAGConfig
from corag.core.options.names import LocalPath
from corag.core.options.shared_values import names_on_hub
from corag.core.protocols import Ability, Generator, Retriever
from corag.core.runner import BoundMethod
from corag.core.runs.environment import environment
from corag.core.runs.folder import ANOTHER_OUT, RunFolder
from corag.core.runs.manifest import CHAINS
from corag.core.runs.provenance import settings_of
from corag.core.runs.rows import Row
from corag.core.runs.shards import Shard
from corag.core.system.files import file_digest
from corag.core.system.folder_lock import refuse_if_locked
from corag.core.types import Question
from corag.generation.config import ModelConfig
from eval.experiment.backends import OPENED_ALIASES, Setup, check_setup, require_abilities
from eval.experiment.executor import AnswerTask, Executor, HasFingerprint
from eval.experiment.in_flight import questions_in_flight
from eval.experiment.loop import answer_into
from eval.experiment.open_executor import open_executor, open_search_executor
from eval.experiment.opening import prepare_output
from eval.experiment.questions import QuestionFile, has_gold_answers, keep_usable, question_notes
from eval.experiment.workers.config import WORKERS_ALIASES, WorkersConfig
from ircot.method import IRCoTConfig
from retrieval.config import RetrieverConfig
from training.sampling import SampleConfig, collect_thoughts, sample_chains


@dataclass(frozen=True)
class SampleRunConfig(QuestionFile):
    """Options of 'corag sample'."""

    sample: SampleConfig = field(default_factory=SampleConfig)
    """how many chains, how long, and which are kept."""

    corag: CoRAGConfig = field(default_factory=CoRAGConfig)
    """prompts, passages and token limits, as in decoding; its strategy and stop rule are ignored."""

    ircot: IRCoTConfig = field(default_factory=IRCoTConfig)
    """the same for the source thoughts, which uses nothing of corag."""

    model: ModelConfig = field(default_factory=ModelConfig)
    """the language model and its engine."""

    retriever: RetrieverConfig = field(default_factory=RetrieverConfig)
    """the index or server to search."""

    seed: int = 0
    """random seed; all randomness is derived from it."""

    batch_size: Annotated[int, Ge(0)] = 0
    """questions in flight, per worker; 0 chooses: 64, or 256 with vLLM on a large GPU."""

    out: LocalPath = "auto"
    """folder of the chains; "auto" is chains/NAME-OF-QUESTIONS."""

    max_failed: Annotated[int, Ge(0)] = 0
    """number of questions that may fail before the exit status is 1."""

    workers: WorkersConfig = field(default_factory=WorkersConfig)
    """which processes sample."""

    ALIASES: ClassVar[dict[str, str]] = OPENED_ALIASES | WORKERS_ALIASES

    def __post_init__(self) -> None:
        super().__post_init__()
        chains = self.sample.chains if self.sample.source == "model" else 1
        object.__setattr__(self, "batch_size", questions_in_flight(self.batch_size, self.model, chains))
        object.__setattr__(self, "corag", self.with_task(self.corag))

    @property
    def folder(self) -> Path:
        """Where the chains go."""
        out = (
            Path(self.out) if self.out != "auto" else Path("chains") / Path(self.questions).name.split(".")[0]
        )
        return Shard.parse(self.shard).folder(out) if self.shard else out


def usable_questions(config: SampleRunConfig) -> list[Question]:
    """Return the questions that can be sampled for; print how many cannot, and why.

    Raises :class:`ConfigError` if there are none, or none brings the chain to take over.
    """
    source, questions = config.sample.source, config.load()
    why = "chains are scored by them"
    questions = keep_usable(questions, has_gold_answers, "gold answers", why, strict=config.strict)
    if source == "model" or (source == "given" and any(each.decomposition for each in questions)):
        return questions
    have = "'corag/multihopqa' has" if source == "given" else "'corag world' and MuSiQue have"
    why = f"sample.source={source} follows it, and {have} some"
    return keep_usable(questions, lambda each: each.decomposition, "decomposition", why, strict=config.strict)


async def sample_dataset(config: SampleRunConfig) -> None:
    """Sample for the questions that the folder does not hold yet.

    Raises as :func:`usable_questions` does, before an engine opens.
    """
    questions = usable_questions(config)
    if config.sample.source == "thoughts" and not config.workers.enabled:
        opening = open_search_executor(config.retriever)
    else:
        setup = Setup(method=["corag"], model=config.model, retriever=config.retriever, corag=config.corag)
        check_setup(setup)
        opening = open_executor(setup, config.workers, config.batch_size, len(questions))
    refuse_if_locked(config.folder, advice=ANOTHER_OUT)
    prepare_output(config.folder)
    async with opening as executor:
        await sample_into(config, questions, executor)


async def sample_into(config: SampleRunConfig, questions: Sequence[Question], executor: Executor) -> None:
    """Sample for those questions with an executor that has a model and an index open."""
    if config.sample.source != "thoughts":
        require_abilities("sampling for training", {Ability.SCORES: ""}, executor.model)
    assert executor.index is not None
    method: BoundMethod = partial(sample_chains, config=config.sample, corag=config.corag)
    if config.sample.source == "thoughts":
        method = partial(collect_thoughts, ircot=config.ircot)
    settings = chain_settings(config, executor.model, executor.index)
    notes = _run_notes(config) | dict(executor.manifest_entry()) | question_notes(questions)
    with RunFolder(config.folder, settings, notes) as run:
        await answer_into(
            run,
            questions,
            SampleTask(method, config.seed),
            executor,
            title="sample",
            batch_size=config.batch_size,
            shard=config.shard,
        )


@dataclass(frozen=True)
class SampleTask(AnswerTask):
    """Samples for a question, and keeps no steps."""

    # The steps would repeat the answer, which has every candidate, at ten times the length.

    async def __call__(self, question: Question, generator: Generator, retriever: Retriever | None) -> Row:
        """Sample for one question."""
        return replace(await super().__call__(question, generator, retriever), steps=())


def chain_settings(
    config: SampleRunConfig, generator: HasFingerprint, retriever: HasFingerprint
) -> dict[str, Any]:
    """Return everything that the chains depend on."""
    model = generator.fingerprint
    # A chain ends at a sub-answer that is an alias, and is scored by the likeliest one.
    aliases = {"aliases": file_digest(config.aliases)} if config.aliases else {}
    options = {"sample": settings_of(config.sample)}
    if config.sample.source == "thoughts":
        model = ""  # gold thoughts are searched with alone
        prompts = [config.ircot.reasoning_template()]
        options["ircot"] = settings_of(config.ircot)
    else:
        prompts = list(config.corag.templates())
        options["corag"] = settings_of(config.corag)
    return {
        "method": CHAINS,
        "options": options,
        "prompts": [template.identity for template in prompts],
        "questions": config.source,
        "seed": config.seed,
        "model": model,
        "retriever": retriever.fingerprint,
    } | aliases


def _run_notes(config: SampleRunConfig) -> dict[str, Any]:
    names: dict[str, Any] = {
        "questions": config.questions,
        "batch_size": config.batch_size,
        "shard": config.shard,
    }
    names |= {"model": asdict(config.model), "retriever": asdict(config.retriever)}
    return environment() | names | {"from_hub": names_on_hub(config.model, config.retriever)}
