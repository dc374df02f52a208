"""What a stage of 'corag rounds' reads besides its options, and whether it left questions unanswered."""

from __future__ import annotations

import sys
from pathlib import Path

from core.errors import BackendError
from core.files import file_digest
from core.runs.folder import TRACES, read_lines
from eval.experiment.run import RunConfig
from generation.adapters import adapter_folder
from generation.models import folder_digest
from scripts.commands import rows, sample
from training.chains import config_of
from training.config import SftConfig


def read_by_asking(options: sample.Config | RunConfig) -> list[str]:
    """Identify questions, aliases, prompts, model and adapter by content."""
    files = (options.questions, options.aliases, *options.corag.files().values())
    prompts = [template.identity for template in options.corag.templates()]
    return [*map(file_digest, files), *prompts, *_folders(options.model.name, options.model.adapter)]


def read_by_rows(options: rows.Config) -> list[str]:
    """Identify the tokenizer and, if rows ask it, the stop prompt by content.

    The other prompts are those of the chains.
    """
    if "stop" not in options.rows.tasks:
        return _folders(options.model)
    corag = config_of([Path(chains) for chains in options.chains])
    return [*_folders(options.model), corag.prompt("stop_check").identity]


def read_by_tuning(options: SftConfig) -> list[str]:
    """Identify base model and adapter by content."""
    return _folders(options.model, options.adapter)


def all_answered(options: sample.Config | RunConfig, may_fail: int) -> bool:
    """Whether all questions that a command was asked are answered, but for ``may_fail`` at most.

    Says so if they are not.

    Raises :class:`BackendError` if chains are missing: rows are made of all chains at once, and later ones
    cannot be added.
    """
    folder = options.folder if isinstance(options, sample.Config) else Path(options.out) / "corag"
    lines = read_lines(folder).values() if (folder / TRACES).is_file() else ()
    failed = [line.parsed() for line in lines if line.failed]
    if len(failed) <= may_fail:
        return True
    asked = {question.id for question in options.load()}  # the run may hold more than are asked now
    failed = [row for row in failed if row.question.id in asked]
    if len(failed) <= may_fail:
        return True
    said = (
        f"of the {len(asked)} questions of '{folder}', {len(failed)} failed, the first, "
        f"'{failed[0].question.id}', with:\n"
        f"  {failed[0].error.splitlines()[0]}\nThe same command asks them again"
    )
    if isinstance(options, sample.Config):
        raise BackendError(
            f"{said}, before it trains on the others. To leave them out, give --may_fail {len(failed)}."
        )
    print(f"corag: {said}.", file=sys.stderr)
    return False


def _folders(model: str, adapter: str = "") -> list[str]:
    """Identify model and adapter, if they are folders: what a hub holds under a name is not asked there."""
    named = ("" if model == "default" else model, adapter_folder(adapter))
    return [folder_digest(folder) if folder and Path(folder).is_dir() else "" for folder in named]
