"""Options of fine-tuning."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from core.errors import ConfigError
from eval.experiment.questions import FurtherQuestions
from generation.config import ModelConfig
from retrieval.config import RetrieverConfig

WATCHING = ("report_to", "logging_steps", "eval_steps", "save_steps")
"""Options of how a training is watched and saved, which may differ when it goes on."""


@dataclass(frozen=True)
class LoraOptions:
    """Low-rank adapters (Hu et al. 2022).

    Attributes:
        rank: of the update of each weight matrix.
        alpha: the update is scaled by alpha / rank (section 4.1); twice the rank is usual.
        dropout: of the adapters' input while training.
        targets: which layers are adapted: "all-linear" (all but the output layer), or their names.
    """

    rank: int = 16
    alpha: int = 32
    dropout: float = 0.0
    targets: tuple[str, ...] = ("all-linear",)


@dataclass(frozen=True)
class TuningOptions:
    """How a model is trained. What the paper trained with stands in training/configs/8gpu_full.yaml.

    Attributes:
        tuning: "lora", "qlora" (the base model in 4 bits, on a GPU) or "full".
        lora: the adapter's size.
        max_length: tokens of a row at most; 0 for what the rows were made for. Longer rows are refused, never
            cut.
        epochs: passes over the rows.
        max_steps: end after so many steps instead; 0 for whole epochs.
        batch_size: rows per device and step.
        accumulation: steps whose gradients are added up before an update.
        learning_rate: its greatest value.
        schedule: how it falls: linear, cosine or constant, after the warm-up.
        warmup: steps of warm-up, or if below 1, the share of all steps.
        weight_decay: of AdamW.
        precision: of the frozen weights and of the arithmetic; auto is bfloat16 where the hardware multiplies
            it, else float32.
        batching: "padded" as rows come, "by_length" (rows of like length together: little padding), or
            "padding_free" (rows behind one another; wants a GPU with FlashAttention); auto is padding_free
            where it can be, else by_length.
        gradient_checkpointing: compute activations again instead of keeping them: less memory, a third more
            work; auto does on GPUs.
        attention: implementation in transformers, such as "sdpa" or "flash_attention_2"; auto leaves it to
            transformers, but on a CPU takes one of our own, which is faster there (training/attention.py).
        eval_steps: steps between evaluation losses, one per task; 0 for the end only.
        save_steps: steps between checkpoints, from which an interrupted training goes on; 0 for none.
        logging_steps: steps between reports of the loss.
        report_to: where to: "none", "tensorboard", "wandb" and what else transformers knows.
        save_precision: of an adapter's weights on disk: bfloat16 takes half of the space.
        seed: of the adapter's start and the order of the rows.
    """

    tuning: Literal["lora", "qlora", "full"] = "lora"
    lora: LoraOptions = field(default_factory=LoraOptions)
    max_length: int = 0
    epochs: float = 1.0
    max_steps: int = 0
    batch_size: int = 8
    accumulation: int = 1
    learning_rate: float = 4e-4
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    warmup: float = 0.05
    weight_decay: float = 0.0
    precision: Literal["auto", "bfloat16", "float32"] = "auto"
    batching: Literal["auto", "padded", "by_length", "padding_free"] = "auto"
    gradient_checkpointing: Literal["auto", "yes", "no"] = "auto"
    attention: str = "auto"
    eval_steps: int = 0
    save_steps: int = 100
    logging_steps: int = 10
    report_to: tuple[str, ...] = ("none",)
    save_precision: Literal["bfloat16", "float32"] = "bfloat16"
    seed: int = 0

    def __post_init__(self) -> None:
        counts = (self.batch_size, self.accumulation, self.logging_steps, self.lora.rank)
        if min(counts) < 1 or self.epochs <= 0:
            raise ConfigError(
                "batch_size, accumulation, logging_steps and lora.rank must be at least 1, and epochs above "
                "0."
            )
        limits = (self.max_length, self.max_steps, self.eval_steps, self.save_steps)
        if min(limits) < 0 or self.learning_rate <= 0:
            raise ConfigError(
                "max_length, max_steps, eval_steps and save_steps cannot be negative; learning_rate must be "
                "above 0."
            )


@dataclass(frozen=True)
class ProgramOptions(TuningOptions):
    """What each of the room's training programs is told.

    Attributes:
        out: folder of the adapter (or, with tuning "full", of the model) and of its checkpoints.
        model: the base model: "default", a folder or a Hugging Face name.
        adapter: folder of an adapter to go on training; "" for a new one.
    """

    out: str = ""
    model: str = "default"
    adapter: str = ""

    PLACES: ClassVar[tuple[str, ...]] = ("out",)
    """Options that say where things lie: their content is noted in another way."""


@dataclass(frozen=True)
class SftConfig(ProgramOptions):
    """Options of training/sft.py.

    Attributes:
        rows: one or more folders that 'corag rows' wrote (A,B), learned from together: questions of several
            corpora, or rows made with other prompts.
    """

    rows: list[str] = field(default_factory=list)

    PLACES: ClassVar[tuple[str, ...]] = ("out", "rows")

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
class DpoConfig(ProgramOptions):
    """Options of training/dpo.py: direct preference optimisation (Rafailov et al. 2023).

    Attributes:
        pairs: folder that 'corag pairs' wrote.
        beta: how dear it is to leave the start adapter behind; higher stays closer.
        loss: "sigmoid" (DPO), "ipo" (Azar et al. 2023) or "hinge" (SLiC).
        sft_share: weight of the chosen sub-query's own negative log-likelihood in the loss: above 0 it does
            not become less likely while it gets likelier than the rejected one.
        learning_rate: its greatest value. Preferences want a tenth of fine-tuning's and less.
        epochs: passes over the pairs.
        batch_size: pairs per device and step; each is two sequences.
    """

    learning_rate: float = 2e-5
    batch_size: int = 4
    pairs: str = ""
    beta: float = 0.1
    loss: Literal["sigmoid", "ipo", "hinge"] = "sigmoid"
    sft_share: float = 0.0

    PLACES: ClassVar[tuple[str, ...]] = ("out", "pairs")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.pairs or not self.out:
            raise ConfigError(
                "name the pairs and where the result goes: accelerate launch training/dpo.py --pairs PAIRS "
                "--adapter ADAPTER --out FOLDER."
            )
        if self.beta <= 0 or self.sft_share < 0:
            raise ConfigError(
                f"beta must be above 0 and sft_share not below it, but they are {self.beta} and "
                f"{self.sft_share}."
            )
        check_start(self, "dpo.py")


@dataclass(frozen=True)
class RewardOptions:
    """What a sub-query is worth.

    Attributes:
        of: the gain in the gold answer's mean "log_likelihood" per token, or in its "probability", that
            mean's exponential (IGPO): the latter counts little as long as the answer is far away.
        least_gain: a sub-query that loses more is worth this. A loss has no end of its own: without a bound
            it would be better to repeat oneself than to ask what leads astray.
        guesses: whether a sub-query may gain by naming a gold answer that neither the question nor the chain
            before it does. It has guessed, not searched; without this its reward is 0 at most.
        repeat_penalty: a sub-query that the chain has asked is worth minus this, which is below
            ``least_gain``.
        blank_penalty: the same of an empty one.
    """

    of: Literal["log_likelihood", "probability"] = "log_likelihood"
    least_gain: float = -0.4
    guesses: bool = False
    repeat_penalty: float = 0.5
    blank_penalty: float = 0.5

    def __post_init__(self) -> None:
        if not -min(self.repeat_penalty, self.blank_penalty) < self.least_gain <= 0:
            raise ConfigError(
                "repeats and blanks are to be worth less than any sub-query that asks something new, so "
                "reward.least_gain must be 0 or below and reward.repeat_penalty and reward.blank_penalty "
                f"above minus it, but they are {self.least_gain}, {self.repeat_penalty} and "
                f"{self.blank_penalty}: choose larger penalties, or a least_gain nearer to 0."
            )


@dataclass(frozen=True)
class GrpoConfig(ProgramOptions):
    """Options of training/grpo.py: group-relative policy optimisation (Shao et al. 2024).

    Attributes:
        chains: one or more folders that 'corag sample' wrote: what their chains began with is gone on from.
        retriever: the index that they were sampled with.
        engine: what answers and scores for the reward: the start adapter, frozen. Its model and adapter are
            the training's own; a server has to serve them.
        per_question: beginnings of a question's chains at most, of every length in turn; 0 for all.
        generations: sub-queries that are sampled and compared after the same hops.
        temperature: at which they are sampled.
        beta: weight of the distance (KL) from the start adapter; 0 for none.
        loss: how the losses of tokens are added up, as TRL names it: "dapo" divides by all tokens of an
            update (DAPO, arXiv 2503.14476), "grpo" by those of each sub-query (Shao et al. 2024: prefers
            short ones that are good and long ones that are bad), "dr_grpo" by a constant (Dr. GRPO, arXiv
            2503.20783). The others are "bnpo", "cispo", "sapo" and "vespo".
        scale_rewards: divide a reward's distance from its group's mean by the standard deviation of the
            "group" (Shao et al. 2024), of the whole "batch", or by nothing: "none" (Dr. GRPO: else questions
            whose sub-queries are worth much the same count most).
        reward: what a sub-query is worth.
        cold_start: train a new adapter, without an adapter that knows the task. Small models collapse so.
        dev: questions to answer while training goes on, greedily, every ``eval_steps`` steps.
        dev_hops: hops of these chains at most.
        dev_stop: their stop rule.
        learning_rate: its greatest value.
        batch_size: sub-queries per device and step; with the accumulation a multiple of ``generations``.
    """

    learning_rate: float = 1e-5
    chains: list[str] = field(default_factory=list)
    retriever: RetrieverConfig = field(default_factory=RetrieverConfig)
    engine: ModelConfig = field(default_factory=lambda: ModelConfig(backend="transformers"))
    per_question: int = 4
    generations: int = 8
    temperature: float = 1.0
    beta: float = 0.04
    loss: Literal["grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "vespo"] = "dapo"
    scale_rewards: Literal["group", "batch", "none"] = "group"
    reward: RewardOptions = field(default_factory=RewardOptions)
    cold_start: bool = False
    dev: FurtherQuestions = field(default_factory=FurtherQuestions)
    dev_hops: int = 4
    dev_stop: Literal["length", "check", "settled", "learned"] = "learned"

    # The chains' manifest says which index it was; the others are how it is watched, or where.
    PLACES: ClassVar[tuple[str, ...]] = (
        "out",
        "chains",
        "retriever",
        "engine",
        "dev",
        "dev_hops",
        "dev_stop",
    )
    ALIASES: ClassVar[dict[str, str]] = {"index": "retriever.index"}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.chains or not self.out:
            raise ConfigError(
                "name the chains and where the result goes: accelerate launch training/grpo.py --chains "
                "CHAINS --retriever.index INDEX --adapter ADAPTER --out FOLDER."
            )
        if not self.cold_start:
            check_start(
                self, "grpo.py", "; small models collapse from a cold start (--cold_start true for it)"
            )
        elif self.adapter or self.tuning == "full":
            raise ConfigError(
                "a cold start trains a new adapter: leave out --adapter, with tuning lora or qlora."
            )
        if self.generations < 2 or self.batch_size * self.accumulation % self.generations:
            raise ConfigError(
                "sub-queries are compared in groups, so generations must be 2 or more and batch_size times "
                f"accumulation a multiple of it, but they are {self.generations}, {self.batch_size} and "
                f"{self.accumulation}."
            )
        if self.temperature <= 0 or self.beta < 0 or min(self.per_question, self.dev_hops) < 0:
            raise ConfigError(
                "temperature must be above 0, and beta, per_question and dev_hops not below it, but they are "
                f"{self.temperature}, {self.beta}, {self.per_question} and {self.dev_hops}."
            )


def check_start(config: ProgramOptions, program: str, otherwise: str = "") -> None:
    """Raise :class:`ConfigError` unless a training starts from an adapter that it can compare itself with.

    ``otherwise``: what else there is to say.
    """
    if config.tuning == "full" or not config.adapter:
        raise ConfigError(
            f"training/{program} goes on from an adapter that knows the task, and compares itself with it: "
            "name one that 'corag train' made (--adapter FOLDER, or default for the shipped one), with "
            f"tuning lora or qlora{otherwise}."
        )
    if config.batching == "padding_free":
        raise ConfigError(f"training/{program} pads its batches: choose batching auto, by_length or padded.")
