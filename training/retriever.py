"""What training an encoder and training a re-ranker have in common: pairs, identity, arguments, the run.

The trainers and losses are sentence-transformers' own; ``encoder.py`` and ``reranker.py`` choose them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from corag.core.errors import ConfigError, DataError, reason
from corag.core.folder_lock import refuse_if_locked
from corag.core.hugging_face import download
from corag.core.installation import require
from corag.core.json_types import to_json_types
from corag.core.option_names import Mark, marked_options
from corag.core.runs.provenance import Provenance
from corag.generation.adapters import TRAINING, read_manifest
from corag.generation.models import folder_digest
from retrieval.dense.encoder import encoder_folder
from training.checks import check_destinations, check_writable
from training.config import WATCHING_OPTIONS
from training.launched import is_first, process_count
from training.model_setup import resolve_precision
from training.program import TrainingSummary, run_training, train_or_resume, warn_of_test_questions
from training.retriever_config import RetrieverTraining
from training.retriever_pairs import RetrieverPairsReport, read_retriever_pairs_report
from training.trl_arguments import build_arguments, loop_arguments
from training.usage import summary_line

_MAX_QUERIES = 50  # queries set aside whose passages are ranked before and after: seconds on a CPU
Score = Callable[[str, Sequence[str]], Sequence[float]]
"""How right each of some passages is for a query; higher is better."""


def check(config: RetrieverTraining) -> None:
    """Refuse what cannot be trained, before torch is loaded.

    Raises :class:`ConfigError` for a package or a base model that is missing, or a folder that another
    process is at work in or that was begun with other settings; :class:`DataError` for pairs that are missing
    or named twice, or a folder that cannot be written.
    """
    require(
        "training a retriever", "torch", "transformers", "accelerate", "sentence_transformers", "datasets"
    )
    check_destinations(config)
    if len({Path(each).resolve() for each in config.pairs}) < len(config.pairs):
        raise DataError(f"'pairs' names a folder twice: {', '.join(config.pairs)}. Name each once.")
    for name in config.pairs:
        load_report(name)
    out = Path(config.out)
    if is_first():
        refuse_if_locked(out)
    check_writable(out)
    is_here = isinstance(encoder_folder(config.model), Path)  # else it is downloaded first
    if is_here and (earlier := read_manifest(out)) is not None:
        settings = {name: value for name, value in earlier["settings"].items() if name != "resolved"}
        Provenance(requested_settings(config)).refuse_other(f"'{out}'", Provenance(settings))


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


def requested_settings(config: RetrieverTraining) -> dict[str, Any]:
    """Return what the result depends on, but for what "auto" comes to on a machine."""
    names_left_out = (*marked_options(type(config), Mark.PLACE, Mark.PRIVATE), *WATCHING_OPTIONS, "launch")
    reports = [load_report(name) for name in config.pairs]
    settings: dict[str, Any] = to_json_types(
        {
            "base": {"name": config.model, "digest": folder_digest(base_folder(config), weights_only=True)},
            "options": {name: value for name, value in asdict(config).items() if name not in names_left_out},
            "pairs": [each.settings | {"questions": each.questions} for each in reports],
        }
    )
    return settings


def load_pairs(config: RetrieverTraining) -> dict[str, list[dict[str, Any]]]:
    """Return all rows by split, as :class:`training.retriever_pairs.RetrieverPair` names their fields."""
    import datasets

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

    Raises as :func:`check` does, before anything is trained.
    """
    check(config)
    folder = base_folder(config)
    for name in config.pairs:
        warn_of_test_questions(name, load_report(name))
    rows = load_pairs(config)
    settings = requested_settings(config) | {
        "resolved": {
            "precision": resolve_precision(config),
            "rows_per_update": config.batch_size * config.accumulation * process_count(),
        }
    }
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
        summary = train_or_resume(trainer, config)
        evaluation = trainer.evaluate() if rows["validation"] else {}
        # Trained on shorter texts, it still reads as long ones as before.
        trainer.model.max_seq_length = trainer.original_window
        trainer.save_model(config.out)
        more = finish(trainer.model, Path(config.out)) if trainer.is_world_process_zero() else {}
        after = first_right(score_with(trainer.model), rows["validation"])
        return figures(summary, evaluation, earlier_scores[0], after, len(rows["train"])) | dict(more)

    return run_training(
        config, settings, f"model {config.model} and {len(rows['train'])} queries", make, train
    )


def figures(
    summary: TrainingSummary,
    evaluation: Mapping[str, float],
    before: float | None,
    after: float | None,
    queries: int,
) -> dict[str, Any]:
    """Return what stands in a manifest's ``result``.

    ``before`` and ``after``: :func:`first_right` of the queries set aside.
    """
    return {
        "steps": summary.steps,
        "epochs": summary.epochs,
        "train_loss": summary.loss,
        "first_loss": summary.first_loss,
        "evaluation": {"loss": evaluation["eval_loss"]} if "eval_loss" in evaluation else {},
        "first_right": {"before": before, "after": after},
        "queries": queries,
        "seconds": summary.seconds,
        "resumed_from": summary.resumed_from,
    }


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


def prepare(trainer: Any, out: Path) -> Any:
    """Give one of sentence-transformers' trainers the progress and logs of all trainings here."""
    from transformers.trainer_callback import PrinterCallback

    from training.callbacks import training_callbacks

    trainer.remove_callback(PrinterCallback)
    for callback in training_callbacks(out):
        trainer.add_callback(callback)
    return trainer


def trainer_arguments(
    kind: type[Any], config: RetrieverTraining, values: Mapping[str, Any], *, evaluates: bool
) -> Any:
    """Build the arguments of a trainer of sentence-transformers. ``values``: what one program alone sets."""
    loop_values = loop_arguments(config, config.out, evaluates=evaluates, checkpoints_kept=1)
    return build_arguments(kind, config, {**values, **loop_values})


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
    return (
        f"{config.out}: {summary_line(result)}{first} (all figures: {config.out}/{TRAINING})\nUse it: {use}"
    )
