"""Options of fine-tuning."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from corag.core.errors import ConfigError
from corag.core.option_names import Mark, NameOrPath
from corag.core.options import Options

WATCHING_OPTIONS = ("report_to", "logging_steps", "eval_steps", "save_steps")
"""Options of how a training is watched and saved, which may differ when it goes on."""

"""What transformers and TRL call an option of training, and what it is here."""


@dataclass(frozen=True)
class LoraOptions(Options):
    """Low-rank adapters (Hu et al. 2022)."""

    rank: Annotated[int, Mark.OFTEN] = 16
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

    epochs: float = 1.0
    """passes over the rows."""

    max_steps: int = 0
    """stop after this many steps instead of whole epochs; 0 for whole epochs."""

    batch_size: int = 8
    """rows per device and step."""

    accumulation: int = 1
    """gradient accumulation steps."""

    learning_rate: float = 4e-4
    """peak learning rate."""

    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """learning rate schedule after the warm-up: linear, cosine or constant."""

    warmup: float = 0.05
    """warm-up steps; below 1, the share of all steps."""

    weight_decay: float = 0.0
    """weight decay of AdamW."""

    precision: Literal["auto", "bfloat16", "float32"] = "auto"
    """precision of the frozen weights and of the computation; auto is bfloat16 where the hardware supports
    it, else float32."""

    eval_steps: int = 0
    """steps between evaluations of the loss, one per task; 0 for the end only."""

    save_steps: int = 100
    """steps between checkpoints, from which an interrupted training resumes; 0 for none."""

    logging_steps: int = 10
    """steps between log lines of the loss."""

    report_to: tuple[str, ...] = ("none",)
    """experiment tracker: "none", "tensorboard", "wandb", "trackio" or another that transformers supports;
    its package must be installed."""

    seed: int = 0
    """seed of the adapter's initialisation and of the order of the rows."""

    trainer: dict[str, Any] = field(default_factory=dict)
    """any other argument of TRL's trainer (and so of transformers' TrainingArguments), as a mapping, such as
    '{optim: paged_adamw_8bit, max_grad_norm: 0.5}'."""

    def __post_init__(self) -> None:
        if min(self.batch_size, self.accumulation, self.logging_steps) < 1 or self.epochs <= 0:
            raise ConfigError(
                "batch_size, accumulation and logging_steps must be at least 1, and epochs above 0, but "
                f"batch_size is {self.batch_size}, accumulation {self.accumulation}, logging_steps "
                f"{self.logging_steps} and epochs {self.epochs:g}."
            )
        if min(self.max_steps, self.eval_steps, self.save_steps) < 0 or self.learning_rate <= 0:
            raise ConfigError(
                "max_steps, eval_steps and save_steps cannot be negative, and learning_rate must be above 0, "
                f"but max_steps is {self.max_steps}, eval_steps {self.eval_steps}, save_steps "
                f"{self.save_steps} and learning_rate {self.learning_rate:g}."
            )


@dataclass(frozen=True)
class TuningOptions(LoopOptions):
    """How a model is trained. What the paper trained with stands in training/configs/8gpu_full.yaml."""

    tuning: Literal["lora", "qlora", "full"] = "lora"
    """"lora", "qlora" (the base model in 4 bits, on a GPU) or "full"."""

    lora: LoraOptions = field(default_factory=LoraOptions)
    """the adapter's size."""

    max_length: int = 0
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
    package kernels: "kernels-community/flash-attn2"); auto leaves the choice to transformers; on a CPU it
    uses training/attention.py, which is faster there."""

    save_precision: Literal["bfloat16", "float32"] = "bfloat16"
    """precision of the saved weights, of an adapter or of a full model: bfloat16 takes half the disk
    space."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lora.rank < 1 or self.max_length < 0:
            raise ConfigError("lora.rank must be at least 1, and max_length cannot be negative.")

    @property
    def writes_model(self) -> bool:
        """Whether checkpoints hold whole models, not adapters."""
        return self.tuning == "full"


@dataclass(frozen=True)
class ProgramOptions(TuningOptions):
    """Options that all training programs of the project have."""

    out: Annotated[str, Mark.PLACE] = ""
    """folder of the adapter (or, with tuning "full", of the model) and of its checkpoints."""

    model: NameOrPath = "default"
    """the base model: "default", a folder or a Hugging Face name."""

    adapter: NameOrPath = ""
    """folder of an adapter to continue training; "" for a new one."""


@dataclass(frozen=True)
class SftConfig(ProgramOptions):
    """Options of training/sft.py."""

    rows: Annotated[list[str], Mark.PLACE] = field(default_factory=list)
    """one or more folders of 'corag rows' (A,B), trained on together: questions of several corpora, or rows
    made with other prompts."""

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
