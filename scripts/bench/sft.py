"""Fine-tuning as training/sft.py does it on a CPU against TRL's defaults, in real tokens per second.

Real tokens are those that are no padding. Ours has the options of training/configs/cpu.yaml. Of an epoch over
rows of the embedded world's decompositions, as many batches as are timed are taken, from short to long. TRL's
``SFTTrainer`` gets the rows of just these batches, with ``SFTConfig``'s defaults: random order, gradient
checkpointing, weights in float32 under autocast; where bfloat16 is merely emulated, both compute in float32.
Before the first timed step each takes one on the longest batch that does not count, since memory that is
touched for the first time is slow. The losses of one batch are compared as each trains, and in float32 on the
same weights.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import training
from core.errors import ConfigError
from core.gather import gather
from core.options import parse
from core.protocols import Generator, Score, ScoreRequest
from core.tools import Tools
from core.types import Question, TokenUsage
from eval.datasets import load_questions
from generation.models import model_folder
from generation.rendering import Renderer
from scripts.bench.replay import open_world
from scripts.bench.sample import CORAG
from training.chains import ChainRow
from training.config import SftConfig
from training.data import RowsConfig, examples_of, tokenise
from training.rows import passages_of
from training.sampling import SampleConfig, sample_chains
from training.sft import make_trainer
from training.tuning import make_model

CPU_CONFIG = Path(training.__file__).parent / "configs" / "cpu.yaml"
ROWS = RowsConfig(ratio=0.6, max_length=1024)


async def main(steps: int = 7, questions: int = 100) -> dict[str, float]:
    """Return tokens per second of both, ``speedup``, shares of padding, and losses before the first step.

    At most 100 questions.
    """
    import datasets
    import torch
    from torch.utils.data import DataLoader
    from transformers.utils import logging
    from trl import SFTConfig, SFTTrainer

    from training.trainer import CompletionTrainer

    if torch.cuda.is_available():
        raise ConfigError(
            "'corag bench sft' measures a CPU, but there is a GPU: hide it with CUDA_VISIBLE_DEVICES=''."
        )
    datasets.disable_progress_bars()
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as scratch:
        options = ["--config", str(CPU_CONFIG), "--rows", "made here", "--out", f"{scratch}/ours"]
        config = replace(parse(SftConfig, options, "corag bench sft", ""), max_steps=steps, save_steps=0)
        folder = model_folder(config.model)
        rows = await make_rows(Path(scratch), folder, questions)
        ours = make_trainer(config, folder, {"train": rows})
        made, collate = ours.train_dataset, ours.data_collator
        epoch = batches_by_length(ours, config.batch_size)
        chosen = [epoch[int((number + 0.5) * len(epoch) / steps)] for number in range(steps)]
        longest = collate([made[place] for place in epoch[-1]])
        probe = collate([made[batch[0]] for batch in epoch[:: -(-len(epoch) // 8)]])
        ours.get_train_dataloader = lambda: DataLoader(made, batch_sampler=chosen, collate_fn=collate)
        own = train(ours, longest, probe)
        arguments = SFTConfig(
            f"{scratch}/theirs",
            max_length=ours.args.max_length,
            completion_only_loss=True,
            use_cpu=True,
            save_strategy="no",
            per_device_train_batch_size=config.batch_size,
            max_steps=steps,
            bf16=None if ours.args.bf16 else False,  # where it is emulated, both compute in float32
        )
        same = rows.select([place for batch in chosen for place in batch])
        theirs = SFTTrainer(folder, arguments, train_dataset=same, peft_config=make_model(config, folder)[1])
        exact = [loss_of(way, theirs, theirs.model, probe) for way in (CompletionTrainer, SFTTrainer)]
        reference = train(theirs, longest, probe)
    return {
        "rows": steps * config.batch_size,
        "steps": steps,
        **own,
        **{f"reference_{name}": figure for name, figure in reference.items()},
        "speedup": own["tokens_per_second"] / reference["tokens_per_second"],
        "loss_float32": exact[0],
        "reference_loss_float32": exact[1],
    }


def batches_by_length(trainer: Any, size: int) -> list[list[int]]:
    """Return the whole batches of an epoch, each as places of its rows, from the shortest to the longest."""
    rows = trainer.train_dataset
    whole = [batch for batch in trainer.get_train_dataloader().batch_sampler if len(batch) == size]
    return sorted(whole, key=lambda batch: max(len(rows[place]["input_ids"]) for place in batch))


async def make_rows(root: Path, folder: str, questions: int) -> Any:
    """Make rows of the world's decompositions, as the warm start of 'corag rounds' does."""
    import datasets

    async def score(request: ScoreRequest) -> Score:
        return Score((0,), (0.0,), TokenUsage())  # a decomposition has no rivals

    scorer = cast(Generator, SimpleNamespace(count_tokens=len, score=score))
    retriever = await open_world(root, dev=1, test=1)

    async def follow(question: Question) -> ChainRow:
        tools = Tools(question, scorer, retriever)
        found = await sample_chains(question, tools, SampleConfig(source="decomposition"), CORAG)
        return ChainRow(question, found.context_ids, found.chains, found.chosen, found.rejected)

    asked = load_questions(str(root / "world/train.jsonl"))[:questions]
    chains = [row for row in await gather(map(follow, asked)) if row.chain is not None]
    passages = await passages_of(chains, retriever)
    await retriever.close()
    renderer = Renderer.load(folder)
    wanted = (each for row in chains for each in examples_of(row, passages, renderer.count, ROWS, CORAG))
    made = (tokenise(each, renderer, ROWS)[0] for each in wanted)
    return datasets.Dataset.from_list(
        [{"input_ids": row.input_ids, "completion_mask": row.completion_mask} for row in made]
    )


def train(trainer: Any, longest: Mapping[str, Any], probe: Mapping[str, Any]) -> dict[str, float]:
    """Measure the probe's loss, take a step on the longest batch that does not count, then train and time."""
    from transformers.trainer_callback import PrinterCallback, ProgressCallback

    trainer.remove_callback(PrinterCallback)
    trainer.remove_callback(ProgressCallback)
    step, loss, started, real, padded = trainer.training_step, 0.0, 0.0, 0, 0

    def timed(model: Any, inputs: dict[str, Any], *rest: Any) -> Any:
        nonlocal loss, started, real, padded
        if not started:
            loss = loss_of(type(trainer), trainer, model, probe)
            step(model, dict(longest), *rest)
            model.zero_grad()
            started = time.perf_counter()
        real, padded = real + int(inputs["attention_mask"].sum()), padded + inputs["input_ids"].numel()
        return step(model, inputs, *rest)

    trainer.training_step = timed
    trainer.train()
    seconds = time.perf_counter() - started
    return {
        "tokens": real,
        "tokens_per_second": real / seconds,
        "padding_share": 1 - real / padded,
        "loss": loss,
    }


def loss_of(way: Any, trainer: Any, model: Any, batch: Mapping[str, Any]) -> float:
    """Return the loss of a batch as a class of trainers computes it."""
    import torch

    model.eval()
    with torch.no_grad():
        loss = way.compute_loss(trainer, model, dict(batch))
    model.train()
    return float(loss)
