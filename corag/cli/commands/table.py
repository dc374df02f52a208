"""Print finished runs on the same questions as one table; no model is started.

    corag table runs/test/one_step-1a2b3c4d rounds/world/round-1/test/corag
    corag table runs/test/* --baseline one_step-1a2b3c4d      # paired tests of every run against one
    corag table runs/test/* --baseline one_step-1a2b3c4d --disagreements 20   # and what they disagree on
    corag table runs/test/* --kinds bridge,comparison         # of these types of question
    corag table runs/test/* --min_hops 2                      # of so many hops
    corag table seeds/* --over seeds                          # mean over runs that differ in nothing else
    corag table runs/test/* --to latex > table.tex            # for a paper; csv, markdown and json, too
    corag table runs/test/* --figure score.pdf                # F1 over tokens per question
    corag table runs/test/* --report report.html --index indexes/test-bm25    # with chains and passages
    corag table runs/test/* --ledger                          # tokens and seconds by role and stage
    corag table runs/best-of-8/corag --ceiling                # what the best of all candidates would score
    corag table runs/test/ircot-5e6f7a8b --join               # of shards (corag run --shard 1/8 ...)

The rows are the questions that every run has answered or failed at; a run is called by what tells its path
from the others'.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, ClassVar

from annotated_types import Ge

from corag.cli.ceilings import print_ceilings
from corag.cli.ledgers import print_ledgers
from corag.cli.result import CommandResult
from corag.core.errors import ConfigError
from corag.core.options.names import LocalPath
from corag.core.runs.failures import Failures
from corag.core.runs.manifest import CHAINS, Manifest
from corag.core.runs.shards import join
from eval.datasets.answers import check_answers_file
from eval.experiment import extensions  # noqa: F401 - methods' BM25 presets
from eval.experiment.backends import open_index_or_client
from eval.report.page import write_report
from eval.sweeps.plots import check_figure, draw_figure
from eval.tables.candidates import Metric
from eval.tables.ceiling import measure_ceilings
from eval.tables.formats import FORMS
from eval.tables.printing import print_results
from eval.tables.records import Form, check_form
from eval.tables.results import TableView, find_baseline, table_of_runs
from eval.tables.runs import Runs, name_folders, write_run_answers
from retrieval.config import RetrieverConfig

JOIN_AGAIN = "The commands that answered the shards try them again; then join again"


@dataclass(frozen=True)
class TableOptions(Runs, TableView):
    """Options of 'corag table'."""

    to: Form = "text"
    """"text" for people, "latex" (booktabs and siunitx) and "markdown" for papers, "csv" and "json" for
    programs."""

    figure: LocalPath = ""
    """also draw F1 (or the first of ``measures``) over tokens per question to this file (.png, .svg, .pdf),
    with intervals and Pareto frontier."""

    report: LocalPath = ""
    """also write an HTML page to this file: table, tests, charts and every question with its chains; it needs
    no server and no network."""

    retriever: RetrieverConfig = field(default_factory=RetrieverConfig)
    """of a report, the index that the runs searched, for the passages' texts; without they have titles."""

    ledger: bool = False
    """instead of the table: where tokens and seconds went, by role and stage."""

    ceiling: bool = False
    """instead of the table: the oracle score of the runs' candidates, and how close their rankers come, by EM
    (pass@k) or with ``measures`` f1; gains are over the baseline, without one over one candidate."""

    join: bool = False
    """first join the shards of each run, which is named by its folder, beside which they lie, or by any of
    them. Joining again is safe, and takes up what the shards answered since."""

    answers_to: LocalPath = ""
    """also write the answers to this file, .jsonl or .csv: id, question, answer, sources, tokens, stopped."""

    max_failed: Annotated[int, Ge(0)] = 0
    """with join: questions that may have failed; if more did, the exit status is 1."""

    ALIASES: ClassVar[dict[str, str]] = {"index": "retriever.index"}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.answers_to:
            check_answers_file(self.answers_to)
        if self.report and Path(self.report).is_dir():
            raise ConfigError(f"'{self.report}' is a folder: name an HTML file, such as report=report.html.")
        if self.retriever != RetrieverConfig() and not self.report:
            raise ConfigError("an index is for the passages of a report: name its file with report.")
        if not (self.ledger or self.ceiling):
            return
        takes = {"ledger", "join"} if self.ledger else {"ceiling", "join", "baseline", "measures", "scorer"}
        default = TableOptions(runs=self.runs)
        for name in (each.name for each in fields(self)):
            if name not in takes and getattr(self, name) != getattr(default, name):
                instead = "ledger" if self.ledger else "ceiling"
                raise ConfigError(f"{name} has no use with {instead}: leave one of them out.")
        if self.ceiling and self.measures not in ([], ["em"], ["f1"]):
            raise ConfigError("the ceiling is measured by em or f1: name one of them as measures.")

    def usage(self) -> str:
        """The command line to write."""
        return "corag table RUN RUN ..."

    def by_name(self) -> dict[str, Path]:
        """Return the folders by name; of shards the runs that they are joined into, called after methods."""
        if not self.join:
            return super().by_name()
        joined = [join(Path(run)) for run in self.runs]
        by_method = {Manifest.read(run).method: run for run in joined}
        if len(by_method) == len(joined):
            return by_method
        return dict(zip(name_folders(joined), joined, strict=True))


def main(config: TableOptions) -> CommandResult:
    """Print the table. The status is 1 if every question of some run failed."""
    if config.ledger:
        return CommandResult(0, [print_ledgers(config.by_name())])
    if config.ceiling:
        return _ceiling(config)
    check_form(config.to, config.disagreements)
    if config.figure:
        check_figure(config.figure)
    runs = config.by_name()
    if config.join and all(Manifest.read(run).method == CHAINS for run in runs.values()):
        print(f"Joined: {', '.join(map(str, runs.values()))}. Sampled chains have no table.")
        return CommandResult(0, [])
    table = table_of_runs(runs, config)
    print_results(table) if config.to == "text" else print(FORMS[config.to](table), end="")
    if config.figure:
        title = draw_figure(table, config.figure)
        print(f"{config.figure}: {title} over tokens per question.", file=sys.stderr)
    if config.report:
        print(asyncio.run(_report(config, runs)), file=sys.stderr)
    if config.answers_to:
        count = write_run_answers(runs, config.answers_to)
        print(f"{config.answers_to}: {count:,} answers.", file=sys.stderr)
    failures = table.failures if config.join else Failures()
    return CommandResult(table.status, [table.to_json()], failures, config.max_failed, JOIN_AGAIN)


async def _report(config: TableOptions, runs: Mapping[str, Path]) -> str:
    """Write the report; return a sentence on it."""
    out, has_index = Path(config.report), config.retriever.index or config.retriever.url
    async with open_index_or_client(config.retriever) if has_index else nullcontext() as index:
        report = await write_report(runs, out, index, config)
    texts = f"texts of {report.text_count or 0:,} of {len(report.passages.titles):,} passages"
    return f"{out}: {out.stat().st_size / 1e6:.1f} MB, {texts}. Open it in a browser."


def _ceiling(config: TableOptions) -> CommandResult:
    runs = config.by_name()
    baseline = runs.pop(find_baseline(runs, config.baseline), None)
    metric: Metric = "f1" if config.measures == ["f1"] else "em"
    ceilings = measure_ceilings(runs, baseline, metric, config.scorer)
    print_ceilings(ceilings)
    return CommandResult(0, [ceilings.to_json()])
