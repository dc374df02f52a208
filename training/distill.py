"""On-policy distillation of the chain's steps, with TRL's SDFTTrainer.

    accelerate launch training/distill.py --config training/configs/distill_cpu.yaml --rows ROWS --out FOLDER

The student samples a sub-query, a sub-answer or a final answer in its own prompt. The teacher scores the same
tokens, and the student is drawn towards it (reverse KL on the student's likeliest 100 tokens). The teacher is
the student as it begins, with privileged context in its prompt (the gold passage alone, the step to ask, the
gold answer: 'corag rows --for distillation'), or a larger model. Shenfeld et al. 2026, arXiv:2601.19897.

The folder is that of training/sft.py, and the same command goes on from the last checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Gt

from corag.core.errors import ConfigError, DataError
from corag.core.options.names import Mark, NameOrPath
from corag.core.system.installation import require
from corag.generation.models import context_window, folder_digest, model_folder
from corag.generation.rendering import Renderer
from training.config import ProgramOptions
from training.model_setup import (
    load_adapter,
    load_causal_model,
    load_model,
    load_padding_tokenizer,
    save_model,
)
from training.program import (
    build_arguments,
    finish,
    finished_manifest,
    loading,
    resolve_precision,
    start_program,
    train_or_resume,
    training_folder,
)
from training.sft import describe_rows, lm_settings, load_rows, prompts_taught, storage, summarise


@dataclass(frozen=True)
class DistillConfig(ProgramOptions):
    """Options of training/distill.py."""

    teacher: NameOrPath = ""
    """folder or Hugging Face name of a larger model with the same tokenizer; "" for the model itself as it
    begins, with its adapter if one is trained further."""

    teacher_url: Annotated[str, Mark.PRIVATE] = ""
    """address of a vLLM server that scores with the teacher, such as "http://HOST:8000", started with
    --max-logprobs 100; "" for a teacher in this process."""

    privileged: bool = True
    """whether the teacher's prompt has the privileged context; without, it is the student's."""

    max_reply: Annotated[int, Gt(0)] = 32
    """tokens of a sampled reply at most."""

    temperature: Annotated[float, Gt(0)] = 1.0
    """of sampling."""

    attention: str = "sdpa"
    """attention implementation of transformers, such as "sdpa" or "flash_attention_2"."""

    learning_rate: Annotated[float, Gt(0)] = 1e-4
    """peak learning rate."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.teacher_url and not self.teacher:
            raise ConfigError(
                "teacher_url has a teacher without a name: give its tokenizer's with 'teacher'."
            )
        if not self.privileged and not self.teacher:
            raise ConfigError(
                "without privileged context the model itself has nothing to teach: name a larger teacher."
            )


def main(config: DistillConfig) -> dict[str, Any]:
    """Distil, save the adapter or model with its manifest, and return the manifest.

    Raises :class:`ConfigError` or :class:`DataError` for rows or a teacher that do not suit.
    """
    require("distillation", "torch", "transformers", "accelerate", "peft", "trl", "datasets")
    rows = load_rows(config, folder := model_folder(config.model))
    prompts = {split: prompt_pairs(part, config, folder) for split, part in rows.items()}
    teacher = {"name": config.teacher, "digest": teacher_digest(config, folder)}
    settings = lm_settings(config, folder, {}, teacher=teacher)
    if (manifest := finished_manifest(config.out, settings)) is not None:
        return manifest
    out = Path(config.out)
    with training_folder(out, settings) as manifest:
        with loading(out, f"model {config.model} and {describe_rows(rows['train'])}"):
            trainer = make_trainer(config, folder, prompts)
        return finish(trainer, out, manifest, train(trainer, config))


def prompt_pairs(rows: Any, config: DistillConfig, folder: str) -> Any:
    """Return the prompts of student and teacher as TRL names them: ``prompt``, ``privileged_context``.

    Raises :class:`DataError` for rows without privileged context, or without room for a reply.
    """
    import datasets

    if "privileged_context" not in rows.column_names:
        raise DataError(
            "the rows have no privileged context: make them with 'corag rows --for distillation'."
        )
    pairs = zip(rows["input_ids"], rows["completion_mask"], strict=True)
    prompts = [ids[: len(ids) - sum(mask)] for ids, mask in pairs]
    teachers = list(rows["privileged_context"]) if config.privileged else prompts
    longest = max(map(len, [*prompts, *teachers])) + config.max_reply
    window = context_window(folder)
    if window is not None and longest > window:
        raise DataError(
            f"a prompt and max_reply have {longest} tokens, but '{config.model}' was made to read {window} "
            "at once: make the rows again with a smaller 'rows.max_length'."
        )
    return datasets.Dataset.from_dict({"prompt": prompts, "privileged_context": teachers})


def teacher_digest(config: DistillConfig, folder: str) -> str:
    """Return the digest of a larger teacher's weights, "" without one or of one that a server has.

    Raises :class:`ConfigError` if it has another tokenizer: the tokens that it scores are the student's.
    """
    if not config.teacher:
        return ""
    teacher = model_folder(config.teacher, weights=not config.teacher_url)
    vocabularies = [Renderer.load(each).fingerprint.partition(":")[0] for each in (folder, teacher)]
    if vocabularies[0] != vocabularies[1]:
        raise ConfigError(
            f"the teacher '{config.teacher}' has another tokenizer than '{config.model}', whose tokens it is "
            "to score: choose a larger model of the same family."
        )
    return "" if config.teacher_url else folder_digest(teacher, weights_only=True)


def make_trainer(config: DistillConfig, folder: str, prompts: dict[str, Any]) -> Any:
    """Build TRL's trainer."""
    from trl.experimental.sdft import SDFTConfig

    from training import trainer as trainers

    values = {
        "max_prompt_length": None,  # none is too long
        "max_completion_length": config.max_reply,
        "temperature": config.temperature,
        "eval_on_start": "validation" in prompts,  # how far it is from its teacher before, on unseen prompts
    }
    # As many prompts in a step as rows, each sampled once. TRL's own: 8 samples of a prompt, half of both KL.
    defaults = {"num_generations": 1, "distillation_alpha": 1.0}
    arguments = build_arguments(
        SDFTConfig,
        config,
        values | storage(config),
        out=config.out,
        defaults=defaults,
    )
    model, peft_config = load_model(config, folder)
    trainer = trainers.StepDistiller(
        teacher=config.teacher_url or load_teacher(config, folder),
        model=model,
        args=arguments,
        train_dataset=prompts["train"],
        eval_dataset=prompts.get("validation"),
        processing_class=load_padding_tokenizer(folder),
        peft_config=peft_config,
    )
    return trainers.in_float32(trainer)


def load_teacher(config: DistillConfig, folder: str) -> Any:
    """Load a larger teacher, or the student with the adapter that it begins with.

    None where TRL has the student as it begins: a model without its new adapter, or a copy of a whole one.
    """
    import torch

    if not config.teacher and not config.adapter:
        return None
    options = {"dtype": getattr(torch, resolve_precision(config))}
    model = load_causal_model(config, model_folder(config.teacher) if config.teacher else folder, options)
    return model if config.teacher else load_adapter(model, config, folder, is_trainable=False)


def train(trainer: Any, config: DistillConfig) -> dict[str, Any]:
    """Train from the last checkpoint on, save, and return figures for the manifest.

    ``evaluation``: the divergence from the teacher, per token, of what is sampled for unseen prompts.
    """
    summary = train_or_resume(trainer, Path(config.out))
    evaluation = {}
    if trainer.eval_dataset is not None:
        before = next(each["eval_loss"] for each in trainer.state.log_history if "eval_loss" in each)
        evaluation = {"kl_before": before, "kl_after": trainer.evaluate()["eval_loss"]}
    save_model(trainer, config, Path(config.out))
    return summary | {"evaluation": evaluation, "trained_for": prompts_taught(config)}


if __name__ == "__main__":
    text = "distil a larger model, or privileged context, into a model"
    start_program(DistillConfig, main, summarise, "training/distill.py", text)
