"""TRL's trainers as all programs here use them: the order of rows, the output layer on CPUs.

The losses are TRL's own. On a GPU its fused output layer computes them; on a CPU, where TRL multiplies every
position with the vocabulary, the output layer is patched to compute learned positions only.

It stands apart from sft.py because its classes inherit from torch's and TRL's, which take seconds to import:
options are parsed, and refused, before that.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # else it warns of changes, which the lock prevents

import torch
from peft import PeftModel
from transformers.trainer_pt_utils import LengthGroupedSampler
from trl import SFTTrainer
from trl.experimental.sdft import SDFTTrainer
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling
from trl.trainer.utils import FusedCausalLMOutput, RepeatSampler

from corag.core.errors import BackendError
from corag.core.seeds import derive_seed
from training.columns import lengths


class EpochSampler(LengthGroupedSampler):  # type: ignore[misc]
    """Batches of rows of like length, in an order that depends on seed and epoch alone.

    Transformers draws every epoch's order from the global generator, so a training that is resumed in its
    second epoch would go on with other rows than it had begun with. It also leaves fifty batches at a time in
    the order of their lengths, which is that of the tasks: an update would learn one task, the last ones of a
    training the shortest. Here the batches are drawn, but the first, which has the longest row.

    ``batch_size``: rows that are computed at once, on all devices.
    """

    def __init__(self, lengths: list[int], batch_size: int, seed: int) -> None:
        super().__init__(batch_size, lengths=lengths)
        self._size = batch_size
        self._seed = seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch; accelerate calls this."""
        self._epoch = epoch

    def __iter__(self) -> Iterator[int]:
        self.generator = torch.Generator().manual_seed(derive_seed(self._seed, "epoch", self._epoch))
        rows = list(super().__iter__())
        first, *others = [rows[start : start + self._size] for start in range(0, len(rows), self._size)]
        middle, last = others[:-1], others[-1:]  # which may not be full
        order = torch.randperm(len(middle), generator=self.generator).tolist()
        return chain.from_iterable([first, *(middle[each] for each in order), *last])


class CompletionTrainer(SFTTrainer):  # type: ignore[misc]
    """SFTTrainer whose order of rows can be resumed. Its loss is TRL's."""

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        if self.args.train_sampling_strategy != "group_by_length":
            return super()._get_train_sampler(train_dataset)
        rows = self.train_dataset if train_dataset is None else train_dataset
        # Devices wait for the one with the longest rows, so those of all are drawn together.
        size = self.args.train_batch_size * self.args.world_size
        return EpochSampler(lengths(rows).tolist(), size, self.args.seed)


def in_float32(trainer: Any) -> Any:
    """Let one of TRL's trainers add small updates up: weights that learn in float32, and their gradients."""
    for weight in trainer.model.parameters():
        # TRL rounds adapters of 4-bit models to bfloat16, in which small updates are lost.
        if weight.requires_grad:
            weight.data = weight.data.float()
    if trainer.is_fsdp_enabled:
        reduce_in_float32(trainer.accelerator.state.fsdp_plugin)
    return trainer


def base_of(model: Any) -> Any:
    """Return the model that has the output layer."""
    return model.get_base_model() if isinstance(model, PeftModel) else model


class EpochRepeatSampler(RepeatSampler):  # type: ignore[misc]
    """TRL's order of prompts, by seed and epoch alone: a resumed training goes on in its second epoch."""

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch; accelerate calls this."""
        self.generator.manual_seed(derive_seed(self.seed, "epoch", epoch))


class StepDistiller(SDFTTrainer):  # type: ignore[misc]
    """SDFTTrainer for the steps of chains. Sampling and loss are TRL's.

    TRL would make the teacher's prompt by a template of student's prompt and privileged context, tokenise
    both and cut them from the left. Here they are token ids, made as decoding makes them, and none is too
    long.

    ``teacher``: the model that scores, or the address of a vLLM server that has it; None for the student as
    it begins. A server scores the tokens that it finds likeliest, not the student's likeliest ones.
    """

    def __init__(self, *, teacher: Any = None, **arguments: Any) -> None:
        self._teacher = teacher
        super().__init__(**arguments)
        self.teacher_context_builder._compose_teacher_prompt = lambda prompt, privileged: privileged

    def _tokenize_prompts(self, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
        return [list(each) for each in prompts]

    def _setup_teacher_model(self) -> None:
        if self._teacher is None:
            super()._setup_teacher_model()
            return
        # The kind of teacher for which TRL neither makes a copy nor switches the student's adapter.
        self.args.teacher_model_kind = "live"
        if isinstance(self._teacher, str):
            self.use_teacher_server, self.teacher_model = True, self.model
            self.teacher_client = connect(self._teacher)
            return
        teacher = self._teacher.requires_grad_(False).eval()
        self.teacher_model = self.accelerator.prepare_model(teacher, evaluation_mode=True)

    def _compute_server_distillation_loss(self, model: Any, inputs: Any) -> torch.Tensor:
        # TRL knows servers of the student alone, to which it would send the new weights.
        self._last_loaded_step = self.state.global_step
        loss: torch.Tensor = super()._compute_server_distillation_loss(model, inputs)
        return loss

    def _get_train_sampler(self, dataset: Any = None) -> EpochRepeatSampler:
        return EpochRepeatSampler(
            data_source=self.train_dataset if dataset is None else dataset,
            mini_repeat_count=self.num_generations,
            batch_size=self.args.generation_batch_size // self.num_generations,
            repeat_count=self.num_iterations * self.args.steps_per_generation,
            shuffle=self.shuffle_dataset,
            seed=self.args.seed,
        )


def connect(url: str) -> Any:
    """Return TRL's client of a vLLM server. Raises :class:`BackendError` if none answers."""
    from trl.generation.vllm_client import VLLMClient

    try:
        return VLLMClient(base_url=url.rstrip("/"))
    except OSError as error:  # of requests
        raise BackendError(f"the teacher does not answer: {error}") from None


class WeightingCollator(DataCollatorForLanguageModeling):  # type: ignore[misc]
    """TRL's batches with ``token_weights``: what each token counts, by its row's ``weight``."""

    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        """Return a batch."""
        batch: dict[str, Any] = super().torch_call(examples)
        rows = [torch.full((len(each["input_ids"]),), each.get("weight", 1.0)) for each in examples]
        rows = [torch.cat(rows)] if self.padding_free else rows
        batch["token_weights"] = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        return batch


def weigh_tokens(model: Any) -> None:
    """Patch a model with a fused output layer to take ``token_weights``, which its log-probabilities get.

    TRL divides their sum by the number of tokens, weighted or not, so a task of weight 2 teaches twice as
    much as it would of 1, and the others as much as before.
    """
    forward = model.forward

    @functools.wraps(type(model).forward)
    def weighted(*args: Any, token_weights: torch.Tensor, **options: Any) -> Any:
        outputs = forward(*args, **options)
        outputs.log_probs = outputs.log_probs * token_weights[:, 1:]
        return outputs

    model.forward = weighted


def reduce_in_float32(plugin: Any) -> None:
    """Let FSDP add gradients up in float32, over processes and over the steps of an update.

    accelerate takes the precision of the arithmetic for it: of 64 summands in bfloat16, whose mantissa has 8
    bits, the last ones are lost. ``plugin``: accelerate's, of FSDP 1 or 2.
    """
    if (policy := plugin.mixed_precision_policy) is not None:
        plugin.mixed_precision_policy = dataclasses.replace(policy, reduce_dtype=torch.float32)


def compute_learned_positions_only(model: Any) -> None:
    """Patch the fused output layer that TRL gave a model to compute positions where something is learned.

    Completions have about ten tokens and prompts several hundred. Without kernels TRL multiplies every
    position with the vocabulary and masks the result, which for a small model takes more than half of a step.
    What is returned is the same.
    """
    trl_forward: Callable[..., Any] = model.forward
    has_router = hasattr(model.config.get_text_config(), "output_router_logits")

    # The original signature: generate() validates its arguments against it.
    @functools.wraps(type(model).forward)
    def forward(*args: Any, fused_lm_head: bool = False, labels: Any = None, **options: Any) -> Any:
        if not fused_lm_head:
            return trl_forward(*args, labels=labels, **options)
        # TRL has no column for the last position, which predicts nothing.
        following = labels[:, 1:]
        learned = following != -100
        # Causal attention never looks at padding that stands behind the text: without a mask the kernels skip
        # half of the work. A mixture of experts needs it, to balance the experts over real tokens alone.
        if not has_router:
            options.pop("attention_mask", None)
        # logits_to_keep takes positions of all rows at once, several times as many as each row learns.
        hook = model.get_output_embeddings().register_forward_pre_hook(
            lambda _, inputs: (inputs[0][:, :-1][learned][None],)
        )
        try:
            outputs = trl_forward(*args, **options | {"use_cache": False})
        finally:
            hook.remove()
        return score_positions(outputs, following, learned)

    model.forward = forward


def score_positions(outputs: Any, following: torch.Tensor, learned: torch.Tensor) -> Any:
    """Return what TRL's fused output layer returns, from the logits of learned positions.

    Args:
        outputs: of the model, with logits of shape (1, learned positions, vocabulary).
        following: the token to predict at each position but the last, (rows, tokens - 1).
        learned: which of them are learned, of the same shape.
    """
    logits = outputs.logits[0].float()
    log_softmax, targets = logits.log_softmax(-1), following[learned]

    def spread(values: torch.Tensor) -> torch.Tensor:
        return values.new_zeros(following.shape).masked_scatter(learned, values)

    log_probs = spread(log_softmax.gather(-1, targets[:, None])[:, 0])
    with torch.no_grad():  # figures that TRL logs
        entropy = spread(-(log_softmax.exp() * log_softmax).sum(-1))
        mean_logits, is_top1 = spread(logits.mean(-1)), spread(logits.argmax(-1) == targets)
    return FusedCausalLMOutput(
        loss=-log_probs.sum() / learned.sum().clamp(min=1),
        log_probs=log_probs,
        entropy=entropy,
        mean_logits=mean_logits,
        is_top1=is_top1,
        label_mask=learned,
        aux_loss=getattr(outputs, "aux_loss", None),  # of models that are mixtures of experts
    )
