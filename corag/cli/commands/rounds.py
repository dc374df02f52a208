"""The whole of CoRAG's training: sample chains, make rows, fine-tune, decode; once or several times.

    corag rounds --config training/configs/world_rounds.yaml --questions world/train.jsonl \
        --retriever.index world-bm25 --out made

Every stage is a command of its own, whose options lie beside its result as YAML, and goes on where it was; so
does the same 'corag rounds'. With several rounds, chains are sampled by what the round before trained
(iterative rejection sampling, section 4.4 of the paper). With --learner, chains of the small --model train a
larger one (weak to strong).
"""

from __future__ import annotations

from pathlib import Path

from corag.cli.result import CommandResult
from eval.tables.printing import print_results
from eval.tables.results import TableView, table_of_runs
from training.rounds import RoundsConfig, perform_rounds


def main(config: RoundsConfig) -> CommandResult:
    """Perform every stage that is not finished; print a table of the rounds if they are decoded."""
    test, root = config.held_out, Path(config.out)
    tests = test.load() if test.questions else []
    names = perform_rounds(config)
    tuned = config.tuned_folder(names[-1])
    option = "model.name" if config.sft.tuning == "full" else "model.adapter"
    record = {tuned.name: str(tuned), "rounds": names}
    ending = f"Decode with what was trained: {option}={tuned}"
    if not tests:
        print(ending)
        return CommandResult(0, [record])
    test_folders = {name: root / name / "test/corag" for name in ("untuned", *names)}
    table = table_of_runs(test_folders, TableView(), tests)
    print_results(table)
    print(ending)
    # Each stage may have so many failed questions, as its chains may.
    status = table.status or int(any(each.failure_count > config.max_failed for each in table.summaries))
    max_failed = config.max_failed if status else table.failures.failed
    return CommandResult(status, [record | table.to_json()], table.failures, max_failed)
