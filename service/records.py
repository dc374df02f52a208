"""Answers that were given: kept in memory for their links, and appended to run folders."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from core.protocols import Generator, Retriever
from core.runs.folder import RunFolder, read_attempts, read_lines, writable_folder
from core.runs.rows import Row, SavedRow
from eval.experiment.run import run_environment, run_path, run_settings
from service.options import Preset, Served


class Records:
    """What was answered lately, by id, and the run folders of all that was.

    Use it as a context manager: it holds the folders' locks. After a restart on the same folders the last
    answers are known again, so their links go on working.
    """

    def __init__(
        self,
        options: Served,
        presets: Mapping[str, Preset],
        generator: Generator,
        retriever: Retriever | None,
    ) -> None:
        """Open the folders. Raises :class:`core.errors.ConfigError` for one of other settings."""
        self._kept: OrderedDict[str, tuple[str, bytes]] = OrderedDict()
        self._most = options.kept
        self._folders: dict[str, RunFolder] = {}
        self._open = ExitStack()
        self.shared: dict[str, object | None] = {}
        if options.out:
            writable_folder(presets[next(iter(presets))].config.folder)
        written: list[tuple[float, str, str, bytes]] = []
        with ExitStack() as opening:
            for name, preset in presets.items():
                rows: Iterable[SavedRow] = ()
                if options.out:
                    settings = run_settings(preset.config, preset.method, generator, retriever)
                    path = run_path(preset.config, preset.method, settings, name)
                    folder = RunFolder(path, settings, run_environment(preset.config, settings))
                    self._folders[name] = opening.enter_context(folder)
                    written += _answered(path, name)
                    rows = read_attempts(path)
                self.shared[name] = preset.config.of(preset.method).shared_state(rows)
            # By when they were asked, whatever their preset, as they were kept before the restart.
            for _, key, name, text in sorted(written):
                self._keep(key, name, text)
            self._open = opening.pop_all()

    def add(self, preset: str, row: Row) -> None:
        """Keep what came of a question. Raises :class:`core.errors.DataError` if it cannot be written."""
        if row.answer is not None:
            self._keep(row.question.id, preset, row.to_json())
        if preset in self._folders:
            self._folders[preset].append(row)

    def find(self, key: str) -> dict[str, Any] | None:
        """Return an answer that was given, as callers see it; None if it is not kept."""
        if (found := self._kept.get(key)) is None:
            return None
        preset, line = found
        written = orjson.loads(line)
        return None if written["answer"] is None else public_record(preset, written)

    def _keep(self, key: str, preset: str, line: bytes) -> None:
        self._kept[key] = preset, line
        self._kept.move_to_end(key)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)

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


def public_record(preset: str, written: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of JSON as callers see it: the answer, its sources, every step, what it cost."""
    answer = written["answer"]
    return {
        "id": written["id"],
        "preset": preset,
        "question": written["question"]["text"],
        "answer": answer["text"],
        "stopped": answer["stopped"],
        "created": int(written["begun"]),
        "seconds": written["seconds"],
        "usage": written["usage"],
        "sources": sources_of(answer["passage_ids"], written["steps"]),
        "steps": [public_step(step) for step in written["steps"]],
        "details": {name: value for name, value in answer.items() if name not in ("text", "passage_ids")},
    }


def public_step(step: Mapping[str, Any]) -> dict[str, Any]:
    """Return a step without its prompt, which is the house's own."""
    return {name: value for name, value in step.items() if name != "prompt"}


def sources_of(ids: list[str], steps: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the passages that an answer rests on, in the order of collection, as far as searches told."""
    found = {hit["id"]: hit for step in steps for hit in step.get("hits", ())}
    return [
        {
            "id": name,
            "title": "",
            **{key: value for key, value in found.get(name, {}).items() if key != "score"},
        }
        for name in ids
    ]
