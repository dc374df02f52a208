"""TRL's trainers as all programs here use them: the order of rows, the output layer on CPUs.

The losses are TRL's own. On a GPU its fused output layer computes them; on a CPU, where TRL multiplies every
position with the vocabulary, the output layer is patched to compute learned positions only.

It stands apart from sft.py because its classes inherit from torch's and TRL's, which take seconds to import:
options are parsed, and refused, before that.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers.trainer_callback import PrinterCallback
from transformers.trainer_pt_utils import LengthGroupedSampler
from trl import SFTTrainer

from corag.core.seeds import derive_seed
from training.callbacks import training_callbacks
from training.columns import lengths


class EpochSampler(LengthGroupedSampler):  # type: ignore[misc]
    """Rows of like length together, in an order that depends on seed and epoch alone.

    Transformers draws every epoch's order from the global generator, so a training that is resumed in its
    second epoch would go on with other rows than it had begun with.
    """

    def __init__(self, lengths: list[int], batch_size: int, seed: int) -> None:
        super().__init__(batch_size, lengths=lengths)
        self._seed = seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch; accelerate calls this."""
        self._epoch = epoch

    def __iter__(self) -> Iterator[int]:
        self.generator = torch.Generator().manual_seed(derive_seed(self._seed, "epoch", self._epoch))
        return iter(super().__iter__())


def sampler_by_length(trainer: Any, lengths: list[int]) -> EpochSampler:
    """Return the order of a trainer's rows, ``lengths`` in tokens."""
    # The rows of one update are drawn together, so that its micro-batches have like lengths as well.
    size = trainer.args.train_batch_size * trainer.args.gradient_accumulation_steps
    return EpochSampler(lengths, size, trainer.args.seed)


class CompletionTrainer(SFTTrainer):  # type: ignore[misc]
    """SFTTrainer whose order of rows can be resumed. Its loss is TRL's."""

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        if self.args.train_sampling_strategy != "group_by_length":
            return super()._get_train_sampler(train_dataset)
        rows = self.train_dataset if train_dataset is None else train_dataset
        return sampler_by_length(self, lengths(rows).tolist())


def prepare_trainer(trainer: Any, out: Path) -> Any:
    """Give one of TRL's trainers what all programs here have in common, and return it.

    Args:
        trainer: as TRL made it.
        out: folder of the result, where the metrics go.
    """
    trainer.remove_callback(PrinterCallback)
    for callback in training_callbacks(out):
        trainer.add_callback(callback)
    keep_float32(trainer.model)
    if trainer.is_fsdp_enabled:
        reduce_in_float32(trainer.accelerator.state.fsdp_plugin)
    if not has_fused_kernels():
        model = trainer.model
        compute_learned_positions_only(model.get_base_model() if isinstance(model, PeftModel) else model)
    return trainer


def reduce_in_float32(plugin: Any) -> None:
    """Let FSDP add gradients up in float32, over processes and over the steps of an update.

    accelerate takes the precision of the arithmetic for it: of 64 summands in bfloat16, whose mantissa has 8
    bits, the last ones are lost. ``plugin``: accelerate's, of FSDP 1 or 2.
    """
    if (policy := plugin.mixed_precision_policy) is not None:
        plugin.mixed_precision_policy = dataclasses.replace(policy, reduce_dtype=torch.float32)


def has_fused_kernels() -> bool:
    """Return whether TRL's fused output layer has kernels here, which compute learned positions only."""
    return bool(torch.cuda.is_available())


def keep_float32(model: Any) -> None:
    """Keep trained weights in float32: TRL rounds adapters of 4-bit models to bfloat16."""
    for weight in model.parameters():
        # In bfloat16 small updates are lost.
        if weight.requires_grad:
            weight.data = weight.data.float()


def learned_columns(labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the token that follows each position, and the columns in which any row learns.

    ``labels``: (rows, tokens), -100 where nothing is learned; position t predicts token t + 1.
    """
    following = torch.nn.functional.pad(labels, (0, 1), value=-100)[:, 1:]
    # Columns of all rows: logits_to_keep takes one list of positions for a batch.
    return following, (following != -100).any(dim=0).nonzero().squeeze(-1)


def compute_learned_positions_only(model: Any) -> None:
    """Patch the fused output layer that TRL gave a model to compute columns where something is learned.

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
        following, columns = learned_columns(labels)
        # Causal attention never looks at padding that stands behind the text: without a mask the kernels skip
        # half of the work. A mixture of experts needs it, to balance the experts over real tokens alone.
        if not has_router:
            options.pop("attention_mask", None)
        options |= {"use_cache": False, "logits_to_keep": columns}
        outputs = trl_forward(*args, **options)
        return score_columns(outputs, following, columns)

    model.forward = forward


def score_columns(outputs: Any, following: torch.Tensor, columns: torch.Tensor) -> Any:
    """Return what TRL's fused output layer returns, from the logits of some columns.

    Args:
        outputs: of the model, with logits of shape (rows, columns, vocabulary).
        following: the token to predict at each position, (rows, tokens), -100 where nothing is learned.
        columns: positions that the logits are of.
    """
    from trl.trainer.utils import FusedCausalLMOutput

    logits = outputs.logits.float()
    targets, is_learned = following[:, columns].clamp(min=0), following[:, columns] != -100
    log_softmax = logits.log_softmax(-1)

    def spread(values: torch.Tensor) -> torch.Tensor:
        # TRL has no column for the last position, which predicts nothing.
        whole = values.new_zeros(following.shape[0], following.shape[1] - 1)
        return whole.index_copy(1, columns, values.masked_fill(~is_learned, 0))

    log_probs = spread(log_softmax.gather(-1, targets[..., None])[..., 0])
    with torch.no_grad():  # figures that TRL logs
        entropy = spread(-(log_softmax.exp() * log_softmax).sum(-1))
        mean_logits, is_top1 = spread(logits.mean(-1)), spread(logits.argmax(-1) == targets)
    return FusedCausalLMOutput(
        loss=-log_probs.sum() / is_learned.sum().clamp(min=1),
        log_probs=log_probs,
        entropy=entropy,
        mean_logits=mean_logits,
        is_top1=is_top1,
        label_mask=following[:, :-1] != -100,
        aux_loss=getattr(outputs, "aux_loss", None),  # of models that are mixtures of experts
    )
