"""A finished run as a file: of its answers alone, or of another tool, which is read back and scored.

Writing and scoring by the official rule meet here; :mod:`eval.datasets.exports` has the formats.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from corag.core.errors import ConfigError, DataError, nearest
from corag.core.options.classes import Options
from corag.core.options.names import LocalPath
from corag.core.runs.folder import read_rows
from corag.core.runs.manifest import Manifest
from corag.core.system.files import read_jsonl, write_atomically
from corag.data.fields import Record, gold_answer, require_id
from eval.datasets import DATASETS, read_question_records
from eval.datasets.corpora import index_aliases
from eval.datasets.exports import (
    Rows,
    browsecomp_plus_records,
    hotpotqa_prediction,
    kilt_lines,
    musique_lines,
    qrels_lines,
    trec_lines,
    two_wiki_prediction,
)
from eval.datasets.gold_names import is_name
from eval.datasets.records import source_digest
from eval.datasets.sets.two_wiki import read_aliases
from eval.scoring.official_scores import hotpotqa_scores, kilt_scores, musique_scores, two_wiki_scores
from eval.tables.conditions import index_formats, pages_note
from eval.tables.runs import read_answers_manifest

FORMATS = ("hotpotqa", "2wikimultihopqa", "musique", "kilt", "browsecomp_plus", "trec", "qrels")
# The datasets that an official prediction file is for. Our own format may hold the questions of any.
_FORMAT_DATASETS: dict[str, tuple[str, ...]] = {
    **{name: (name, "jsonl") for name in ("hotpotqa", "2wikimultihopqa", "musique")},
    "kilt": (*(name for name, each in DATASETS.items() if each.scorer == "kilt"), "jsonl"),
}
# What the official scripts score besides answers, if the question file has the gold of it.
_PARTS = {"hotpotqa": ("sp", "joint"), "2wikimultihopqa": ("sp", "evi", "joint")}


@dataclass(frozen=True)
class ExportConfig(Options):
    """Options of 'corag export'."""

    run: LocalPath = ""
    """the run folder."""

    to: str = ""
    """hotpotqa, 2wikimultihopqa, musique, kilt, browsecomp_plus (for its evaluate_run.py), trec (the passages
    collected, a TREC run) or qrels (the gold passages, TREC's judgements)."""

    out: LocalPath = ""
    """the file to write; of browsecomp_plus the folder of its files."""

    questions: LocalPath = ""
    """the dataset's own question file; "" takes the one that the run was made from, if it is still there."""

    aliases: LocalPath = ""
    """2WikiMultihopQA's file of answer aliases (id_aliases.json), for its official score."""

    top_k: int = 0
    """of the passages collected for a question, take the first so many; 0 for all (musique, kilt,
    browsecomp_plus, trec)."""

    tag: str = ""
    """the last column of a TREC run; "" for the method's name."""

    def __post_init__(self) -> None:
        if not self.run or not self.out:
            raise ConfigError(
                "name the run and the file to write: corag export RUN --to trec --out run.trec."
            )
        if self.to not in FORMATS:
            if not self.to:
                raise ConfigError(f"say what to write: to={', '.join(FORMATS)}.")
            raise ConfigError(f"there is no format '{self.to}' to export to: {nearest(self.to, FORMATS)}")
        if self.top_k < 0:
            raise ConfigError(
                f"top_k must be 0 (all passages) or a number of passages, but it is {self.top_k}."
            )


@dataclass(frozen=True)
class Export:
    """What was written.

    Attributes:
        questions: how many the file has, ``failure_count`` failed ones among them.
        notes: what the file lacks for the official script.
        gold_count: how many of them have a gold answer at hand.
        scores: the official measures over those as fractions, None if there are none.
        left_out: parts of the official score that the question file has no gold for.
    """

    questions: int
    failure_count: int
    notes: Sequence[str]
    gold_count: int
    scores: dict[str, float] | None
    left_out: Sequence[str]


def export_run(config: ExportConfig) -> Export:
    """Write the file and score it.

    Raises :class:`ConfigError` for a run that is not finished at all, or whose dataset has no such file;
    :class:`DataError` for questions or passages that the format cannot hold.
    """
    manifest = read_answers_manifest(Path(config.run))
    rows = read_rows(Path(config.run))
    check_format(config.to, manifest.dataset)
    if not rows:
        raise ConfigError(f"the run '{config.run}' has no finished question yet: there is nothing to export.")
    records = gold_records(config, manifest) if config.to in _FORMAT_DATASETS else []
    write(config, manifest, rows, records)
    gold = [each for each in records if require_id(each, "questions") in rows and has_answer(each)]
    scores = official_scores(config, gold) if gold else None
    return Export(
        questions=len(rows),
        failure_count=sum(row.answer is None for row in rows.values()),
        notes=notes(config, manifest, rows, records),
        gold_count=len(gold),
        scores=scores,
        left_out=[
            part for part in _PARTS.get(config.to, ()) if scores is not None and f"{part}_em" not in scores
        ],
    )


def check_format(to: str, dataset: str) -> None:
    """Raise :class:`ConfigError` if a prediction file of one dataset is asked for of a run on another."""
    if to in _FORMAT_DATASETS and dataset not in _FORMAT_DATASETS[to]:
        fitting = next((name for name, fits in _FORMAT_DATASETS.items() if dataset in fits), "trec")
        raise ConfigError(
            f"the run answered the dataset '{dataset}', which has no prediction file of the kind '{to}': "
            f"choose to={fitting}."
        )


def gold_records(config: ExportConfig, manifest: Manifest) -> list[Record]:
    """Return the raw records of the run's questions.

    There are none if their file is gone or has changed, and no other was named.
    """
    description, source = manifest.questions, manifest.last.questions
    if config.questions:
        # Questions of our own format may be those of any dataset; the file that is named is the dataset's.
        dataset = config.to if description["dataset"] == "jsonl" else description["dataset"]
        return list(read_question_records(config.questions, "kilt_nq" if dataset == "kilt" else dataset))
    if description["split"]:
        try:
            return list(
                read_question_records(
                    source, description["dataset"], description["split"], description["subset"]
                )
            )
        except DataError:  # it was loaded on another machine; the answers can be written all the same
            return []
    if description["dataset"] == "jsonl" or source_digest(source) != description["source"]:
        return []
    return list(read_question_records(source, description["dataset"]))


def has_answer(record: Record) -> bool:
    """Whether a raw record of a test split, where they are hidden, has a gold answer."""
    return bool(gold_answer(record, "questions") or record.get("output"))


def write(config: ExportConfig, manifest: Manifest, rows: Rows, gold: Sequence[Record]) -> None:
    """Write the file."""
    match config.to:
        case "hotpotqa":
            write_lines(config.out, [as_json(hotpotqa_prediction(rows))])
        case "2wikimultihopqa":
            write_lines(config.out, [as_json(two_wiki_prediction(rows))])
        case "musique":
            if not gold:
                raise ConfigError(
                    "MuSiQue's prediction file goes by its question file, which is not where it was or has "
                    "changed: name it with questions=musique_ans_v1.0_dev.jsonl."
                )
            lines = list(musique_lines(rows, gold, config.top_k))
            if not lines:
                raise DataError(
                    f"'{config.questions}' has none of the run's questions: name the file that was answered."
                )
            write_lines(config.out, map(as_json, lines))
        case "kilt":
            write_lines(config.out, map(as_json, kilt_lines(rows, config.top_k, index_formats(manifest))))
        case "browsecomp_plus":
            for number, record in enumerate(browsecomp_plus_records(rows, config.top_k), 1):
                write_lines(str(Path(config.out) / f"run_{number:05}.json"), [as_json(record)])
        case "trec":
            write_lines(config.out, trec_lines(rows, config.tag or manifest.method, config.top_k))
        case _:
            write_lines(config.out, qrels_lines(rows))


def as_json(value: object) -> str:
    """Write a value as one line of JSON, letters as they are."""
    return json.dumps(value, ensure_ascii=False)


def write_lines(out: str, lines: Iterable[str]) -> None:
    """Write lines of text."""
    write_atomically(out, "".join(f"{line}\n" for line in lines))


def notes(config: ExportConfig, manifest: Manifest, rows: Rows, gold: Sequence[Record]) -> list[str]:
    """Return what the file lacks for the official script."""
    remarks = []
    if config.to in ("hotpotqa", "2wikimultihopqa") and not any(
        row.further.get("supporting_facts") for row in rows.values()
    ):
        remarks.append(
            "No method here predicts sentences: 'sp' is empty, so its scores and the joint ones will be 0."
        )
    missing = sum(require_id(record, "questions") not in rows for record in gold)
    if missing:
        remarks.append(
            f"{missing} of the file's {len(gold)} questions are not in the run; official scripts want them "
            "all."
        )
    if config.to == "2wikimultihopqa" and gold and not config.aliases:
        remarks.append("Scored without aliases, which the official script has: give aliases=id_aliases.json.")
    if config.to == "kilt" and (pages := pages_note([manifest])):
        remarks.append(pages)
    empty = sum(not row.passage_ids for row in rows.values())
    if config.to == "trec" and empty:
        remarks.append(
            f"{empty} of {len(rows)} questions have no passages: 'trec_eval -c' counts these as 0, without "
            "-c they are left out of its means."
        )
    if config.to == "qrels" and _names_no_passages(manifest, rows):
        remarks.append(
            "Gold passages are named by page, document, file or title here, which 'corag table' knows in a "
            "run's passages: other tools compare ids as they stand, and find none."
        )
    return remarks


def _names_no_passages(manifest: Manifest, rows: Rows) -> bool:
    """Whether gold passages are called otherwise than the passages of a run, by which TREC's tools go."""
    aliases = index_aliases(manifest.last)
    return (
        aliases.numbered
        or aliases.titled
        or any(row.question.pages or any(map(is_name, row.question.supporting)) for row in rows.values())
    )


def official_scores(config: ExportConfig, gold: Sequence[Record]) -> dict[str, float]:
    """Read the prediction file back and score it."""
    if config.to in ("musique", "kilt"):
        lines = list(read_jsonl(config.out))
        return musique_scores(lines, gold) if config.to == "musique" else kilt_scores(lines, gold)
    prediction = json.loads(Path(config.out).read_text(encoding="utf-8"))
    if config.to == "hotpotqa":
        return hotpotqa_scores(prediction, gold)
    return two_wiki_scores(prediction, gold, read_aliases(config.aliases) if config.aliases else {})
