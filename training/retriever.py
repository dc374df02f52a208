"""What training an encoder and training a re-ranker have in common: pairs, identity, arguments, the run.

The trainers and losses are sentence-transformers' own; ``encoder.py`` and ``reranker.py`` choose them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from corag.core.errors import ConfigError, DataError, reason
from corag.core.system.installation import require
from corag.core.web.hugging_face import download
from retrieval.dense.encoder import encoder_folder
from training.program import loading, summary_line, train_or_resume, training_settings
from training.retriever_config import RetrieverTraining
from training.retriever_pairs import RetrieverPairsReport, read_retriever_pairs_report


def base_folder(config: RetrieverTraining) -> str:
    """Return the folder of the model that is started from, downloaded if it is a Hugging Face name."""
    source = encoder_folder(config.model)
    return str(
        source if isinstance(source, Path) else download(source, "model", "a local folder or 'default'")
    )


def load_report(name: str) -> RetrieverPairsReport:
    """Return the report of a folder of pairs. Raises :class:`DataError` if it is none."""
    report = read_retriever_pairs_report(Path(name))
    if report is None:
        raise DataError(f"'{name}' is no folder of a retriever's pairs: make them with 'corag pairs'.")
    return report


def load_pairs(config: RetrieverTraining) -> dict[str, list[dict[str, Any]]]:
    """Return all rows by split, as :class:`training.retriever_pairs.RetrieverPair` names their fields."""
    import datasets

    rows: dict[str, list[dict[str, Any]]] = {"train": [], "validation": []}
    for name in config.pairs:
        for split, table in datasets.load_from_disk(name).items():
            rows[split] += table.to_list()
    return rows


def prepare(config: RetrieverTraining) -> tuple[dict[str, list[dict[str, Any]]], str, dict[str, Any]]:
    """Return the rows by split, the base model's folder, and the settings of a training.

    Raises :class:`ConfigError` for a package or a base model that is missing, :class:`DataError` for a folder
    that is none of pairs.
    """
    require(
        "training a retriever", "torch", "transformers", "accelerate", "sentence_transformers", "datasets"
    )
    reports = [load_report(name) for name in config.pairs]
    rows, folder = load_pairs(config), base_folder(config)
    pairs = [each.settings | {"questions": each.questions} for each in reports]
    return rows, folder, training_settings(config, (config.model, folder), {"pairs": pairs}, {})


@contextmanager
def loading_model(config: RetrieverTraining, rows: Mapping[str, Sequence[Any]]) -> Iterator[None]:
    """Around what loads the base model and builds its trainer.

    Raises :class:`ConfigError` for a model that is none of sentence-transformers', or is damaged.
    """
    from transformers.utils import logging

    logging.disable_progress_bar()  # of one file that is written, between the lines of the training
    with loading(Path(config.out), f"model {config.model} and {len(rows['train'])} queries"):
        try:
            yield
        except (OSError, ValueError) as error:
            raise ConfigError(f"the model '{config.model}' cannot be loaded: {reason(error)}") from None


def train(
    trainer: Any, config: RetrieverTraining, rows: Mapping[str, Sequence[Mapping[str, Any]]]
) -> dict[str, Any]:
    """Train from the last checkpoint on, evaluate, save, and return figures for the manifest."""
    model = trainer.model
    window = model.max_seq_length
    model.max_seq_length = min(config.max_length, window or config.max_length)
    summary = train_or_resume(trainer, Path(config.out))
    evaluation = {"loss": trainer.evaluate()["eval_loss"]} if rows["validation"] else {}
    model.max_seq_length = window  # trained on shorter texts, it still reads as long ones as before
    trainer.save_model(config.out)
    return summary | {"evaluation": evaluation, "queries": len(rows["train"])}


def summarise(config: RetrieverTraining, manifest: Mapping[str, Any], use: str) -> str:
    """Return lines on what a training made, and how to use it."""
    result = manifest["result"]
    losses = "".join(f", {value:.3f} on queries set aside" for value in result["evaluation"].values())
    return f"{summary_line(config.out, result, losses)}\nUse it: {use}"
