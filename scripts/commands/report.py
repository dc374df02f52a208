"""Turn finished runs on the same questions into one HTML file: table, tests, plots and every question's
trace.

    corag report runs/test/one_step-1a2b3c4d runs/test/corag-5e6f7a8b --out report.html
    corag report runs/test/* --retriever.index indexes/test-bm25      # with the passages' texts

The file needs no server and no network. Like 'corag table' it is about the questions that every run has
answered or failed at.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from core.errors import ConfigError
from core.files import write_atomically
from eval.experiment import extensions  # noqa: F401 - methods' BM25 presets
from eval.report.overview import load_run
from eval.report.page import Report, TextBlocks, html_page, make_report, text_blocks
from eval.tables.conditions import corpus_searched
from eval.tables.runs import (
    Runs,
    check_same_file,
    common_questions,
    manifest_of_answers,
    names_of,
    scoring_of,
)
from retrieval.config import RetrieverConfig
from retrieval.open import open_retriever


@dataclass(frozen=True)
class ReportOptions(Runs):
    """Options of 'corag report'.

    Attributes:
        out: the HTML file to write; a file of that name is replaced.
        scorer: how answers are scored; "auto" takes that of the first run.
        recall_at: recall is measured over so many collected passages; 0 takes that of the first run.
        retriever: the index that the runs searched, for the passages' texts; without it they are shown by
            title.
    """

    USAGE = "corag report RUN RUN ... --out report.html"

    out: str = "report.html"
    scorer: str = "auto"
    recall_at: int = 0
    retriever: RetrieverConfig = field(default_factory=RetrieverConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        if Path(self.out).is_dir():
            raise ConfigError(
                f"'{self.out}' is a folder: name the HTML file to write, such as --out "
                f"{self.out}/report.html."
            )


def main(config: ReportOptions) -> int:
    """Write the report, print where it is and a line of JSON, return 0."""
    report = report_of(config)
    texts = asyncio.run(texts_of(report, config.retriever))
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    written = html_page(report, texts, made)
    write_atomically(config.out, written)
    figures = {
        "questions": report.overview.n,
        "runs": len(report.overview.runs),
        "passages": len(report.passages.ids),
    }
    size = len(written) / 1e6
    print(
        f"{config.out}: {figures['runs']} runs on {figures['questions']:,} questions, {size:.1f} MB. Open it "
        "in a browser."
    )
    if texts.found:
        print(f"It has the texts of {texts.found:,} of {figures['passages']:,} passages.")
    print(json.dumps({"report": config.out, **figures, "texts": texts.found, "megabytes": round(size, 2)}))
    return 0


def report_of(config: ReportOptions) -> Report:
    """Make the report.

    Raises :class:`ConfigError` for runs of different question files, chains, or no common question.
    """
    folders = [Path(run) for run in config.runs]
    manifests = [manifest_of_answers(folder) for folder in folders]
    check_same_file(manifests)
    corpora = [corpus_searched(manifest.last) for manifest in manifests]
    runs = [load_run(*run) for run in zip(names_of(folders), folders, corpora, strict=True)]
    questions = [question.id for question in common_questions({run.name: run.rows for run in runs})]
    return make_report(runs, questions, *scoring_of(manifests[0], config.scorer, config.recall_at))


async def texts_of(report: Report, config: RetrieverConfig) -> TextBlocks:
    """Fetch the passages' texts from the index, if one is named.

    Raises :class:`ConfigError` if it has none of them.
    """
    if not config.index and not config.url:
        return TextBlocks()
    retriever = await open_retriever(config)
    try:
        texts = await text_blocks(report, retriever)
    finally:
        await retriever.close()
    if not texts.found and report.passages.ids:
        raise ConfigError(
            f"the index has none of the {len(report.passages.ids):,} passages that these runs name, such as "
            f"'{report.passages.ids[0]}': give the --retriever options that the runs were made with."
        )
    return texts
