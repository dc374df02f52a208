"""A run is a folder: ``manifest.json`` says what was run, ``traces.jsonl`` has a line per finished question.

Lines are only ever appended, each written as it is finished, so ``kill -9`` loses at most the questions in
flight, and a power cut what the system had not brought to the disk yet. Opening the folder again with the
same settings resumes: a torn last line is dropped, answered questions are kept, failed ones are tried again
(their later line counts). Other settings are refused, and the difference is shown.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import orjson

from corag.core.errors import ConfigError, DataError
from corag.core.runs.manifest import MANIFEST, Manifest, Start
from corag.core.runs.provenance import GO_ON, Provenance
from corag.core.runs.rows import Row, SavedRow
from corag.core.system.files import atomic_replace
from corag.core.system.folder_lock import lock_folder
from corag.core.system.process import unix_time

TRACES = "traces.jsonl"
ANOTHER_OUT = "choose another 'out'"
GO_ON_OR_OVERWRITE = (
    "Give the same settings to resume it, choose another 'out', or replace its answers with overwrite=true."
)


class RunFolder:
    """An open run.

    Use it as a context manager: it holds a lock, so that two processes cannot write the same run.
    """

    def __init__(
        self,
        path: Path,
        settings: Mapping[str, Any],
        environment: Mapping[str, Any],
        *,
        overwrite: bool = False,
        anew: bool = False,
        advice: str = GO_ON,
    ) -> None:
        """Create or resume the run in ``path``.

        Args:
            path: the run's folder.
            settings: all that a result depends on, JSON values; must be equal on resume.
            environment: versions, hardware and the like, kept for every start.
            overwrite: a run of other settings is thrown away and begun anew, instead of refused.
            anew: so is one of equal settings: of objects of the user's some changes are not noticed.
            advice: what to do about a run of other settings, a sentence.

        Raises:
            ConfigError: for other settings, or a run that another process is writing.
        """
        self.path = path
        self._opened_at = unix_time()
        self._lines: IO[bytes] | None = None
        self.answered_ids: set[str] = set()
        self._lock = lock_folder(path, advice=ANOTHER_OUT)
        try:
            if overwrite and (anew or self._has_other_settings(settings)):
                # The answers first: were the settings gone without them, they would count as the new run's.
                (path / TRACES).unlink(missing_ok=True)
                (path / MANIFEST).unlink(missing_ok=True)
            starts = self._earlier_starts(settings, advice)
            Manifest(settings, [*starts, Start.from_json(environment)]).write(path)
            self._recover()
        except BaseException:
            self._lock.close()
            raise

    def _has_other_settings(self, settings: Mapping[str, Any]) -> bool:
        """Whether what is there was made with other settings, or says nothing of them."""
        if not (self.path / MANIFEST).exists():
            return True
        return bool(Provenance(Manifest.read(self.path).settings).differences(Provenance(settings)))

    def _earlier_starts(self, settings: Mapping[str, Any], advice: str) -> Sequence[Start]:
        """Return the starts of the run that is resumed. Raises :class:`ConfigError` for another one."""
        if (self.path / MANIFEST).exists():
            earlier = Manifest.read(self.path)
            made_with = Provenance(earlier.settings)
            Provenance(settings).refuse_other(f"the run '{self.path}'", made_with, advice=advice)
            return earlier.starts
        if (self.path / TRACES).exists():
            raise ConfigError(
                f"'{self.path}' holds answers, but no {MANIFEST}, which says what they were made with: copy "
                "it back, or choose another folder."
            )
        return ()

    def _recover(self) -> None:
        """Collect which questions have been answered, and cut off a torn last line."""
        traces = self.path / TRACES
        traces.touch()
        self._good_bytes = 0
        for line, record in _parse_lines(traces):
            self._good_bytes += len(line)
            if not record["error"]:
                self.answered_ids.add(record["id"])
        os.truncate(traces, self._good_bytes)
        self._lines = traces.open("ab", buffering=0)  # unbuffered: what is written is in the file

    def append(self, row: Row) -> None:
        """Write a row. Raises :class:`DataError` when that fails: the lines before stay whole."""
        if self._lines is None:
            raise ValueError("the run folder is closed")
        line = row.to_json(self._opened_at)
        try:
            position = 0  # an unbuffered write may take a part only
            while position < len(line):
                position += self._lines.write(line[position:])
        except OSError as error:
            self._lines.truncate(self._good_bytes)  # whole lines again, before one is read
            raise DataError(
                f"cannot write to '{self.path / TRACES}': {error.strerror}. {len(self.answered_ids)} "
                "answered questions are safe there: free some space and run the same command again to go on."
            ) from error
        self._good_bytes += len(line)
        if not row.error:
            self.answered_ids.add(row.question.id)

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        lines, self._lines = self._lines, None
        if lines is not None:
            lines.close()
        self._lock.close()


def writable_folder(path: Path) -> None:
    """Make the folder that runs are to be written into, before a minute goes into opening a model.

    Raises :class:`DataError` if nothing can be written there.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise DataError(
            f"cannot write the run folder '{path}': {error.strerror}. Choose another with 'out'."
        ) from error


def write_run(path: Path, manifest: Manifest, lines: Iterable[bytes]) -> None:
    """Write a whole run at once, replacing what is there. The caller holds the folder's lock.

    The manifest comes last: without it, what an interruption leaves behind is no run.
    """
    with atomic_replace(path / TRACES) as temporary, temporary.open("wb") as stream:
        stream.writelines(lines)
        stream.flush()
        os.fsync(stream.fileno())
    manifest.write(path)


def read_rows(path: Path) -> dict[str, SavedRow]:
    """Read a run's rows by question id, in order of first appearance.

    Of several lines for one question the last counts.
    """
    rows: dict[str, SavedRow] = {}
    for row in read_attempts(path):
        rows[row.question.id] = row
    return rows


def read_attempts(path: Path) -> Iterator[SavedRow]:
    """Stream the lines of a run as they were written, also those of failures that were tried again."""
    Manifest.read(path)
    for number, (_, record) in enumerate(_parse_lines(path / TRACES), 1):
        try:
            yield SavedRow.from_json(record)
        except DataError as error:
            raise DataError(f"line {number} of '{path / TRACES}' is damaged: {error}") from None


@dataclass(frozen=True, slots=True)
class RowLine:
    """A row as it stands on disk, line break included."""

    text: bytes
    failed: bool

    def parse(self) -> SavedRow:
        """Return the row."""
        return SavedRow.from_json(orjson.loads(self.text))


def read_lines(path: Path) -> dict[str, RowLine]:
    """Read a run's rows as :func:`read_rows` does, unparsed."""
    lines: dict[str, RowLine] = {}
    for text, record in _parse_lines(path / TRACES):
        lines[record["id"]] = RowLine(text, bool(record["error"]))
    return lines


def _parse_lines(traces: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yield the lines that end in a line break, each with its record: the run may be going on.

    Raises :class:`DataError` if they cannot be read, or one is that of no question.
    """
    try:
        with traces.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                if line.endswith(b"\n"):
                    yield line, _parse_line(line, f"line {number} of '{traces}'")
    except OSError as error:
        raise DataError(
            f"cannot read the run's lines, '{traces}': {error.strerror}. Copy them there, or answer the "
            "questions again."
        ) from error


def _parse_line(line: bytes, where: str) -> dict[str, Any]:
    try:
        record = orjson.loads(line)
    except ValueError as error:
        raise DataError(
            f"{where} is damaged ({error}): remove it, and the run's command answers its question again."
        ) from None
    if not isinstance(record, dict) or not isinstance(record.get("id"), str) or "error" not in record:
        raise DataError(f"{where} is not an answered question: remove that line.")
    return record
