"""Turn finished runs on the same questions into one HTML file: table, tests, charts, every trace.

    corag report runs/test/one_step-1a2b3c4d runs/test/corag-5e6f7a8b --out report.html
    corag report runs/test/* --retriever.index indexes/test-bm25      # with the passages' texts

The file needs no server and no network. Like 'corag table' it is about the questions that every run has
answered or failed at.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

from annotated_types import Ge

from corag.cli.result import CommandResult
from corag.core.errors import ConfigError
from corag.core.option_names import LocalPath, NameOrPath
from eval.experiment import extensions  # noqa: F401 - methods' BM25 presets
from eval.experiment.backends import open_index_or_client
from eval.report.page import Report, write_report
from eval.tables.runs import Runs
from retrieval.config import RetrieverConfig


@dataclass(frozen=True)
class ReportOptions(Runs):
    """Options of 'corag report'."""

    def usage(self) -> str:
        """The command line to write."""
        return "corag report RUN RUN ... --out report.html"

    out: LocalPath = "report.html"
    """the HTML file to write; a file of that name is replaced."""

    scorer: str = "auto"
    """how answers are scored; "auto" takes that of the first run."""

    recall_at: Annotated[int, Ge(0)] = 0
    """recall is measured over so many collected passages; 0 takes that of the first run."""

    baseline: NameOrPath = ""
    """the run, by its name in the table or the end of its path, that the page opens with as the one that
    every other is tested against; "" for the first."""

    retriever: RetrieverConfig = field(default_factory=RetrieverConfig)
    """the index that the runs searched, for the passages' texts; without it they are shown by title."""

    ALIASES: ClassVar[dict[str, str]] = {"index": "retriever.index"}

    def __post_init__(self) -> None:
        super().__post_init__()
        if Path(self.out).is_dir():
            raise ConfigError(
                f"'{self.out}' is a folder: name the HTML file to write, such as out={self.out}/report.html."
            )


async def _write(config: ReportOptions) -> Report:
    has_index = config.retriever.index or config.retriever.url
    async with open_index_or_client(config.retriever) if has_index else nullcontext() as index:
        return await write_report(
            config.by_name(),
            Path(config.out),
            index,
            config.scorer,
            config.recall_at,
            config.baseline,
        )


def main(config: ReportOptions) -> CommandResult:
    """Write the report and say where it is."""
    report = asyncio.run(_write(config))
    figures = {
        "questions": len(report.runs.questions),
        "runs": len(report.runs.runs),
        "passages": len(report.passages.titles),
    }
    size = Path(config.out).stat().st_size / 1e6
    print(
        f"{config.out}: {figures['runs']} runs on {figures['questions']:,} questions, {size:.1f} MB. Open it "
        "in a browser."
    )
    if report.text_count is not None:
        print(f"It has the texts of {report.text_count:,} of {figures['passages']:,} passages.")
    record = {"report": config.out, **figures, "texts": report.text_count or 0, "megabytes": round(size, 2)}
    return CommandResult(0, [record])
