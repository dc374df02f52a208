"""A shard is every n-th question of a run, answered into a folder of its own; joining makes the run of them.

``RUN.shard-2-of-8`` is a run folder like any other, with one file more: ``shard.json`` says which questions
it was asked, in order, so that joining needs neither the question file nor a model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from corag.core.errors import ConfigError, DataError, in_a_row
from corag.core.runs.folder import ANOTHER_OUT, RowLine, read_lines, write_run
from corag.core.runs.manifest import MANIFEST, Manifest
from corag.core.runs.provenance import Provenance
from corag.core.system.files import write_atomically
from corag.core.system.folder_lock import lock_folder

SHARD = "shard.json"
_NAME = re.compile(r"(?P<run>.+)\.shard-(?P<number>[0-9]+)-of-(?P<count>[0-9]+)")

Item = TypeVar("Item")


def read_share(text: str, option: str, example: str) -> tuple[int, int]:
    """Return the number of a share, counted from 1, and how many there are: 2 and 8 of "2/8".

    ``option``: what such a share is called. Raises :class:`ConfigError` for anything else.
    """
    match = re.fullmatch(r"([0-9]+)/([0-9]+)", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise ConfigError(
            f"there is no {option} '{text}': give its number, counted from 1, and the number of {option}s, "
            f"such as {option}={example}."
        )
    return int(match[1]), int(match[2])


@dataclass(frozen=True, slots=True)
class Shard:
    """Shard ``number`` (from 1) of ``count``.

    >>> Shard.parse("2/3").select("abcdefg")
    ['b', 'e']
    >>> Shard.parse("2/3").folder(Path("runs/test/ircot"))
    PosixPath('runs/test/ircot.shard-2-of-3')
    """

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read "2/8". Raises :class:`ConfigError` as :func:`read_share` does."""
        return cls(*read_share(text, "shard", "2/8"))

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def select(self, items: Sequence[Item]) -> list[Item]:
        """Return this shard's share. Raises :class:`ConfigError` if some shard would go empty."""
        if self.count > len(items):
            raise ConfigError(
                f"{len(items)} questions cannot fill {self.count} shards: take at most {len(items)}, so that "
                "none is empty."
            )
        return list(items[self.number - 1 :: self.count])

    def folder(self, run: Path) -> Path:
        """Return the folder of this shard of a run."""
        return run.with_name(f"{run.name}.shard-{self.number}-of-{self.count}")


def write_questions(folder: Path, ids: Sequence[str]) -> None:
    """Write the ids of a shard's questions into its folder, answered or not."""
    write_atomically(folder / SHARD, json.dumps({"questions": ids}) + "\n")


def join(path: Path) -> Path:
    """Join the shards of a run into the run, in the order of the question file, and return its folder.

    ``path``: the run, whose shards lie beside it, or any one of them. Joining again changes nothing but for
    what the shards have answered since. Raises :class:`ConfigError` or :class:`DataError` when a shard is
    missing, unfinished or was made with other settings, or another run is in the way.
    """
    target, shards = find_shards(path)
    settings = _common_settings(shards)
    order = _question_order(target, shards)
    lines: dict[str, RowLine] = {}
    for folder in shards.values():
        lines |= read_lines(folder)
    _check_finished(shards, lines)
    lines_by_id = {question: lines[question] for question in order}
    starts = [start for folder in shards.values() for start in Manifest.read(folder).starts]
    with lock_folder(target, advice=ANOTHER_OUT):
        if (target / MANIFEST).exists():
            earlier = Manifest.read(target)
            _refuse_differences(target, earlier.settings, "the shards", settings)
            lines_by_id = _add_target_lines(target, lines_by_id)
            starts += [start for start in earlier.starts if start not in starts]
        write_run(target, Manifest(settings, starts), (line.text for line in lines_by_id.values()))
    return target


def find_shards(path: Path) -> tuple[Path, dict[Shard, Path]]:
    """Return a run and the folders of its shards in order.

    Raises :class:`DataError` if some are missing or none has begun.
    """
    match = _NAME.fullmatch(path.name)
    run = path.with_name(match["run"]) if match else path
    matches = [match] if match else [_NAME.fullmatch(each.name) for each in run.parent.glob("*.shard-*-of-*")]
    counts = sorted({int(each["count"]) for each in matches if each and each["run"] == run.name})
    if len(counts) != 1:
        raise DataError(
            f"the run '{run}' is split into {in_a_row(counts) or 'no'} shards beside it "
            f"({run.name}.shard-1-of-...): name a run that was answered with 'corag run --shard 1/8' and so "
            "on, or any one of the shards to join."
        )
    (count,) = counts
    shards = {shard: shard.folder(run) for shard in (Shard(number, count) for number in range(1, count + 1))}
    missing = [shard.number for shard, folder in shards.items() if not (folder / SHARD).is_file()]
    if missing:
        raise DataError(
            f"the run '{run}' lacks shard {in_a_row(missing)} of {count}: answer it with the same 'corag "
            f"run' and shard={missing[0]}/{count}, then join again."
        )
    return run, shards


def _common_settings(shards: Mapping[Shard, Path]) -> Mapping[str, Any]:
    first, *others = shards.values()
    settings = Manifest.read(first).settings
    for other in others:
        _refuse_differences(first, settings, f"'{other}'", Manifest.read(other).settings)
    return settings


def _refuse_differences(folder: Path, settings: Any, other: str, others: Any) -> None:
    advice = (
        "Shards of one run have the same settings: answer them with the same options, or move the other run "
        "away."
    )
    Provenance(others).refuse_other(f"'{folder}'", Provenance(settings), than=other, advice=advice)


def _question_order(run: Path, shards: Mapping[Shard, Path]) -> list[str]:
    """Put the questions of all shards in the order of the question file."""
    ids_by_shard = {shard: read_questions(folder) for shard, folder in shards.items()}
    count, total = len(shards), sum(map(len, ids_by_shard.values()))
    positions = {
        (shard.number - 1) + count * i: name
        for shard, ids in ids_by_shard.items()
        for i, name in enumerate(ids)
    }
    # Every n-th question from the shard's own on: were they of one list, the positions leave no gap.
    order = [positions[i] for i in range(total) if i in positions]
    if len(order) != total or len(set(order)) != total:
        sizes = in_a_row(map(len, ids_by_shard.values()))
        raise ConfigError(
            f"the shards of '{run}' were asked {sizes} questions, which are not the shares of one list: "
            "answer them with the same 'limit' of the same question file."
        )
    return order


def read_questions(folder: Path) -> list[str]:
    """Read the ids that :func:`write_questions` wrote."""
    ids: list[str] = json.loads((folder / SHARD).read_text(encoding="utf-8"))["questions"]
    return ids


def _check_finished(shards: Mapping[Shard, Path], lines: Mapping[str, RowLine]) -> None:
    lacking = []
    for shard, folder in shards.items():
        ids = read_questions(folder)
        missing = sum(question not in lines for question in ids)
        if missing:
            lacking.append(f"'{folder}' lacks {missing} of {len(ids)} questions (shard={shard})")
    if lacking:
        raise DataError(
            f"{'; '.join(lacking)}: run each again with the options that it was begun with, then join again."
        )


def _add_target_lines(target: Path, shard_lines: Mapping[str, RowLine]) -> dict[str, RowLine]:
    """Add what the target has beyond the shards.

    Raises :class:`ConfigError` if it has other answers to the same questions.
    """
    present = read_lines(target)  # in the end, of the questions that no shard has
    merged_lines: dict[str, RowLine] = {}
    differing = 0
    for question, line in shard_lines.items():
        there = present.pop(question, None)
        merged_lines[question] = there if there and line.failed and not there.failed else line
        differing += bool(there and not there.failed and not line.failed and there.text != line.text)
    if differing:
        raise ConfigError(
            f"the run '{target}' has answers of its own to {differing} of the shards' {len(shard_lines)} "
            "questions, so it is not theirs: move that run away."
        )
    return merged_lines | present
