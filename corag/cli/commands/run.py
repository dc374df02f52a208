"""Answer a dataset with one or more methods and print the table.

    corag run --questions test.jsonl --method closed_book,one_step,ircot --retriever.index indexes/bm25
    corag run --config experiment.yaml --limit 100

Each method gets a run folder of its own. The same command again resumes. With --shard 2/8 it answers every
eighth question from the second on; 'corag join' joins the shards (scripts/recipes/batch_inference.sh does it
all).
"""

from __future__ import annotations

import asyncio

from corag.cli.result import CommandResult
from eval.experiment.run import RunConfig, answer_dataset
from eval.scoring.scorers import choose_scorer
from eval.tables.printing import print_results
from eval.tables.results import table_of_new_runs


def main(config: RunConfig) -> CommandResult:
    """Run the methods and print the table. The status is 1 if more questions failed than may."""
    questions = config.load()
    scorer = choose_scorer(config.scorer, config.dataset)
    runs = asyncio.run(answer_dataset(config, questions))
    table = table_of_new_runs(runs, questions, scorer, config.recall_at)
    print_results(table)
    print(f"Every answer with its steps, to look at: corag report {' '.join(map(str, runs.values()))}")
    record = table.to_json() | {"max_failed": config.max_failed}
    return CommandResult(table.status, [record], table.failures, config.max_failed)
