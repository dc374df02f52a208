"""TRL's trainer of preferences, given tokens, and with the output layer computed where something is learned.

It stands apart from dpo.py since its class inherits from TRL's, which takes seconds to import.
"""

from __future__ import annotations

from typing import Any

import torch
from trl import DPOTrainer

from training.trainer import EpochSampler, keep_learned_columns, save_the_trained_adapter_alone


class PairTrainer(DPOTrainer):  # type: ignore[misc]
    """DPOTrainer for pairs that are tokens already.

    The reference is a frozen copy of the adapter that it starts from, which TRL puts beside the trained one.
    """

    def __init__(self, model: Any, **options: Any) -> None:
        super().__init__(model=model, **options)
        if not torch.cuda.is_available():
            keep_learned_columns(self.model.get_base_model())
        save_the_trained_adapter_alone(self.model)

    def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
        # TRL would tokenise the texts again, and not as decoding does.
        return dataset

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        if self.args.train_sampling_strategy != "group_by_length":
            return super()._get_train_sampler(train_dataset)
        pairs = self.train_dataset if train_dataset is None else train_dataset
        lengths = [
            len(prompt) + max(len(chosen), len(rejected))
            for prompt, chosen, rejected in zip(
                pairs["prompt_ids"], pairs["chosen_ids"], pairs["rejected_ids"], strict=True
            )
        ]
        return EpochSampler(
            lengths, self.args.train_batch_size * self.args.gradient_accumulation_steps, self.args.seed
        )

    def _get_eval_sampler(self, eval_dataset: Any) -> Any:
        # transformers would look for "input_ids" to group them by length.
        return torch.utils.data.SequentialSampler(eval_dataset)
