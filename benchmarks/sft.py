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
from benchmarks.replay import open_world
from benchmarks.sample import CORAG
from corag.core.command_line import parse
from corag.core.errors import ConfigError
from corag.core.gather import gather
from corag.core.protocols import Generator, Score, ScoreRequest
from corag.core.tools import Tools
from corag.core.types import Question, TokenUsage
from corag.generation.models import model_folder
from corag.generation.rendering import Renderer
from eval.datasets import load_questions
from training.chains import ChainRow
from training.columns import with_labels
from training.config import SftConfig
from training.data import RowMaker, RowsConfig
from training.model_setup import load_model
from training.rows import load_passages
from training.sampling import SampleConfig, sample_chains
from training.sft import make_trainer

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

    from training.trainer import compute_learned_positions_only

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
        ours = make_trainer(config, folder, {"train": with_labels(rows)})
        dataset, collate = ours.train_dataset, ours.data_collator
        epoch = batches_by_length(ours, config.batch_size)
        batches = [epoch[int((number + 0.5) * len(epoch) / steps)] for number in range(steps)]
        longest = collate([dataset[index] for index in epoch[-1]])
        probe = collate([dataset[batch[0]] for batch in epoch[:: -(-len(epoch) // 8)]])
        ours.get_train_dataloader = lambda: DataLoader(dataset, batch_sampler=batches, collate_fn=collate)
        figures = train(ours, longest, probe)
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
        same = rows.select([index for batch in batches for index in batch])
        theirs = SFTTrainer(folder, arguments, train_dataset=same, peft_config=load_model(config, folder)[1])
        base = theirs.model.get_base_model()
        trl_forward, exact = base.forward, [loss_of(theirs, theirs.model, probe)]
        compute_learned_positions_only(base)
        exact.append(loss_of(theirs, theirs.model, probe))
        base.forward = trl_forward
        reference = train(theirs, longest, probe)
    return {
        "rows": steps * config.batch_size,
        "steps": steps,
        **figures,
        **{f"reference_{name}": figure for name, figure in reference.items()},
        "speedup": figures["tokens_per_second"] / reference["tokens_per_second"],
        "loss_float32": exact[1],
        "reference_loss_float32": exact[0],
    }


def batches_by_length(trainer: Any, size: int) -> list[list[int]]:
    """Return the whole batches of an epoch, each as places of its rows, from the shortest to the longest."""
    rows = trainer.train_dataset
    whole = [batch for batch in trainer.get_train_dataloader().batch_sampler if len(batch) == size]
    return sorted(whole, key=lambda batch: max(len(rows[index]["input_ids"]) for index in batch))


async def make_rows(root: Path, folder: str, questions: int) -> Any:
    """Make rows of the world's decompositions, as the warm start of 'corag rounds' does."""
    import datasets

    async def score(request: ScoreRequest) -> Score:
        return Score((0,), (0.0,), TokenUsage())  # a decomposition has no rivals

    scorer = cast(Generator, SimpleNamespace(count_tokens=len, score=score))
    retriever = await open_world(root, dev=1, test=1)

    async def follow(question: Question) -> ChainRow:
        tools = Tools(question, scorer, retriever)
        answer = await sample_chains(question, tools, SampleConfig(source="decomposition"), CORAG)
        return ChainRow(question, answer.context_ids, answer.chains, answer.chosen, answer.rejected)

    train_questions = load_questions(str(root / "world/train.jsonl"))[:questions]
    chains = [row for row in await gather(map(follow, train_questions)) if row.chain is not None]
    passages = await load_passages(chains, retriever)
    await retriever.close()
    maker = RowMaker(Renderer.load(folder), ROWS, CORAG)
    made_rows = (each.row for row in chains for each in maker.make(row, passages, is_taught=True))
    return datasets.Dataset.from_list(
        [{"input_ids": row.input_ids, "completion_mask": row.completion_mask} for row in made_rows if row]
    )


def train(trainer: Any, longest: Mapping[str, Any], probe: Mapping[str, Any]) -> dict[str, float]:
    """Measure the probe's loss, take a step on the longest batch that does not count, then train and time."""
    from transformers.trainer_callback import PrinterCallback, ProgressCallback

    trainer.remove_callback(PrinterCallback)
    trainer.remove_callback(ProgressCallback)
    step, loss, start, real, padded_tokens = trainer.training_step, 0.0, 0.0, 0, 0

    def time_step(model: Any, inputs: dict[str, Any], *rest: Any) -> Any:
        nonlocal loss, start, real, padded_tokens
        if not start:
            loss = loss_of(trainer, model, probe)
            step(model, dict(longest), *rest)
            model.zero_grad()
            start = time.perf_counter()
        real += int(inputs["attention_mask"].sum())
        padded_tokens += inputs["input_ids"].numel()
        return step(model, inputs, *rest)

    trainer.training_step = time_step
    trainer.train()
    seconds = time.perf_counter() - start
    return {
        "tokens": real,
        "tokens_per_second": real / seconds,
        "padding_share": 1 - real / padded_tokens,
        "loss": loss,
    }


def loss_of(trainer: Any, model: Any, batch: Mapping[str, Any]) -> float:
    """Return the loss of a batch without a step."""
    import torch

    model.eval()
    with torch.no_grad():
        loss = trainer.compute_loss(model, dict(batch))
    model.train()
    return float(loss)
