"""Join the shards of a run into the run and print its table; no model is started.

    corag join runs/test/ircot-5e6f7a8b

A run is named by its own folder, beside which its shards lie, or by any one of them. Several runs (the
methods of one 'corag run') share a table. Joining again is safe, and takes up what the shards answered since.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path

from corag.cli.result import CommandResult
from corag.core.errors import ConfigError
from corag.core.option_names import LocalPath, NameOrPath
from corag.core.runs.failures import Failures, check_max_failed
from corag.core.runs.manifest import CHAINS, Manifest
from corag.core.runs.shards import join
from eval.datasets.answers import check_answers_file
from eval.tables.printing import print_results
from eval.tables.results import table_of_runs
from eval.tables.runs import Runs, write_run_answers
from training.chains import describe, read_chains

ADVICE = "The commands that answered the shards try them again; then join again"


@dataclass(frozen=True)
class JoinOptions(Runs):
    """Options of 'corag join'."""

    runs: list[NameOrPath] = field(default_factory=list)
    """one or more runs, each named by its folder or by any one of its shards."""

    def usage(self) -> str:
        """The command line to write."""
        return "corag join RUN, where RUN.shard-1-of-8 and so on are its shards."

    out: LocalPath = "auto"
    """folder to write the joined run to; "auto" is the run's own. For one run only."""

    answers_to: LocalPath = ""
    """also write the answers to this file, .jsonl or .csv: id, question, answer, sources, tokens, stopped."""

    max_failed: int = 0
    """questions that may have failed; if more did, the exit status is 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_max_failed(self.max_failed)
        if self.answers_to:
            check_answers_file(self.answers_to)
        if self.out != "auto" and len(self.runs) > 1:
            raise ConfigError(
                f"'out' names the folder of one joined run, but {len(self.runs)} runs were given: join them "
                "one by one."
            )


def main(config: JoinOptions) -> CommandResult:
    """Join the runs and print their table. The status is 1 if more questions failed than may.

    Sampled chains have no answers to make a table of: what there is to say about them is printed instead.
    """
    folders = [join(Path(run), None if config.out == "auto" else Path(config.out)) for run in config.runs]
    chains = [run for run in folders if Manifest.read(run).method == CHAINS]
    records, failures = [], Failures()
    for run in chains:
        summary = describe(read_chains([run]))
        failures += summary.failures
        print("\n".join([*summary.lines(), f"Joined: {run}"]))
        records.append(asdict(summary) | {"folder": str(run)})
    answer_folders = [run for run in folders if run not in chains]
    if not answer_folders:
        return CommandResult(0, records, failures, config.max_failed, ADVICE)
    runs = runs_by_method(answer_folders)
    table = table_of_runs(runs)
    print_results(table)
    if config.answers_to:
        count = write_run_answers(runs, config.answers_to)
        print(f"{config.answers_to}: {count:,} answers.")
    failures += table.failures
    return CommandResult(table.status, [*records, table.to_json()], failures, config.max_failed, ADVICE)


def runs_by_method(folders: list[Path]) -> dict[str, Path]:
    """Return the runs by method. Raises :class:`ConfigError` if one table cannot hold them."""
    manifests = {run: Manifest.read(run) for run in folders}
    runs = {manifest.method: run for run, manifest in manifests.items()}
    first, *others = manifests.values()
    if len(runs) < len(manifests) or any(
        (other.questions, other.model) != (first.questions, first.model) for other in others
    ):
        raise ConfigError(
            f"{', '.join(map(str, folders))} are joined, but do not go into one table, which has one row per "
            "method, on the same questions with the same model: join them one by one for their tables."
        )
    return runs
