"""The encoder of later hops, trained with sentence-transformers on queries and passages.

    accelerate launch training/encoder.py --config training/configs/encoder_cpu.yaml --pairs PAIRS --out OUT

The loss is MultipleNegativesRankingLoss: of the passages of a batch, a query's own shall be nearest (DPR,
Karpukhin et al. 2020, section 3.2). The folder is one of sentence-transformers, with ``training.json``,
which says how it was made, and ``metrics.jsonl``. The same command goes on from the last checkpoint, or does
nothing if it had finished.

This is a program of its own, not a command: accelerate starts it once per device, each with its own rank.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from corag.core.system.files import write_atomically
from retrieval.dense.encoder import HOP_ENCODER, wanted_prompts
from retrieval.dense.fingerprint import model_fingerprint
from retrieval.dense.prompts import Prompts
from training import retriever
from training.program import build_arguments, finish, finished_manifest, start_program, training_folder
from training.retriever_config import EncoderTraining


def main(config: EncoderTraining) -> dict[str, Any]:
    """Train, save the encoder with its manifest, and return the manifest.

    Raises as :func:`training.retriever.prepare` does, before anything is trained.
    """
    rows, folder, settings = retriever.prepare(config)
    if (manifest := finished_manifest(config.out, settings)) is not None:
        return manifest
    from sentence_transformers import SentenceTransformer

    out = Path(config.out)
    with training_folder(out, settings) as manifest:
        with retriever.loading_model(config, rows):
            model = SentenceTransformer(folder)
            base = model_fingerprint(model)
            # What the passages' vectors are of, while the model itself learns.
            frozen = copy.deepcopy(model) if config.passages == "frozen" else None
            prompts = wanted_prompts(model, Path(folder), config.model)
            model.prompts |= vars(prompts)  # saved with it: the folder's name tells nothing of a card
            trainer = make_trainer(config, model, rows, prompts, frozen)
        result = retriever.train(trainer, config, rows)
        if trainer.is_world_process_zero():
            note = {"passages": config.passages, "passage_encoder": base}
            write_atomically(out / HOP_ENCODER, json.dumps(note, indent=1) + "\n")
        return finish(trainer, out, manifest, result)


def make_trainer(
    config: EncoderTraining,
    model: Any,
    rows: Mapping[str, list[dict[str, Any]]],
    prompts: Prompts,
    frozen: Any = None,
) -> Any:
    """Build sentence-transformers' trainer. ``frozen``: what encodes passages that are frozen."""
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.base.training_args import BatchSamplers
    from sentence_transformers.sentence_transformer import losses

    from training.frozen_passages import FrozenPassagesLoss

    tables = {split: columns_of(part, config.negatives) for split, part in rows.items() if part}
    columns = tables["train"].column_names
    arguments = {
        # A passage that stands in a batch twice would be wrong for a query that it is right for.
        "batch_sampler": BatchSamplers.NO_DUPLICATES,
        "prompts": {name: prompts.query if name == "query" else prompts.document for name in columns},
    }
    if config.passages == "frozen":
        loss: Any = FrozenPassagesLoss(model, frozen)
    elif config.mini_batch:
        loss = losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=config.mini_batch)
    else:
        loss = losses.MultipleNegativesRankingLoss(model)
    return SentenceTransformerTrainer(
        model=model,
        args=build_arguments(SentenceTransformerTrainingArguments, config, arguments, out=config.out),
        train_dataset=tables["train"],
        eval_dataset=tables.get("validation"),
        loss=loss,
    )


def columns_of(rows: Sequence[Mapping[str, Any]], negatives: int) -> Any:
    """Return a table of query, positive, negative_1 and so on, a row for each right passage.

    A query with fewer wrong passages repeats them.
    """
    import datasets

    return datasets.Dataset.from_list(
        [
            {"query": row["query"], "positive": positive}
            | {
                f"negative_{number + 1}": row["negatives"][number % len(row["negatives"])]
                for number in range(negatives)
            }
            for row in rows
            for positive in row["positives"]
        ]
    )


def summarise(config: EncoderTraining, manifest: dict[str, Any]) -> str:
    """Return lines on what a training made, and how to use it."""
    use = (
        f"retriever.hop_encoder={config.out} with an index of the encoder '{config.model}'"
        if config.passages == "frozen"
        else f"corag index CORPUS --kind dense --encoder {config.out} --out INDEX"
    )
    return retriever.summarise(config, manifest, use)


if __name__ == "__main__":
    summary = "train the encoder of later hops"
    start_program(EncoderTraining, main, summarise, "training/encoder.py", summary)
