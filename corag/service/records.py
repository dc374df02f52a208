"""Recorded answers: the latest in memory for their links, all of them in run folders.

A run folder is of one preset, one index and one set of options: ``PRESET-1a2b3c4d``. Whatever of these
changes, by a restart or because the index was brought up to date, answers go on in a folder of their own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from corag.core.errors import DataError
from corag.core.protocols import Generator, Retriever
from corag.core.runs.folder import TRACES, RunFolder, read_lines, writable_folder
from corag.core.runs.manifest import MANIFEST, Manifest
from corag.core.runs.provenance import Provenance
from corag.core.runs.rows import Row, collect_sources
from corag.service.options import Preset, ServiceOptions
from eval.experiment.run import folder_name, run_environment, run_settings

_PRESET = "preset"  # in a start of a served run: which one it is of


class ServedRuns:
    """The run folders of the answers from one index, by preset. They are locked until they are closed."""

    def __init__(self, folders: Mapping[str, RunFolder], locks: ExitStack) -> None:
        self._folders, self._locks = folders, locks

    def append(self, preset: str, row: Row) -> None:
        """Write a row, if answers are kept on disk. Raises :class:`DataError` if it cannot be written."""
        if preset in self._folders:
            self._folders[preset].append(row)

    def close(self) -> None:
        """Close the folders. Safe to call twice."""
        self._locks.close()


class Records:
    """The latest answers by id, and the run folders of those that come.

    Use it as a context manager: it holds the folders' locks. After a restart the last answers are read back,
    whatever the settings that they were given with, so their links still work.

    Attributes:
        runs: where answers from the index that is searched now are written.
    """

    def __init__(
        self,
        options: ServiceOptions,
        presets: Mapping[str, Preset],
        generator: Generator,
        retriever: Retriever | None,
    ) -> None:
        """Open the folders. Raises :class:`corag.core.errors.ConfigError` if another process has one open."""
        self._answers: OrderedDict[str, tuple[str, bytes]] = OrderedDict()
        self._most, self._out = options.kept, options.out
        self._presets, self._generator = presets, generator
        if options.out:
            writable_folder(Path(options.out))
        self.runs = self.open_runs(retriever)
        if options.out:
            # By when they were asked, whatever their preset, as they were kept before the restart.
            for _, key, name, text in _latest_answers(Path(options.out), options.kept):
                self._keep(key, name, text)

    def open_runs(self, retriever: Retriever | None) -> ServedRuns:
        """Open the run folder of each preset for answers from an index; none if nothing is kept on disk.

        Raises :class:`corag.core.errors.ConfigError` if another process has one open.
        """
        folders: dict[str, RunFolder] = {}
        with ExitStack() as opening:
            for preset in self._presets.values() if self._out else ():
                folder = _open_run(preset, self._generator, retriever)
                folders[preset.name] = opening.enter_context(folder)
            return ServedRuns(folders, opening.pop_all())

    def add(self, preset: str, row: Row, runs: ServedRuns) -> None:
        """Save the result of a question among the answers from its index.

        Raises :class:`DataError` if it cannot be written.
        """
        if row.answer is not None:
            self._keep(row.question.id, preset, row.to_json())
        runs.append(preset, row)

    def find(self, key: str) -> dict[str, Any] | None:
        """Return a recorded answer as callers see it; None if it is not in memory any more."""
        if (entry := self._answers.get(key)) is None:
            return None
        preset, line = entry
        row = orjson.loads(line)
        return None if row["answer"] is None else public_record(preset, row)

    def _keep(self, key: str, preset: str, line: bytes) -> None:
        self._answers[key] = preset, line
        self._answers.move_to_end(key)
        while len(self._answers) > self._most:
            self._answers.popitem(last=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.runs.close()


def _open_run(preset: Preset, generator: Generator, retriever: Retriever | None) -> RunFolder:
    """Open the run folder of a preset's answers from an index, by a name that changes with the settings."""
    settings = run_settings(preset.config, preset.method, generator, retriever)
    environment = run_environment(preset.config, settings) | {_PRESET: preset.name}
    name = f"{folder_name(preset.name)}-{Provenance(settings).digest}"
    return RunFolder(preset.config.folder / name, settings, environment)


def _latest_answers(out: Path, most: int) -> list[tuple[float, str, str, bytes]]:
    """Return the last answers of all served runs, oldest first, as :func:`_read_answers` yields them."""
    answers: list[tuple[float, str, str, bytes]] = []
    if not most:
        return answers
    runs = [path.parent for path in out.glob(f"*/{MANIFEST}") if (path.parent / TRACES).is_file()]
    mtimes = {run: (run / TRACES).stat().st_mtime for run in runs}
    for run in sorted(runs, key=mtimes.__getitem__, reverse=True):
        if len(answers) >= most and mtimes[run] < answers[-most][0]:
            break  # this run, and all that are left, ended before the oldest answer that is kept was begun
        try:
            preset = Manifest.read(run).last.record.get(_PRESET)
        except DataError:  # another program's folder, or a damaged one
            continue
        if preset:
            answers = sorted([*answers, *_read_answers(run, preset)])
    return answers[-most:]


def _read_answers(path: Path, preset: str) -> Iterator[tuple[float, str, str, bytes]]:
    """Yield when each answer of a run folder was begun, its id, preset and line; of failures nothing."""
    for key, line in read_lines(path).items():
        if not line.failed:
            yield float(orjson.loads(line.text).get("begun", 0.0)), key, preset, line.text


def public_record(preset: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of JSON as callers see it: the answer, its sources, every step, what it cost."""
    answer = row["answer"]
    return {
        "id": row["id"],
        "preset": preset,
        "question": row["question"]["text"],
        "answer": answer["text"],
        "stopped": answer["stopped"],
        "created": int(row["begun"]),
        "seconds": row["seconds"],
        "usage": row["usage"],
        "sources": collect_sources(answer["passage_ids"], row["steps"], row.get("read", ())),
        "steps": [public_step(step) for step in row["steps"]],
        "details": {name: value for name, value in answer.items() if name not in ("text", "passage_ids")},
    }


def public_step(step: Mapping[str, Any]) -> dict[str, Any]:
    """Return a step without its prompt: prompts may hold what the operator does not publish."""
    return {name: value for name, value in step.items() if name != "prompt"}
