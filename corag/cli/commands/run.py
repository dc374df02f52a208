"""Answer a dataset with one or more methods and print the table.

    corag run --questions test.jsonl --method closed_book,one_step,ircot --retriever.index indexes/bm25
    corag run --config experiment.yaml --limit 100

Each method gets a run folder of its own. The same command again resumes. With --shard 2/8 it answers every
eighth question from the second on; 'corag table --join' joins the shards (scripts/recipes/batch_inference.sh
of a clone does it all). With --pilot 20 it says first what the run will take. Questions need no gold answers:
--answers_to answers.csv writes what was answered, with its sources.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from corag.cli.plans import print_plan
from corag.cli.result import CommandResult
from eval.experiment.run import RunConfig, answer_dataset
from eval.sweeps.plan import PilotOptions, plan_run
from eval.tables.printing import print_results
from eval.tables.results import TableView, table_of_runs
from eval.tables.runs import write_run_answers


@dataclass(frozen=True)
class RunOptions(PilotOptions, RunConfig):
    """Options of 'corag run'."""


def main(config: RunOptions) -> CommandResult:
    """Run the methods and print the table. The status is 1 if more questions failed than may."""
    if config.pilot:
        return print_plan(plan_run(config, config.pilot))
    questions = config.load()
    runs = asyncio.run(answer_dataset(config, questions))
    table = table_of_runs(runs, TableView(over="seeds" if config.repeats > 1 else ""), questions)
    print_results(table)
    folders = " ".join(map(str, runs.values()))
    print(f"Every answer with its steps, to look at: corag table {folders} --report report.html")
    if config.answers_to and config.shard:
        print(f"When all shards are answered: corag table {folders} --join --answers_to {config.answers_to}")
    elif config.answers_to:
        count = write_run_answers(runs, config.answers_to, questions)
        print(f"{config.answers_to}: {count:,} answers.")
    record = table.to_json() | {"max_failed": config.max_failed, "answers_to": config.answers_to}
    return CommandResult(table.status, [record], table.failures, config.max_failed)
