"""Rankings that were made elsewhere, as TREC run files, beside runs in a table: they have no answers.

Such a file is read for the questions of the runs beside it; without any, for those that are judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from corag.core.errors import ConfigError
from corag.core.files import file_digest
from corag.core.runs.manifest import Manifest, Start
from corag.core.runs.rows import SavedAnswer, SavedRow
from corag.core.types import Question
from eval.datasets.trec import JUDGED_DATASET, Judgements, read_judgements, read_trec_run
from eval.tables.runs import Run, read_runs

_RECALL_AT = 15  # as of 'corag run'


def read_paths(
    paths: Mapping[str, Path],
    manifests: Mapping[str, Manifest],
    qrels: str = "",
    questions: Sequence[Question] | None = None,
) -> tuple[list[Run], Judgements | None]:
    """Read run folders and TREC runs by name, in their order, and the judgements of a file.

    Args:
        paths: of folders and files.
        manifests: those of the folders.
        qrels: the file of judgements; "" for none.
        questions: those that are asked; without, those of the folders' rows, or else of the judgements.

    Raises:
        ConfigError: for TREC runs alone without judgements, and for a file that has none of the questions.
        DataError: for rows and lines that cannot be read.
    """
    folders = {name: path for name, path in paths.items() if name in manifests}
    if not folders and not qrels:
        raise ConfigError(
            f"'{next(iter(paths.values()))}' is not a run folder. A TREC run, as which files are read, has "
            "no gold passages: give "
            + "qrels=FILE with the judgements, or a run folder on the same questions beside it."
        )
    judgements = read_judgements(qrels) if qrels else None
    runs = {run.name: run for run in read_runs(folders, manifests)} if folders else {}
    questions_by_id = {each.id: each for each in questions or ()} or {
        name: row.question for run in runs.values() for name, row in run.rows.items()
    }
    if judgements is not None:
        questions_by_id = questions_by_id or {name: Question(name, name) for name in judgements}
        if questions_by_id.keys().isdisjoint(judgements):
            raise ConfigError(
                f"'{qrels}' judges none of the questions: its ids are such as '{next(iter(judgements))}', "
                f"theirs such as '{next(iter(questions_by_id))}'. Name the judgements of this question file."
            )
    manifest = next(iter(runs.values())).manifest if runs else None
    for name, path in paths.items():
        if name not in runs:
            runs[name] = _read_trec(name, path, questions_by_id, manifest, qrels)
    return [runs[name] for name in paths], judgements


def _read_trec(
    name: str, file: Path, questions: Mapping[str, Question], manifest: Manifest | None, qrels: str
) -> Run:
    """Read a TREC run. ``manifest``: the manifest of a run on the same questions, if there is one."""
    rankings, tag, others = read_trec_run(file, questions)
    if not rankings:
        raise ConfigError(
            f"'{file}' has none of the {len(questions):,} questions among its {others:,} queries: a "
            f"question's id is such as '{next(iter(questions))}'. Name the run of this question file."
        )
    rows = {
        each.id: replace(
            SavedRow.without_answer(each),
            answer=SavedAnswer("", tuple(rankings.get(each.id, ())), stopped="trec"),
            searches=1,
        )
        for each in questions.values()
    }
    settings = {
        "method": tag,
        "options": {},
        "prompts": [],
        "questions": manifest.questions
        if manifest
        else {"source": file_digest(qrels), "dataset": JUDGED_DATASET},
        "model": "",
        "retriever": "TREC run",
        "seed": 0,
        "budget": 0,
        "trec": str(file),
    }
    # Gold passages are called as in the index of the run beside it, where repeats of a text are one passage.
    start = {
        "questions": manifest.last.questions if manifest else qrels,
        "scorer": manifest.last.scorer if manifest else "auto",
        "recall_at": manifest.last.recall_at if manifest else _RECALL_AT,
        "retriever": {"index": list(manifest.last.index) if manifest else []},
    }
    return Run(name, file, Manifest(settings, [Start.from_json(start)]), rows, has_answers=False)
