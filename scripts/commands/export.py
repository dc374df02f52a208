"""Write a run's answers in the format of another tool; no model is started.

    corag export runs/dev/corag-1a2b3c4d --to musique --out predictions.jsonl

--to hotpotqa, 2wikimultihopqa, musique or kilt writes the dataset's official prediction file, trec a run file
of the passages collected, dataset a Parquet file of traces for Hugging Face's library. Prediction files are
read back and scored by the official rule if the gold answers are at hand.
"""

from __future__ import annotations

from eval.experiment.exporting import ExportConfig, export_run
from scripts.ended import Ended


def main(config: ExportConfig) -> Ended:
    """Write the file, say what is in it and how it scores."""
    made = export_run(config)
    print(f"{config.out}: {made.questions} questions of {config.run}, {made.failed} of them failed.")
    for note in made.notes:
        print(note)
    if made.scores is not None:
        figures = ", ".join(f"{name} {100 * value:.1f}" for name, value in made.scores.items())
        print(f"By the official rule, on {made.scored} questions: {figures}.")
    if made.left_out:
        print(f"Left out, for the question file has nothing to compare with: {', '.join(made.left_out)}.")
    record = {"questions": made.questions, "failed": made.failed, "official": made.scores}
    return Ended(0, [{"out": config.out, **record}])
