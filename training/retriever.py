"""What training an encoder and training a re-ranker have in common: pairs, identity, arguments, the run.

The trainers and losses are sentence-transformers' own; ``encoder.py`` and ``reranker.py`` choose them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from corag.core.errors import ConfigError, DataError, reason
from corag.core.hugging_face import download
from corag.core.installation import require
from retrieval.dense.encoder import encoder_folder
from training.program import (
    build_arguments,
    prepare,
    run_training,
    summary_line,
    train_or_resume,
    training_settings,
    warn_of_test_questions,
)
from training.retriever_config import RetrieverTraining
from training.retriever_pairs import RetrieverPairsReport, read_retriever_pairs_report

_MAX_QUERIES = 50  # queries set aside whose passages are ranked before and after: seconds on a CPU
Score = Callable[[str, Sequence[str]], Sequence[float]]
"""How right each of some passages is for a query; higher is better."""


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
    """Return all rows by split, as :class:`training.retriever_pairs.RetrieverPair` names their fields.

    Raises :class:`DataError` for a folder that is none of pairs, or is named twice.
    """
    import datasets

    if len({Path(each).resolve() for each in config.pairs}) < len(config.pairs):
        raise DataError(f"'pairs' names a folder twice: {', '.join(config.pairs)}. Name each once.")
    for name in config.pairs:
        warn_of_test_questions(name, load_report(name))
    rows: dict[str, list[dict[str, Any]]] = {"train": [], "validation": []}
    for name in config.pairs:
        for split, table in datasets.load_from_disk(name).items():
            rows[split] += table.to_list()
    return rows


def train_model(
    config: RetrieverTraining,
    load_model: Callable[[str], Any],
    make_trainer: Callable[[Any, dict[str, list[dict[str, Any]]]], Any],
    score_with: Callable[[Any], Score],
    finish: Callable[[Any, Path], Mapping[str, Any]] = lambda model, out: {},
) -> dict[str, Any]:
    """Train, save the model with its manifest, and return the manifest.

    Args:
        config: the program's options.
        load_model: loads the base model from a folder.
        make_trainer: makes one of sentence-transformers' trainers of a model and the rows by split.
        score_with: returns how a model ranks passages.
        finish: writes what else belongs into the folder; returns figures.

    Raises :class:`ConfigError` for a package or a base model that is missing, or a folder that another
    process is at work in or that was begun with other settings; as :func:`load_pairs` does.
    """
    require(
        "training a retriever", "torch", "transformers", "accelerate", "sentence_transformers", "datasets"
    )
    rows, folder = load_pairs(config), base_folder(config)
    reports = [load_report(name) for name in config.pairs]
    pairs = [each.settings | {"questions": each.questions} for each in reports]
    settings = training_settings(config, (config.model, folder), {"pairs": pairs}, {})
    earlier_scores: list[float | None] = []

    def make() -> Any:
        from transformers.utils import logging

        logging.disable_progress_bar()  # of one file that is written, between the lines of the training
        try:
            model = load_model(folder)
        except (OSError, ValueError) as error:
            raise ConfigError(f"the model '{config.model}' cannot be loaded: {reason(error)}") from None
        window = model.max_seq_length
        earlier_scores.append(first_right(score_with(model), rows["validation"]))
        model.max_seq_length = min(config.max_length, window or config.max_length)
        trainer = prepare(make_trainer(model, rows), Path(config.out))
        trainer.original_window = window
        return trainer

    def train(trainer: Any) -> dict[str, Any]:
        summary = train_or_resume(trainer, Path(config.out))
        evaluation = trainer.evaluate() if rows["validation"] else {}
        # Trained on shorter texts, it still reads as long ones as before.
        trainer.model.max_seq_length = trainer.original_window
        trainer.save_model(config.out)
        more = finish(trainer.model, Path(config.out)) if trainer.is_world_process_zero() else {}
        after = first_right(score_with(trainer.model), rows["validation"])
        return summary | {
            "evaluation": {"loss": evaluation["eval_loss"]} if evaluation else {},
            # The share of the queries set aside.
            "first_right": {"before": earlier_scores[0], "after": after},
            "queries": len(rows["train"]),
            **more,
        }

    return run_training(
        Path(config.out), settings, f"model {config.model} and {len(rows['train'])} queries", make, train
    )


def first_right(score: Score, rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the share of queries whose best passage, of those that a row lists, is right; None of no rows.

    Of many rows some are judged, spread evenly.
    """
    if not rows:
        return None
    right = 0
    rows = rows[:: -(-len(rows) // _MAX_QUERIES)]
    for row in rows:
        scores = list(score(row["query"], [*row["positives"], *row["negatives"]]))
        right += scores.index(max(scores)) < len(row["positives"])
    return right / len(rows)


def trainer_arguments(
    kind: type[Any], config: RetrieverTraining, values: Mapping[str, Any], *, evaluates: bool
) -> Any:
    """Build the arguments of a trainer of sentence-transformers. ``values``: what one program alone sets."""
    return build_arguments(kind, config, values, out=config.out, evaluates=evaluates, checkpoints_kept=1)


def summarise(config: RetrieverTraining, manifest: Mapping[str, Any], use: str) -> str:
    """Return lines on what a training made, and how to use it."""
    result = manifest["result"]
    shares = result["first_right"]
    first = (
        ""
        if shares["after"] is None
        else f"; of {shares['before']:.1%} of the queries set aside the best passage was right, of "
        f"{shares['after']:.1%} it is"
    )
    return f"{summary_line(config.out, result, first)}\nUse it: {use}"
