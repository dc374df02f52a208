"""TRL's trainer with the output layer computed where something is learned, and nowhere else."""

from __future__ import annotations

from typing import Any

import torch
from trl import SFTTrainer


class CompletionTrainer(SFTTrainer):  # type: ignore[misc]
    """SFTTrainer whose loss costs what the completions cost.

    Completions of chains have about ten tokens and prompts several hundred. TRL multiplies every position with the
    vocabulary, which
    for a small model on a CPU took more than half of a step; here the model is told which positions to keep. Loss and gradients are
    the same: the negative log-likelihood of completion tokens, averaged over those of the whole batch.
    """

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return the loss of a (micro-)batch. ``inputs["labels"]``: (rows, tokens), -100 where nothing is learned."""
        inputs = dict(inputs)
        labels = inputs.pop("labels")
        following = torch.nn.functional.pad(labels, (0, 1), value=-100)[:, 1:]  # position t predicts token t + 1
        keep = (following != -100).any(dim=0).nonzero().squeeze(-1)
        # Padding stands behind the text, where causal attention never looks: without a mask the kernels skip half of the work.
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
