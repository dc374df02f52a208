"""TRL's trainers of preferences and of groups, for prompts that are token ids already.

They stand apart from dpo.py and grpo.py because their classes inherit from torch's and TRL's, which take
seconds to import: options are parsed, and refused, before that.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from transformers import TrainerCallback
from trl import DPOTrainer, GRPOTrainer
from trl.trainer.utils import RepeatSampler

from corag.core.seeds import derive_seed
from training.trainer import sampler_by_length, save_trained_adapter_alone


class PairTrainer(DPOTrainer):  # type: ignore[misc]
    """DPOTrainer for pairs that are tokens already.

    The reference is a frozen copy of the adapter that it starts from, which TRL puts beside the trained one.
    """

    def __init__(self, model: Any, **options: Any) -> None:
        super().__init__(model=model, **options)
        save_trained_adapter_alone(self.model)

    def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
        # TRL would tokenise the texts again, and not as decoding does.
        return dataset

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        if self.args.train_sampling_strategy != "group_by_length":
            return super()._get_train_sampler(train_dataset)
        pairs = self.train_dataset if train_dataset is None else train_dataset
        columns = (pairs["prompt_ids"], pairs["chosen_ids"], pairs["rejected_ids"])
        lengths = [
            len(prompt) + max(len(better), len(worse)) for prompt, better, worse in zip(*columns, strict=True)
        ]
        return sampler_by_length(self, lengths)

    def _get_eval_sampler(self, eval_dataset: Any) -> Any:
        # transformers would look for "input_ids" to group them by length.
        return torch.utils.data.SequentialSampler(eval_dataset)


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
        save_trained_adapter_alone(self.model)

    def _tokenize_prompts(self, prompts: list[str]) -> tuple[list[list[int]], None, dict[str, Any]]:
        return [list(self._prompt_ids[text]) for text in prompts], None, {}

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        sampler = super()._get_train_sampler(dataset)
        return EpochRepeatSampler(
            sampler.data_source,
            sampler.mini_repeat_count,
            sampler.batch_size,
            sampler.repeat_count,
            sampler.shuffle,
            sampler.seed,
        )


class DevEvalCallback(TrainerCallback):  # type: ignore[misc]
    """Answers dev questions with the model as it is by then, and logs how many answers are right.

    At the start, every so many steps, and at the end.
    """

    def __init__(self, trainer: Any, evaluate: Callable[[Any], Mapping[str, float]], every: int) -> None:
        """``evaluate``: returns figures of a model in evaluation mode. ``every``: steps; 0: none between."""
        self._trainer, self._evaluate, self._every = trainer, evaluate, every
        self._last_step = -1

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Evaluate at the start, unless the training is resumed."""
        if not state.global_step:
            self._log_evaluation(state)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Evaluate if it is time."""
        if self._every and not state.global_step % self._every:
            should_log = control.should_log
            self._log_evaluation(state)
            # What is logged of an evaluation would count as the step's own report.
            control.should_log = should_log

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Evaluate at the end, unless the last step has been."""
        if state.global_step != self._last_step:
            self._log_evaluation(state)

    def _log_evaluation(self, state: Any) -> None:
        if not state.is_world_process_zero:
            return
        self._last_step = state.global_step
        model = self._trainer.accelerator.unwrap_model(self._trainer.model)
        training = model.training
        model.eval()
        try:
            figures = self._evaluate(model)
            self._trainer.log(dict(figures))
        finally:
            model.train(training)
        line = ", ".join(f"{name} {value:.3f}" for name, value in figures.items())
        sys.stderr.write(f"corag: after step {state.global_step}: {line}\n")
