"""Options of training on preferences and on rewards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from corag.chains.config import StopName
from corag.core.errors import ConfigError
from corag.core.option_names import Mark
from corag.core.options import Options
from corag.generation.config import ModelConfig
from eval.experiment.questions import FurtherQuestions
from retrieval.config import RetrieverConfig
from training.config import TRL_POINTERS, ProgramOptions


@dataclass(frozen=True)
class DpoConfig(ProgramOptions):
    """Options of training/experimental/dpo.py: direct preference optimisation (Rafailov et al. 2023).

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
    pairs: Annotated[str, Mark.PLACE] = ""
    beta: float = 0.1
    loss: Literal["sigmoid", "ipo", "hinge"] = "sigmoid"
    sft_share: float = 0.0

    ARGUMENTS_CLASS: ClassVar[str] = "DPOConfig"
    POINTERS: ClassVar[dict[str, str]] = TRL_POINTERS | {
        "loss_type": "write --loss.",
        "loss_weights": "write --sft_share.",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.pairs or not self.out:
            raise ConfigError(
                "name the pairs and where the result goes: accelerate launch training/experimental/dpo.py "
                "--pairs PAIRS --adapter ADAPTER --out FOLDER."
            )
        if self.beta <= 0 or self.sft_share < 0:
            raise ConfigError(
                f"beta must be above 0 and sft_share not below it, but they are {self.beta} and "
                f"{self.sft_share}."
            )
        check_start(self, "dpo.py")


@dataclass(frozen=True)
class RewardOptions(Options):
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
    """Options of training/experimental/grpo.py: group-relative policy optimisation (Shao et al. 2024).

    Attributes:
        chains: one or more folders that 'corag sample' wrote: what their chains began with is gone on from.
        retriever: the index that they were sampled with.
        engine: what answers and scores for the reward: the start adapter, frozen. Its model and adapter are
            the training's own; a server has to serve them. Each of several processes has one of its own, on
            its own GPU; vLLM in the process takes 0.35 of the GPU and trains in one process alone.
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
    # The chains' manifest says which index it was; the others are how it is watched, or where.
    chains: Annotated[list[str], Mark.PLACE] = field(default_factory=list)
    retriever: Annotated[RetrieverConfig, Mark.PLACE] = field(default_factory=RetrieverConfig)
    engine: Annotated[ModelConfig, Mark.PLACE] = field(
        # vLLM's own share of a GPU leaves no room for the model that is trained on it.
        default_factory=lambda: ModelConfig(backend="transformers", gpu_memory_utilization=0.35)
    )
    per_question: int = 4
    generations: int = 8
    temperature: float = 1.0
    beta: float = 0.04
    loss: Literal["grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "vespo"] = "dapo"
    scale_rewards: Literal["group", "batch", "none"] = "group"
    reward: RewardOptions = field(default_factory=RewardOptions)
    cold_start: bool = False
    dev: Annotated[FurtherQuestions, Mark.PLACE] = field(default_factory=FurtherQuestions)
    dev_hops: Annotated[int, Mark.PLACE] = 4
    dev_stop: Annotated[StopName, Mark.PLACE] = "learned"

    ALIASES: ClassVar[dict[str, str]] = {"index": "retriever.index"}
    ARGUMENTS_CLASS: ClassVar[str] = "GRPOConfig"
    POINTERS: ClassVar[dict[str, str]] = TRL_POINTERS | {
        "loss_type": "write --loss.",
        "num_generations": "write --generations.",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.chains or not self.out:
            raise ConfigError(
                "name the chains and where the result goes: accelerate launch training/experimental/grpo.py "
                "--chains CHAINS --retriever.index INDEX --adapter ADAPTER --out FOLDER."
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
        if self.batching not in ("auto", "padded"):
            raise ConfigError(
                f"grpo.py samples in batches that are padded, but batching is {self.batching}: leave it out."
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
            f"training/experimental/{program} goes on from an adapter that knows the task, and compares "
            "itself with it: name one that 'corag train' made (--adapter FOLDER, or default for the shipped "
            f"one), with tuning lora or qlora{otherwise}."
        )
    if config.batching == "padding_free":
        raise ConfigError(
            f"training/experimental/{program} pads its batches: choose batching auto, by_length or padded."
        )
