"""Options of fine-tuning."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt

from corag.core.errors import ConfigError
from corag.core.options.classes import Options
from corag.core.options.names import Mark, NameOrPath
from training.row_tasks import Task

WATCHING_OPTIONS = ("report_to", "logging_steps", "save_steps")
"""Options of how a training is watched and saved, which may differ when it goes on."""


@dataclass(frozen=True)
class LoraOptions(Options):
    """Low-rank adapters (Hu et al. 2022)."""

    rank: Annotated[int, Mark.OFTEN, Ge(1)] = 16
    """rank of each weight update."""

    alpha: Annotated[int, Mark.OFTEN] = 32
    """the update is scaled by alpha / rank (section 4.1); twice the rank is usual."""

    dropout: float = 0.0
    """dropout of the adapters' input in training."""

    targets: tuple[str, ...] = ("all-linear",)
    """adapted layers: "all-linear" (all except the output layer and non-text parts), or their names."""

    more: dict[str, Any] = field(default_factory=dict)
    """any other argument of PEFT's LoraConfig, as a mapping, such as '{use_rslora: true}'."""


@dataclass(frozen=True)
class LoopOptions(Options):
    """What every training has, of a language model, an encoder or a re-ranker."""

    epochs: Annotated[float, Gt(0)] = 1.0
    """passes over the rows."""

    max_steps: Annotated[int, Ge(0)] = 0
    """stop after this many steps instead of whole epochs; 0 for whole epochs."""

    batch_size: Annotated[int, Ge(1)] = 8
    """rows per device and step."""

    accumulation: Annotated[int, Ge(1)] = 1
    """gradient accumulation steps."""

    learning_rate: Annotated[float, Gt(0)] = 4e-4
    """peak learning rate."""

    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """learning rate schedule after the warm-up: linear, cosine or constant."""

    warmup: float = 0.05
    """warm-up steps; below 1, the share of all steps."""

    precision: Literal["auto", "bfloat16", "float32"] = "auto"
    """precision of the frozen weights and of the computation; auto is bfloat16 where the hardware supports
    it, else float32."""

    save_steps: Annotated[int, Ge(0)] = 100
    """steps between checkpoints, from which an interrupted training resumes; 0 for none."""

    logging_steps: Annotated[int, Ge(1)] = 10
    """steps between log lines of the loss."""

    report_to: tuple[str, ...] = ("none",)
    """experiment tracker: "none", "tensorboard", "wandb", "trackio" or another that transformers supports;
    its package must be installed."""

    seed: int = 0
    """seed of the adapter's initialisation and of the order of the rows."""

    trainer: dict[str, Any] = field(default_factory=dict)
    """any other argument of TRL's trainer (and so of transformers' TrainingArguments), as a mapping, such as
    '{optim: paged_adamw_8bit, max_grad_norm: 0.5}'."""


@dataclass(frozen=True)
class TuningOptions(LoopOptions):
    """How a model is trained. What the paper trained with stands in training/configs/8gpu_full.yaml."""

    tuning: Literal["lora", "qlora", "full"] = "lora"
    """"lora", "qlora" (the base model in 4 bits, on a GPU) or "full"."""

    lora: LoraOptions = field(default_factory=LoraOptions)
    """the adapter's size."""

    max_length: Annotated[int, Ge(0)] = 0
    """maximum tokens of a row; 0 for the length that the rows were made for. Longer rows are refused, never
    truncated."""

    batching: Literal["auto", "padded", "by_length", "padding_free"] = "auto"
    """"padded" in the order of the rows, "by_length" (rows of similar length together: little padding), or
    "padding_free" (rows concatenated; requires a GPU with FlashAttention); auto is padding_free if possible,
    else by_length."""

    gradient_checkpointing: Literal["auto", "yes", "no"] = "auto"
    """recompute activations instead of storing them: less memory, a third more computation; auto: on GPUs
    only."""

    attention: str = "auto"
    """attention implementation of transformers, such as "sdpa" or "flash_attention_2" (prebuilt in the
    package kernels: "kernels-community/flash-attn2"); auto leaves the choice to transformers; on a CPU
    without AMX it uses training/attention.py, which is faster there."""

    save_precision: Literal["bfloat16", "float32"] = "bfloat16"
    """precision of the saved weights, of an adapter or of a full model: bfloat16 takes half the disk
    space."""

    def __post_init__(self) -> None:
        is_other = self.attention != "auto" and "flash" not in self.attention.lower()
        if self.batching == "padding_free" and is_other:
            raise ConfigError(
                f"batching padding_free wants FlashAttention, but attention is '{self.attention}', under "
                "which a row would look at those before it: leave one of them out."
            )
        if self.tuning == "full" and self.lora != LoraOptions():
            raise ConfigError("tuning 'full' has no adapter: leave out the options of lora.")


@dataclass(frozen=True)
class ProgramOptions(TuningOptions):
    """Options of the programs that train a language model on rows."""

    rows: Annotated[list[str], Mark.PLACE] = field(default_factory=list)
    """one or more folders of 'corag rows' (A,B), trained on together: questions of several corpora, or rows
    made with other prompts."""

    out: Annotated[str, Mark.PLACE] = ""
    """folder of the adapter (or, with tuning "full", of the model) and of its checkpoints."""

    model: NameOrPath = "default"
    """the base model: "default", a folder or a Hugging Face name."""

    adapter: NameOrPath = ""
    """folder of an adapter to continue training; "" for a new one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.rows or not self.out:
            raise ConfigError(
                "name the rows and where the result goes: corag train --rows ROWS --out FOLDER."
            )
        if self.tuning == "full" and self.adapter:
            raise ConfigError(
                "tuning 'full' trains the model itself, so there is no adapter to go on with: leave one of "
                "them out."
            )


@dataclass(frozen=True)
class SftConfig(ProgramOptions):
    """Options of training/sft.py."""

    task_weights: dict[Task, Annotated[float, Ge(0)]] = field(default_factory=dict)
    """what the tokens of a task count in the loss, such as '{sub_query: 1, final_answer: 2}'; 1 for tasks
    that are not named."""
