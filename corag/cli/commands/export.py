"""Write a run's answers or passages in the format of another tool; no model is started.

    corag export runs/dev/corag-1a2b3c4d --to musique --out predictions.jsonl
    corag export runs/dev/corag-1a2b3c4d --to trec --out run.trec

hotpotqa, 2wikimultihopqa, musique and kilt are the datasets' official prediction files, which are read back
and scored by the official rule if the gold answers are at hand. Answers with sources are written by corag
table RUN --answers_to FILE.
"""

from __future__ import annotations

from corag.cli.result import CommandResult
from eval.exporting import ExportConfig, export_run


def main(config: ExportConfig) -> CommandResult:
    """Write the file, say what is in it and how it scores."""
    export = export_run(config)
    print(
        f"{config.out}: {export.questions} questions of {config.run}, {export.failure_count} of them failed."
    )
    for note in export.notes:
        print(note)
    if export.scores is not None:
        figures = ", ".join(f"{name} {100 * value:.1f}" for name, value in export.scores.items())
        print(f"By the official rule, on {export.gold_count} questions: {figures}.")
    if export.left_out:
        print(f"Left out, for the question file has nothing to compare with: {', '.join(export.left_out)}.")
    record = {"questions": export.questions, "failed": export.failure_count, "official": export.scores}
    return CommandResult(0, [{"out": config.out, **record}])
