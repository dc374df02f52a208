"""TRL's trainer with the output layer computed where something is learned, and nowhere else.

It stands apart from sft.py since its classes inherit from torch's and TRL's, which take seconds to import.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import torch
from transformers import TrainerCallback
from transformers.trainer_pt_utils import LengthGroupedSampler
from trl import SFTTrainer

from core.seeds import derive_seed
from eval.experiment.progress import clock


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


class SpokenSteps(TrainerCallback):  # type: ignore[misc]
    """Says how far a training is, in a line of standard error whenever the loss is logged.

    In the place of transformers' bar and its dictionaries, which go to standard output.
    """

    def __init__(self) -> None:
        self._began, self._first = time.monotonic(), 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Count from the step that a resumed training goes on from."""
        self._began, self._first = time.monotonic(), state.global_step

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **_: Any) -> None:
        """Say a step; what is logged of an evaluation, or at the end, has no loss of a step."""
        if not state.is_world_process_zero or "loss" not in logs:
            return
        done = state.global_step - self._first
        left = (time.monotonic() - self._began) / done * (state.max_steps - state.global_step)
        remaining = f", about {clock(left)} left" if left >= 1 else ""
        loss = float(logs["loss"])
        sys.stderr.write(
            f"corag: step {state.global_step} of {state.max_steps}, loss {loss:.3f}{remaining}\n"
        )


class CompletionTrainer(SFTTrainer):  # type: ignore[misc]
    """SFTTrainer whose loss costs what the completions cost.

    Completions of chains have about ten tokens and prompts several hundred. On a CPU, TRL multiplies every
    position with the vocabulary, which for a small model takes more than half of a step; here the model is
    told which positions to keep. Loss and gradients are the same: the negative log-likelihood of completion
    tokens, averaged over those of all devices and accumulated steps. (Evaluation averages the means of its
    batches, as TRL does.)
    """

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        # The rows of one update are drawn together: its micro-batches then have like lengths as well.
        if self.args.train_sampling_strategy != "group_by_length":
            return super()._get_train_sampler(train_dataset)
        rows = self.train_dataset if train_dataset is None else train_dataset
        lengths = [len(ids) for ids in rows["input_ids"]]
        return EpochSampler(
            lengths, self.args.train_batch_size * self.args.gradient_accumulation_steps, self.args.seed
        )

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return the loss of a (micro-)batch, the model's outputs with it if asked for.

        ``inputs``: "input_ids" and "labels" of shape (rows, tokens), labels -100 where nothing is learned.
        ``num_items_in_batch``: tokens learned in all micro-batches of the update, on all devices.
        """
        inputs = dict(inputs)
        labels = inputs.pop("labels")
        # Position t predicts token t + 1.
        following = torch.nn.functional.pad(labels, (0, 1), value=-100)[:, 1:]
        # Columns where any row learns: logits_to_keep knows one list of positions for all rows of a batch.
        keep = (following != -100).any(dim=0).nonzero().squeeze(-1)
        # Padding stands behind the text, where causal attention never looks: without a mask the kernels skip
        # half of the work.
        inputs.pop("attention_mask", None)
        outputs = model(**inputs, use_cache=False, logits_to_keep=keep)
        targets = following[:, keep].flatten()
        summed = torch.nn.functional.cross_entropy(
            outputs.logits.float().flatten(0, 1), targets, ignore_index=-100, reduction="sum"
        )
        if num_items_in_batch is None:
            loss = summed / (targets != -100).sum().clamp(min=1)
        else:  # of all devices and accumulated steps; gradients are averaged over devices afterwards
            loss = (
                summed
                / num_items_in_batch
                * (self.accelerator.num_processes if self.args.average_tokens_across_devices else 1)
            )
        return (loss, outputs) if return_outputs else loss
