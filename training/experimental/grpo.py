"""Reinforcement of the next sub-query by what it brings, with TRL.

    accelerate launch training/experimental/grpo.py \
        --config training/experimental/configs/grpo_cpu.yaml --chains CHAINS \
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

from corag.chains.config import CoRAGConfig
from corag.chains.method import corag as answer_by_corag
from corag.core.errors import BackendError, ConfigError, DataError
from corag.core.gather import gather
from corag.core.protocols import Ability, Generator, Retriever
from corag.core.runner import answer_question
from corag.core.text import exact_match
from corag.core.tools import Tools
from corag.core.types import Question
from corag.generation.models import context_window, model_folder, name_ends
from corag.generation.rendering import Renderer
from corag.generation.trained_for import trained_for
from eval.api.background import background
from eval.datasets.same import in_common
from eval.experiment.backends import require_abilities, require_index
from eval.experiment.opening import open_index_quietly, open_model_quietly
from training import tables
from training.chains import load_corag_options, read_chain_manifest, read_chains
from training.checks import check_training
from training.experimental.config import GrpoConfig
from training.experimental.placement import check_placement
from training.experimental.reward import Prefix, Rewarder, list_prefixes
from training.model_setup import load_model, load_padding_tokenizer, save_model
from training.program import (
    run_training,
    start_program,
    train_or_resume,
    training_identity,
    warn_of_test_questions,
)
from training.rows import check_index
from training.trl_arguments import build_trl_arguments
from training.usage import with_usage


@dataclass(frozen=True)
class ChainSources:
    """Which chains and question files the prefixes come from, for the warning about test questions."""

    settings: dict[str, Any]
    files: list[str]


@dataclass(frozen=True)
class GrpoInputs:
    """What is read before anything is opened: beginnings of chains, CoRAG's options, dev questions."""

    renderer: Renderer
    corag: CoRAGConfig
    prefixes: Sequence[Prefix]
    dev: Sequence[Question]


@dataclass
class Backends:
    """Engine and indexes of the reward and the dev questions: opened before the training, closed after."""

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
    check(config)
    folder = model_folder(config.model)
    inputs = load_inputs(config, folder)
    backends: list[Backends] = []

    def make() -> Any:
        backends.append(background().run(open_all(config)))
        return make_trainer(config, folder, inputs, backends[0])

    try:
        return run_training(
            config,
            training_settings(config, folder),
            f"model {config.model} and {len(inputs.prefixes)} beginnings of chains",
            make,
            lambda trainer: train(trainer, config),
        )
    finally:
        for each in backends:
            background().run(each.close())


def check(config: GrpoConfig) -> None:
    """Refuse what cannot be trained, before torch is loaded.

    Raises as :func:`training.checks.check_training` does; :class:`DataError` also for chains that are
    missing.
    """
    require_index(config.retriever)
    check_placement(config)
    check_training(config, identify_chains(config))


def train(trainer: Any, config: GrpoConfig) -> dict[str, Any]:
    """Train from the last checkpoint on, save, and return figures for the manifest.

    ``rewards`` and ``dev_em``: what was logged first and last.
    """
    summary = train_or_resume(trainer, config)
    save_model(trainer, config, Path(config.out))
    log = trainer.state.log_history
    rewards = [entry["reward"] for entry in log if entry.get("reward") is not None]
    dev_em = [entry["dev_em"] for entry in log if "dev_em" in entry]
    return {
        "steps": summary.steps,
        "epochs": summary.epochs,
        "rewards": rewards[:1] + rewards[1:][-1:],
        "dev_em": dev_em[:1] + dev_em[1:][-1:],
        "tokens": trainer.state.num_input_tokens_seen,
        "seconds": summary.seconds,
        "resumed_from": summary.resumed_from,
        "trained_for": trained_for(config.adapter, config.model),  # what it went on from was
    }


def summarise(config: GrpoConfig, manifest: dict[str, Any]) -> str:
    """Return lines on what a training made, and how to use it."""
    result = manifest["result"]
    figures = {"reward": result["rewards"], "dev EM": result["dev_em"]}
    changes = "".join(
        f", {name} {' -> '.join(f'{value:.3f}' for value in values)}"
        for name, values in figures.items()
        if values
    )
    summary = f"{result['steps']} steps, {result['seconds']:.0f} s{changes}"
    return with_usage(config, summary, manifest["settings"], config.retriever.index)


def load_inputs(config: GrpoConfig, folder: str) -> GrpoInputs:
    """Read what is trained on and what is asked meanwhile.

    Raises as :func:`load_prefixes` and :func:`check_dev` do.
    """
    renderer = Renderer.load(folder, config.engine.chat, config.engine.thoughts)
    corag = load_corag_options([Path(chains) for chains in config.chains])
    prefixes = load_prefixes(config, folder, renderer, corag)
    dev = load_dev(config)
    check_dev(config, dev, [each.question for each in prefixes])
    return GrpoInputs(renderer, corag, prefixes, dev)


def load_prefixes(
    config: GrpoConfig, folder: str, renderer: Renderer, corag: CoRAGConfig
) -> Sequence[Prefix]:
    """Return the beginnings of the chains, with what asks for the next sub-query.

    Raises :class:`DataError` for one that does not fit, or if there are none.
    """
    folders = [Path(chains) for chains in config.chains]
    files = tables.question_files(folders)
    warn_of_test_questions(
        ", ".join(config.chains), ChainSources({"chains": tables.identify(folders)}, files)
    )
    rows = sorted(read_chains(folders), key=lambda row: row.question.id)
    prefixes = [each for row in rows for each in list_prefixes(row, config.per_question, renderer, corag)]
    if not prefixes:
        raise DataError(
            f"the chains in {', '.join(config.chains)} have no sampled hops to begin with: sample some with "
            "'corag sample' (source 'model')."
        )
    most, window = config.max_length, context_window(folder) or 0
    for each in prefixes:
        length = len(each.prompt_ids) + corag.max_sub_query_tokens
        fault = (
            f"more than max_length {most}: choose a larger --max_length, or sample shorter chains"
            if 0 < most < length
            else f"more than the {window} that '{config.model}' reads at once: sample shorter chains"
            if 0 < window < length
            else ""
        )
        if fault:
            raise DataError(
                f"the prompt of hop {len(each.before) + 1} of question '{each.question.id}' needs {length} "
                f"tokens with its reply, {fault}."
            )
    return prefixes


def check_dev(config: GrpoConfig, dev: Sequence[Question], training_questions: Sequence[Question]) -> None:
    """Raise :class:`ConfigError` if a dev question is trained on: dev EM would be a lie.

    :func:`eval.datasets.same.in_common` says which are the same.
    """
    if not dev:
        return
    dataset = dev_dataset(config)
    is_published = dataset != "jsonl" and dataset in map(chains_dataset, config.chains)
    if common := in_common(dev, training_questions, is_published=is_published):
        raise ConfigError(
            f"{len(common)} of the {len(dev)} dev questions are trained on, such as '{common[0].id}', but "
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
    return config.dev.dataset or chains_dataset(config.chains[0])


def chains_dataset(chains: str) -> str:
    """Return the format of the questions that chains were sampled for."""
    return str(read_chain_manifest(Path(chains)).settings["questions"].get("dataset") or "jsonl")


def identify_chains(config: GrpoConfig) -> dict[str, Any]:
    """Return what identifies the chains, and the engine that rewards them."""
    folders = [Path(chains) for chains in config.chains]
    chains = [
        each | {"retriever": read_chain_manifest(folder).retriever}
        for folder, each in zip(folders, tables.identify(folders), strict=True)
    ]
    engine = {"backend": config.engine.backend, "dtype": config.engine.dtype, "chat": config.engine.chat}
    return {"chains": chains, "engine": engine}


def training_settings(config: GrpoConfig, folder: str) -> dict[str, Any]:
    """Return everything that the result depends on, as it stands in training.json."""
    return training_identity(config, folder, "padded", identify_chains(config))


async def open_all(config: GrpoConfig) -> Backends:
    """Open the index, the frozen model that answers and scores, and the dev questions' own index if any."""
    retriever = await open_index_quietly(config.retriever)
    for chains in config.chains:
        check_index(Path(chains), retriever)
    engine = replace(config.engine, name=config.model)
    if not engine.urls:  # a server has the adapter that it serves
        engine = replace(engine, adapter=config.adapter)
    generator = await open_model_quietly(engine)
    require_abilities("the reward", {Ability.SCORES: ""}, generator)
    has_own_index = config.dev.questions and config.dev.has_index
    dev = await open_index_quietly(config.dev.retriever) if has_own_index else retriever
    return Backends(generator, retriever, dev)


def make_trainer(config: GrpoConfig, folder: str, inputs: GrpoInputs, backends: Backends) -> Any:
    """Build TRL's trainer."""
    import datasets

    from training.experimental.trainers import DevEvalCallback, PrefixTrainer
    from training.trainer import prepare_trainer

    renderer, corag, prefixes = inputs.renderer, inputs.corag, inputs.prefixes
    # Before the model: it starts the process group.
    arguments = build_arguments(config, corag)
    # Prompts of a batch end in the same column, so padding stands before them: our attention knows none.
    model_config = replace(config, attention="sdpa") if config.attention == "auto" else config
    model, peft_config = load_model(model_config, folder)
    name_ends(model, renderer.stop_ids)
    rewarder = Rewarder(prefixes, backends.generator, backends.retriever, renderer, corag, config.reward)
    trainer = PrefixTrainer(
        model=model,
        prompt_ids={each.prompt: each.prompt_ids for each in prefixes},
        reward_funcs=[rewarder.information_gain],
        args=arguments,
        train_dataset=datasets.Dataset.from_dict(
            {"prompt": [each.prompt for each in prefixes], "number": list(range(len(prefixes)))}
        ),
        processing_class=load_padding_tokenizer(folder),
        peft_config=peft_config,
    )
    prepare_trainer(trainer, Path(config.out), temperature=config.temperature, pads_before=True)
    if inputs.dev:
        # After the file of metrics, which empties itself when a training begins: the first evaluation would
        # be lost.
        evaluate = make_dev_evaluation(config, folder, inputs, backends.dev_retriever)
        trainer.add_callback(DevEvalCallback(trainer, evaluate, config.eval_steps))
    return trainer


def make_dev_evaluation(config: GrpoConfig, folder: str, inputs: GrpoInputs, retriever: Retriever) -> Any:
    """Return a function that answers the dev questions with a model, greedily, as the chains were sampled."""
    from corag.generation.thinking_generator import ThinkingGenerator
    from corag.generation.transformers_engine import TransformersGenerator

    decoding = replace(inputs.corag, strategy="greedy", max_hops=config.dev_hops, stop=config.dev_stop)
    window = context_window(folder) or 2048

    def evaluate(model: Any) -> Mapping[str, float]:
        size = config.engine.batch_size
        engine = TransformersGenerator(model, inputs.renderer, window, size, "in training")
        # As in the replies that are rewarded, a thought that the policy writes is no part of a sub-query.
        generator = ThinkingGenerator(engine, replace(inputs.renderer.thinking, mode="off"), budget=1)
        return background().run(evaluate_dev(inputs.dev, generator, retriever, decoding))

    return evaluate


async def evaluate_dev(
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


def build_arguments(config: GrpoConfig, corag: CoRAGConfig) -> Any:
    """Build TRL's training arguments."""
    from trl import GRPOConfig

    values = {
        "num_generations": config.generations,
        "max_completion_length": corag.max_sub_query_tokens,
        "temperature": config.temperature,
        "beta": config.beta,
        "loss_type": config.loss,
        "scale_rewards": config.scale_rewards,
    }
    return build_trl_arguments(GRPOConfig, config, values, evaluates=False)


if __name__ == "__main__":
    summary = "reinforce the sub-queries that bring the answer nearer"
    start_program(GrpoConfig, check, main, summarise, "training/experimental/grpo.py", summary)
