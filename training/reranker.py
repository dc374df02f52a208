"""A re-ranker, a cross-encoder that reads query and passage together, trained with sentence-transformers.

    accelerate launch training/reranker.py --config training/configs/reranker_cpu.yaml --pairs PAIRS --out OUT

It may start from a cross-encoder or from an encoder, whose weights it takes and gives a new output. The
folder is one of sentence-transformers, with ``training.json``, which says how it was made, and
``metrics.jsonl``. The same command goes on from the last checkpoint, or does nothing if it had finished.

This is a program of its own, not a command: accelerate starts it once per device, each with its own rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from training import retriever
from training.program import build_arguments, finish, finished_manifest, start_program, training_folder
from training.retriever_config import RerankerTraining


def main(config: RerankerTraining) -> dict[str, Any]:
    """Train, save the re-ranker with its manifest, and return the manifest.

    Raises as :func:`training.retriever.prepare` does, before anything is trained.
    """
    rows, folder, settings = retriever.prepare(config)
    if (manifest := finished_manifest(config.out, settings)) is not None:
        return manifest
    import torch
    from sentence_transformers import CrossEncoder

    out = Path(config.out)
    with training_folder(out, settings) as manifest:
        with retriever.loading_model(config, rows):
            torch.manual_seed(config.seed)  # of an output that an encoder does not have
            model = CrossEncoder(folder, num_labels=1)
            trainer = make_trainer(config, model, rows)
        return finish(trainer, out, manifest, retriever.train(trainer, config, rows))


def make_trainer(config: RerankerTraining, model: Any, rows: Mapping[str, list[dict[str, Any]]]) -> Any:
    """Build sentence-transformers' trainer."""
    from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments, losses

    kinds: dict[str, Any] = {"listnet": losses.ListNetLoss, "lambda": losses.LambdaLoss}
    tables = {split: judged_lists(part, config.negatives) for split, part in rows.items() if part}
    return CrossEncoderTrainer(
        model=model,
        args=build_arguments(CrossEncoderTrainingArguments, config, {}, out=config.out),
        train_dataset=tables["train"],
        eval_dataset=tables.get("validation"),
        loss=kinds[config.loss](model),
    )


def judged_lists(rows: Sequence[Mapping[str, Any]], negatives: int) -> Any:
    """Return a table of query, passages and labels (1.0 for right, 0.0 for wrong), a row for each query."""
    import datasets

    return datasets.Dataset.from_list(
        [
            {
                "query": row["query"],
                "passages": [*row["positives"], *row["negatives"][:negatives]],
                "labels": [1.0] * len(row["positives"]) + [0.0] * len(row["negatives"][:negatives]),
            }
            for row in rows
        ]
    )


def summarise(config: RerankerTraining, manifest: dict[str, Any]) -> str:
    """Return lines on what a training made, and how to use it."""
    return retriever.summarise(config, manifest, f"retriever.reranker={config.out}")


if __name__ == "__main__":
    start_program(RerankerTraining, main, summarise, "training/reranker.py", "train a re-ranker")
