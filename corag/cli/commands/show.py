"""Show what a folder holds of one question: an answer's chain, sampled chains, or training rows.

corag show runs/mine/corag              # the questions with their scores
corag show runs/mine/corag test-7       # one of them, drawn as 'corag ask' draws it
corag show chains/mine train-7          # its sampled chains: scores, why each ended, which one was kept
corag show rows/mine train-7            # its rows as text; what is learned stands between [[ and ]]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from corag.cli.result import CommandResult
from corag.core.errors import ConfigError
from corag.core.options.classes import Options
from corag.core.options.names import NameOrPath
from corag.core.runs.manifest import CHAINS, MANIFEST, Manifest
from corag.core.web.hub_files import local_folder
from eval.api.ask import COLUMNS, stored_answer
from eval.scoring.rows import measure_title
from eval.scoring.scorers import choose_scorer
from eval.tables.printing import wide_console
from eval.tables.runs import read_run
from training.chains import chain_lines
from training.rows import REPORT, row_lines


@dataclass(frozen=True)
class ShowOptions(Options):
    """Options of 'corag show'."""

    folder: NameOrPath = ""
    """a run, sampled chains or training rows, or shared ones (hub:OWNER/NAME)."""

    id: str = ""
    """the question's id; without, all questions are listed."""

    model: NameOrPath = "default"
    """of rows, the model whose tokenizer they were written with."""

    def __post_init__(self) -> None:
        if not self.folder:
            raise ConfigError("no folder was given: write corag show FOLDER, or corag show FOLDER ID.")


def main(config: ShowOptions) -> CommandResult:
    """Print the list or the question."""
    console = wide_console(COLUMNS)
    folder = local_folder(config.folder)
    if (folder / REPORT).is_file() and not (folder / MANIFEST).is_file():
        lines = row_lines(folder, config.id, config.model)
    elif Manifest.read(folder).method == CHAINS:
        lines = chain_lines(folder, config.id)
    elif config.id:
        console.print(stored_answer(read_run(folder.name, folder), config.id))
        lines = iter(())
    else:
        lines = _list_answers(folder)
    for line in lines:
        console.print(line, soft_wrap=True)
    return CommandResult(0, [{"folder": str(folder), "id": config.id}])


def _list_answers(folder: Path) -> Iterator[str]:
    """Yield a line for each question of a run: its id, scores, answer and the question."""
    run = read_run(folder.name, folder)
    start = run.manifest.last
    scored = run.score(choose_scorer(start.scorer, run.manifest.dataset), start.recall_at)
    for row, scores in scored.scored_rows:
        figures = [
            f"{measure_title(name, start.recall_at)} {100 * value:.0f}"
            for name, value in scores.measures.items()
        ]
        answer = row.text if row.answer else f"failed: {row.error.splitlines()[0]}"
        yield f"{row.question.id}  {'  '.join(figures)}  {row.question.text} -> {' '.join(answer.split())}"
