"""Reinforcement of the next sub-query by what it brings, with TRL.

    accelerate launch training/grpo.py --config training/configs/grpo_cpu.yaml --chains CHAINS \
        --retriever.index INDEX --out FOLDER

Sub-queries are sampled after the beginnings of sampled chains. Each is searched for and answered, and its
reward is the gain in the gold answer's likelihood; repeats and blanks are worth less than any other. Answers
and scores come from the adapter that the training starts from, frozen. Of the sub-queries after the same hops
those that gain more than the others become likelier (GRPO, Shao et al. 2024).

The folder gets the adapter, ``training.json``, which says how it was made, and ``metrics.jsonl`` with reward,
length, repeats and dev EM as they went. The same command goes on from the last checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from corag.config import CoRAGConfig
from corag.method import corag as answer_by_corag
from core.errors import BackendError, ConfigError, DataError
from core.gather import gather
from core.protocols import Ability, Generator, Retriever
from core.runner import answer_question
from core.text import exact_match
from core.tools import Tools
from core.types import Question
from eval.datasets.same import in_common
from eval.experiment.backends import require_abilities, require_index
from eval.experiment.background import background
from eval.experiment.opening import open_index_quietly, open_model_quietly
from generation.models import context_window, model_folder
from generation.rendering import Renderer
from training import tables
from training.chains import config_of, manifest_of_chains, read_chains
from training.config import GrpoConfig
from training.reward import Prefix, Rewarder, prefixes_of
from training.rows import check_index
from training.tuning import (
    METRICS,
    go_on,
    how_to_use,
    identity_of_training,
    load_tokenizer,
    make_model,
    perform,
    ready,
    save,
    start_program,
    trainer_arguments,
    warn_of_held_out,
)


@dataclass(frozen=True)
class Sources:
    """Where the prefixes come from, as far as it is asked whether they are for testing."""

    settings: dict[str, Any]
    files: list[str]


@dataclass(frozen=True)
class Lesson:
    """What is read before anything is opened: beginnings of chains, how they go on, the dev questions."""

    renderer: Renderer
    corag: CoRAGConfig
    prefixes: Sequence[Prefix]
    dev: Sequence[Question]


@dataclass
class Opened:
    """What the reward and the dev questions ask: opened before the training, closed after it."""

    generator: Generator
    retriever: Retriever
    dev_retriever: Retriever

    async def close(self) -> None:
        """Close all of them."""
        await self.generator.close()
        await self.retriever.close()
        if self.dev_retriever is not self.retriever:
            await self.dev_retriever.close()


def main(config: GrpoConfig) -> dict[str, Any]:
    """Train, save the adapter with its manifest, and return the manifest.

    Raises :class:`ConfigError` or :class:`DataError` for chains that do not suit the model or the options,
    before anything is opened.
    """
    require_index(config.retriever)
    folder = model_folder(config.model)
    lesson = load_lesson(config, folder)
    opened: list[Opened] = []

    def make() -> Any:
        opened.append(background().run(open_all(config)))
        return make_trainer(config, folder, lesson, opened[0])

    try:
        return perform(
            config,
            settings_of(config, folder),
            f"model {config.model} and {len(lesson.prefixes)} beginnings of chains",
            make,
            lambda trainer: train(trainer, config),
        )
    finally:
        for each in opened:
            background().run(each.close())


def train(trainer: Any, config: GrpoConfig) -> dict[str, Any]:
    """Train from the last checkpoint on, save, and return figures for the manifest.

    ``rewards`` and ``dev_em``: what was logged first and last.
    """
    done = go_on(trainer, config)
    save(trainer, config, Path(config.out))
    logged = trainer.state.log_history
    rewards = [entry["reward"] for entry in logged if entry.get("reward") is not None]
    exams = [entry["dev_em"] for entry in logged if "dev_em" in entry]
    return {
        "steps": done.steps,
        "epochs": done.epochs,
        "rewards": rewards[:1] + rewards[1:][-1:],
        "dev_em": exams[:1] + exams[1:][-1:],
        "tokens": trainer.state.num_input_tokens_seen,
        "seconds": done.seconds,
        "resumed_from": done.resumed_from,
    }


def said_of(config: GrpoConfig, result: dict[str, Any]) -> str:
    """Say in two lines what a training made, and how to use it."""
    shown = {"reward": result["rewards"], "dev EM": result["dev_em"]}
    changes = "".join(
        f", {name} {' -> '.join(f'{value:.3f}' for value in values)}"
        for name, values in shown.items()
        if values
    )
    return how_to_use(config, f"{result['steps']} steps, {result['seconds']:.0f} s{changes}")


def load_lesson(config: GrpoConfig, folder: str) -> Lesson:
    """Read what is trained on and what is asked meanwhile.

    Raises as :func:`load_prefixes` and :func:`check_dev` do.
    """
    renderer = Renderer.load(folder, config.engine.chat)
    corag = config_of([Path(chains) for chains in config.chains])
    prefixes = load_prefixes(config, folder, renderer, corag)
    dev = load_dev(config)
    check_dev(config, dev, [each.question for each in prefixes])
    return Lesson(renderer, corag, prefixes, dev)


def load_prefixes(
    config: GrpoConfig, folder: str, renderer: Renderer, corag: CoRAGConfig
) -> Sequence[Prefix]:
    """Return the beginnings of the chains, with what asks for the next sub-query.

    Raises :class:`DataError` for one that does not fit, or if there are none.
    """
    folders = [Path(chains) for chains in config.chains]
    files = tables.question_files(folders)
    warn_of_held_out(", ".join(config.chains), Sources({"chains": tables.identify(folders)}, files))
    rows = sorted(read_chains(folders), key=lambda row: row.question.id)
    found = [each for row in rows for each in prefixes_of(row, config.per_question, renderer, corag)]
    if not found:
        raise DataError(
            f"the chains in {', '.join(config.chains)} have no sampled hops to begin with: sample some with "
            "'corag sample' (source 'model')."
        )
    limit = config.max_length or context_window(folder)
    for each in found:
        length = len(each.prompt_ids) + corag.max_sub_query_tokens
        if limit and length > limit:
            raise DataError(
                f"the prompt of hop {len(each.before) + 1} of question '{each.question.id}' needs {length} "
                f"tokens with its reply, more than {limit}: choose a larger --max_length, or sample shorter "
                "chains."
            )
    return found


def check_dev(config: GrpoConfig, dev: Sequence[Question], trained: Sequence[Question]) -> None:
    """Raise :class:`ConfigError` if a dev question is trained on: dev EM would be a lie.

    :func:`eval.datasets.same.in_common` says which are the same.
    """
    if not dev:
        return
    dataset = dev_dataset(config)
    published = dataset != "jsonl" and dataset in map(dataset_of, config.chains)
    if shared := in_common(dev, trained, published=published):
        raise ConfigError(
            f"{len(shared)} of the {len(dev)} dev questions are trained on, such as '{shared[0].id}', but "
            "dev EM is to be of questions that are not: take others with --dev.skip and --dev.limit, or from "
            "another file."
        )


def load_dev(config: GrpoConfig) -> Sequence[Question]:
    """Load the dev questions; none if none are named."""
    if not config.dev.questions:
        return ()
    return replace(config.dev, dataset=dev_dataset(config)).load()


def dev_dataset(config: GrpoConfig) -> str:
    """Return the format of the dev questions: that of the chains' own if none is named."""
    return config.dev.dataset or dataset_of(config.chains[0])


def dataset_of(chains: str) -> str:
    """Return the format of the questions that chains were sampled for."""
    return str(manifest_of_chains(Path(chains)).settings["questions"].get("dataset") or "jsonl")


def settings_of(config: GrpoConfig, folder: str) -> dict[str, Any]:
    """Everything that the result depends on, as it stands in training.json."""
    folders = [Path(chains) for chains in config.chains]
    chains = [
        each | {"retriever": manifest_of_chains(folder).retriever}
        for folder, each in zip(folders, tables.identify(folders), strict=True)
    ]
    engine = {"backend": config.engine.backend, "dtype": config.engine.dtype, "chat": config.engine.chat}
    # Older versions took the shortest beginnings alone, so a row of theirs is another.
    learned_from = {"chains": chains, "engine": engine, "beginnings": "of every length"}
    return identity_of_training(config, folder, "padded", learned_from)


async def open_all(config: GrpoConfig) -> Opened:
    """Open the index, the frozen model that answers and scores, and the dev questions' own index if any."""
    retriever = await open_index_quietly(config.retriever)
    for chains in config.chains:
        check_index(Path(chains), retriever)
    engine = replace(config.engine, name=config.model)
    if not engine.urls:  # a server has the adapter that it serves
        engine = replace(engine, adapter=config.adapter)
    generator = await open_model_quietly(engine)
    require_abilities("the reward", {Ability.SCORES: ""}, generator)
    own = config.dev.questions and config.dev.has_index
    dev = await open_index_quietly(config.dev.retriever) if own else retriever
    return Opened(generator, retriever, dev)


def make_trainer(config: GrpoConfig, folder: str, lesson: Lesson, opened: Opened) -> Any:
    """Build TRL's trainer."""
    import datasets

    from training.prefix_trainer import DevExam, PrefixTrainer
    from training.trainer import MetricsFile, SpokenSteps

    renderer, corag, prefixes = lesson.renderer, lesson.corag, lesson.prefixes
    # Before the model: it starts the process group.
    chosen = arguments(config, corag)
    # Prompts of a batch end in the same column, so padding stands before them: our attention knows none.
    plain = replace(config, attention="sdpa") if config.attention == "auto" else config
    model, peft_config = make_model(plain, folder)
    ends = model.generation_config.eos_token_id
    ends = {*(ends if isinstance(ends, list) else [ends]), renderer.end_of_turn()} - {None}
    model.generation_config.eos_token_id = sorted(ends)
    rewarder = Rewarder(prefixes, opened.generator, opened.retriever, renderer, corag, config.reward)
    callbacks: list[Any] = [SpokenSteps(), MetricsFile(Path(config.out) / METRICS)]
    if lesson.dev:
        exam = make_exam(config, folder, lesson, opened.dev_retriever)
        callbacks.append(DevExam(exam, config.eval_steps))
    trainer = PrefixTrainer(
        model=model,
        prompt_ids={each.prompt: each.prompt_ids for each in prefixes},
        reward_funcs=[rewarder.information_gain],
        args=chosen,
        train_dataset=datasets.Dataset.from_dict(
            {"prompt": [each.prompt for each in prefixes], "number": list(range(len(prefixes)))}
        ),
        processing_class=load_tokenizer(folder),
        callbacks=callbacks,
        peft_config=peft_config,
    )
    if lesson.dev:
        callbacks[-1].trainer = trainer
    return ready(trainer)


def make_exam(config: GrpoConfig, folder: str, lesson: Lesson, retriever: Retriever) -> Any:
    """Return what answers the dev questions with a model: greedily, with the chains' prompts and passages."""
    from generation.transformers_engine import TransformersGenerator

    decoding = replace(lesson.corag, strategy="greedy", max_hops=config.dev_hops, stop=config.dev_stop)
    window = context_window(folder) or 2048

    def exam(model: Any) -> Mapping[str, float]:
        size = config.engine.batch_size
        generator = TransformersGenerator(model, lesson.renderer, window, size, "in training")
        return background().run(examine(lesson.dev, generator, retriever, decoding))

    return exam


async def examine(
    questions: Sequence[Question], generator: Generator, retriever: Retriever, corag: CoRAGConfig
) -> Mapping[str, float]:
    """Answer questions and return exact match, from 0 to 1, and hops and repeats per question.

    A question that fails has no right answer. Raises :class:`BackendError` if all of them fail.
    """
    method = partial(answer_by_corag, config=corag)
    rows = await gather(
        answer_question(question, method, Tools(question, generator, retriever)) for question in questions
    )
    answers = [row.answer for row in rows if row.answer is not None]
    if not answers:
        raise BackendError(f"all {len(rows)} dev questions failed, the first with: {rows[0].error}")
    right = [row.answer is not None and exact_match(row.answer.text, row.question.answers) for row in rows]
    return {
        "dev_em": sum(right) / len(rows),
        "dev_hops": sum(each.steps for each in answers) / len(answers),
        "dev_repeats": sum(getattr(each, "repeats", 0) for each in answers) / len(answers),
    }


def arguments(config: GrpoConfig, corag: CoRAGConfig) -> Any:
    """Say it to TRL."""
    from trl import GRPOConfig

    own = {
        "num_generations": config.generations,
        "max_completion_length": corag.max_sub_query_tokens,
        "temperature": config.temperature,
        "beta": config.beta,
        "loss_type": config.loss,
        "scale_rewards": config.scale_rewards,
    }
    return trainer_arguments(GRPOConfig, config, own, evaluates=False)


if __name__ == "__main__":
    summary = "reinforce the sub-queries that bring the answer nearer"
    start_program(GrpoConfig, main, said_of, "training/grpo.py", summary)
