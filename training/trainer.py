"""TRL's trainer with the output layer computed where something is learned, and nowhere else.

It stands apart from sft.py since its classes inherit from torch's and TRL's, which take seconds to import.
"""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback
from transformers.trainer_pt_utils import LengthGroupedSampler
from trl import SFTTrainer

from core.files import write_atomically
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
        reward = f", reward {logs['reward']:.3f}" if logs.get("reward") is not None else ""
        sys.stderr.write(
            f"corag: step {state.global_step} of {state.max_steps}, loss {loss:.3f}{reward}{remaining}\n"
        )


class MetricsFile(TrainerCallback):  # type: ignore[misc]
    """Writes what is logged to a file, a line of JSON each, whatever it is reported to besides.

    A resumed training takes out what came after the step that it goes on from.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Keep the lines of the steps that are done."""
        if state.is_world_process_zero:
            lines = self._file.read_text(encoding="utf-8").splitlines() if self._file.is_file() else []
            kept = [
                line for line in lines if state.global_step and json.loads(line)["step"] <= state.global_step
            ]
            write_atomically(self._file, "".join(f"{line}\n" for line in kept))

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **_: Any) -> None:
        """Write a line."""
        if state.is_world_process_zero:
            with self._file.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps({"step": state.global_step, **logs}) + "\n")


def learned_columns(labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what follows each position, and the columns where any row learns.

    ``labels``: (rows, tokens), -100 where nothing is learned; position t predicts token t + 1.
    """
    following = torch.nn.functional.pad(labels, (0, 1), value=-100)[:, 1:]
    # Columns of all rows: logits_to_keep knows one list of positions for a batch.
    return following, (following != -100).any(dim=0).nonzero().squeeze(-1)


def keep_learned_columns(model: Any, temperature: float = 1.0) -> None:
    """Let a model that TRL asks for log-probabilities compute its output layer where something is learned.

    TRL's own way (``fused_lm_head``) does so by kernels for GPUs. Without one it multiplies every position
    with the vocabulary and masks what it gets, which for a small model takes more than half of a step. What
    is returned is the same. ``temperature``: the logits are divided by it.
    """
    from trl.trainer.utils import FusedCausalLMOutput

    theirs = model.forward

    @functools.wraps(type(model).forward)
    def forward(*args: Any, fused_lm_head: bool = False, labels: Any = None, **options: Any) -> Any:
        if not fused_lm_head:
            return theirs(*args, labels=labels, **options)
        following, keep = learned_columns(labels)
        options |= {"use_cache": False, "logits_to_keep": keep}
        logits = theirs(*args, **options).logits.float() / temperature
        targets, learned = following[:, keep].clamp(min=0), following[:, keep] != -100
        every = logits.log_softmax(-1)

        def spread(values: torch.Tensor) -> torch.Tensor:
            # TRL has no column for the last position, which predicts nothing.
            whole = values.new_zeros(following.shape[0], following.shape[1] - 1)
            return whole.index_copy(1, keep, values.masked_fill(~learned, 0))

        log_probs = spread(every.gather(-1, targets[..., None])[..., 0])
        with torch.no_grad():
            entropy = spread(-(every.exp() * every).sum(-1))
            mean, best = spread(logits.mean(-1)), spread(logits.argmax(-1) == targets)
        loss = -log_probs.sum() / learned.sum().clamp(min=1)
        return FusedCausalLMOutput(
            loss=loss, log_probs=log_probs, entropy=entropy, mean_logits=mean, is_top1=best
        )

    model.forward = forward


def save_the_trained_adapter_alone(model: Any) -> None:
    """Let a model with a frozen second adapter save the trained one only.

    TRL keeps the start adapter as "ref" beside the trained one. transformers, which finds a checkpoint with
    adapters in folders of their own, restores these and not the one that is trained.
    """
    model.save_pretrained = functools.partial(model.save_pretrained, selected_adapters=["default"])


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
        following, keep = learned_columns(labels)
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
