"""TRL's trainer of groups, for prompts that are tokens, and with the output layer where something is learned.

It stands apart from grpo.py since its classes inherit from torch's and TRL's, which take seconds to import.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from transformers import TrainerCallback
from trl import GRPOTrainer
from trl.trainer.utils import RepeatSampler

from core.seeds import derive_seed
from training.trainer import keep_learned_columns, save_the_trained_adapter_alone


class EpochRepeatSampler(RepeatSampler):  # type: ignore[misc]
    """TRL's order of prompts, each repeated for its group, that depends on seed and epoch alone.

    TRL's generator goes on from epoch to epoch, so a resumed training would go on with other prompts.
    """

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch; accelerate calls this."""
        self.generator.manual_seed(derive_seed(self.seed, "epoch", epoch))


class PrefixTrainer(GRPOTrainer):  # type: ignore[misc]
    """GRPOTrainer whose prompts are read as decoding writes them, token by token."""

    def __init__(self, model: Any, prompt_ids: Mapping[str, Sequence[int]], **options: Any) -> None:
        """``prompt_ids``: token ids of each prompt of the dataset, by its text."""
        super().__init__(model=model, **options)
        self._prompt_ids = prompt_ids
        if not torch.cuda.is_available():
            keep_learned_columns(self.model.get_base_model(), self.temperature)
        save_the_trained_adapter_alone(self.model)

    def _tokenize_prompts(self, prompts: list[str]) -> tuple[list[list[int]], None, dict[str, Any]]:
        return [list(self._prompt_ids[text]) for text in prompts], None, {}

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        theirs = super()._get_train_sampler(dataset)
        return EpochRepeatSampler(
            theirs.data_source,
            theirs.mini_repeat_count,
            theirs.batch_size,
            theirs.repeat_count,
            theirs.shuffle,
            theirs.seed,
        )


class DevExam(TrainerCallback):  # type: ignore[misc]
    """Answers dev questions with the model as it is by then, and logs how many answers are right.

    At the start, every so many steps, and at the end.
    """

    def __init__(self, exam: Callable[[Any], Mapping[str, float]], every: int) -> None:
        """``exam``: of the model in evaluation mode, figures by name. ``every``: 0 for none between."""
        self._exam, self._every = exam, every
        self._done = -1
        self.trainer: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Take the first exam, unless the training is resumed."""
        if not state.global_step:
            self._take(state)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Take one if it is time."""
        if self._every and not state.global_step % self._every:
            due = control.should_log
            self._take(state)
            control.should_log = due  # what is logged of an exam would count as the step's own report

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Take the last."""
        if state.global_step != self._done:
            self._take(state)

    def _take(self, state: Any) -> None:
        if not state.is_world_process_zero:
            return
        self._done = state.global_step
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        training = model.training
        model.eval()
        try:
            found = self._exam(model)
            self.trainer.log(dict(found))
        finally:
            model.train(training)
        figures = ", ".join(f"{name} {value:.3f}" for name, value in found.items())
        sys.stderr.write(f"corag: after step {state.global_step}: {figures}\n")
