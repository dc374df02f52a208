"""Recorded answers: the latest in memory for their links, all of them in run folders."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from corag.core.protocols import Generator, Retriever
from corag.core.runs.folder import RunFolder, read_lines, writable_folder
from corag.core.runs.rows import Row, collect_sources
from corag.service.options import Preset, Served
from eval.experiment.run import open_run


class Records:
    """The latest answers by id, and the run folder of each preset.

    Use it as a context manager: it holds the folders' locks. After a restart on the same folders the last
    answers are read back, so their links still work.
    """

    def __init__(
        self,
        options: Served,
        presets: Mapping[str, Preset],
        generator: Generator,
        retriever: Retriever | None,
    ) -> None:
        """Open the folders. Raises :class:`corag.core.errors.ConfigError` for one of other settings."""
        self._answers: OrderedDict[str, tuple[str, bytes]] = OrderedDict()
        self._most = options.kept
        self._folders: dict[str, RunFolder] = {}
        self._open = ExitStack()
        if options.out:
            writable_folder(presets[next(iter(presets))].config.folder)
        restored: list[tuple[float, str, str, bytes]] = []
        with ExitStack() as opening:
            for name, preset in presets.items():
                if options.out:
                    folder = open_run(preset.config, preset.method, generator, retriever, cell=name)
                    self._folders[name] = opening.enter_context(folder)
                    restored += _answered(folder.path, name)
            # By when they were asked, whatever their preset, as they were kept before the restart.
            for _, key, name, text in sorted(restored):
                self._keep(key, name, text)
            self._open = opening.pop_all()

    def add(self, preset: str, row: Row) -> None:
        """Save the result of a question. Raises :class:`DataError` if it cannot be written."""
        if row.answer is not None:
            self._keep(row.question.id, preset, row.to_json())
        if preset in self._folders:
            self._folders[preset].append(row)

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
        self._open.close()


def _answered(path: Path, preset: str) -> Iterator[tuple[float, str, str, bytes]]:
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
