"""Served answers on disk: run folders, each of one preset, one index and one set of options.

``PRESET-1a2b3c4d`` is the folder of a preset. Whatever of these changes, by a restart or because the index
was brought up to date, answers go on in a folder of their own.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from datetime import date, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

from corag.core.protocols import Generator, Retriever
from corag.core.runs.folder import RunFolder, writable_folder
from corag.core.runs.provenance import Provenance
from corag.core.runs.rows import Row, collect_sources, step_record
from corag.core.types import Passage
from corag.service.options import AnswersOptions
from eval.experiment.run import folder_name, run_environment, run_settings
from eval.sweeps.cells import Cell

_PRESET = "preset"  # in a start of a served run: which one it is of
_OF_A_DAY = re.compile(r".+-[0-9a-f]{8}-(\d{4}-\d{2}-\d{2})")


class Records:
    """The run folders of the answers from one index, by preset. They are locked until they are closed.

    With ``keep_days`` each day has folders of its own, and those of days before are deleted.
    """

    def __init__(
        self,
        options: AnswersOptions,
        presets: Mapping[str, Cell],
        generator: Generator,
        retriever: Retriever | None,
    ) -> None:
        """Open a folder for each preset, if answers are kept on disk.

        Raises :class:`corag.core.errors.ConfigError` if another process has one open.
        """
        self._out, self._keep_days = options.out, options.keep_days
        self._presets, self._generator, self._retriever = presets, generator, retriever
        self._locks, self._folders, self._day = ExitStack(), dict[str, RunFolder](), ""
        if self._out:
            writable_folder(Path(self._out))
            self._open()

    def add(self, preset: str, row: Row) -> None:
        """Write a row. Raises :class:`corag.core.errors.CoragError` if it cannot be written."""
        if not self._out:
            return
        if self._keep_days and self._day != today():
            self._open()
        self._folders[preset].append(row)

    def _open(self) -> None:
        day = today()
        self._locks.close()
        if self._keep_days:
            _delete_before(Path(self._out), f"{date.fromisoformat(day) - timedelta(self._keep_days)}")
        with ExitStack() as opening:
            for preset in self._presets.values():
                folder = _open_run(
                    preset, self._generator, self._retriever, f"-{day}" if self._keep_days else ""
                )
                self._folders[preset.name] = opening.enter_context(folder)
            self._locks = opening.pop_all()
        self._day = day

    def close(self) -> None:
        """Close the folders. Safe to call twice."""
        self._locks.close()


def today() -> str:
    """Return the day as folders are named by it."""
    return f"{date.today()}"


def _delete_before(out: Path, day: str) -> None:
    for folder in out.iterdir():
        if (match := _OF_A_DAY.fullmatch(folder.name)) and match[1] < day:
            shutil.rmtree(folder, ignore_errors=True)


def _open_run(preset: Cell, generator: Generator, retriever: Retriever | None, ending: str) -> RunFolder:
    """Return the run folder of a preset's answers from an index, by a name that changes with the settings."""
    settings = run_settings(preset.config, preset.method, generator, retriever)
    environment = run_environment(preset.config, settings, retriever) | {_PRESET: preset.name}
    name = f"{folder_name(preset.name)}-{Provenance(settings).digest}{ending}"
    return RunFolder(preset.config.folder / name, settings, environment)


def public_record(row: Row) -> dict[str, Any]:
    """Return an answered row as callers see it: the answer, its sources, every step, what it cost."""
    assert row.answer is not None
    steps = [step_record(step) for step in row.steps]
    return {
        "id": row.question.id,
        "answer": row.answer.text,
        "stopped": row.answer.stopped,
        "seconds": round(row.seconds, 4),
        "usage": {role: usage.to_json() for role, usage in row.usage.items()},
        "sources": _number(collect_sources(row.answer.passage_ids, steps, row.read_ids), row),
        "citations": list(map(asdict, row.citations)),
        "steps": list(map(public_step, steps)),
    }


def _number(sources: list[dict[str, Any]], row: Row) -> list[dict[str, Any]]:
    """Give the sources of an answer that cites the numbers of its final prompt, and put these first."""
    if not row.citations or row.answer is None:
        return sources
    numbers = {name: number for number, name in enumerate(row.answer.shown_ids, 1)}
    numbered = [source | {"number": numbers[source["id"]]} for source in sources if source["id"] in numbers]
    others = [source for source in sources if source["id"] not in numbers]
    return sorted(numbered, key=itemgetter("number")) + others


def public_step(step: Mapping[str, Any]) -> dict[str, Any]:
    """Return a step without its prompt: prompts may hold what the operator does not publish."""
    return {name: value for name, value in step.items() if name != "prompt"}


def passage_of(source: Mapping[str, Any]) -> Passage:
    """Return a source of an answer as a passage without its text."""
    return Passage(source["id"], source["title"], "", source.get("source", ""), source.get("page", 0))
