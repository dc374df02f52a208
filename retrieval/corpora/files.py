"""Which files a corpus is made of: those that are named, a folder of tables, a data set of the hub."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path, PurePosixPath

from corag.core.errors import ConfigError, DataError
from corag.core.system.installation import require
from corag.core.web.hub_files import HubFiles, is_hub_name
from corag.data.packed import content_ending, content_name
from corag.data.records import ARROW_TABLES
from retrieval.documents.files import RECORDS, is_document

_SHARD = re.compile(r"(.*?)[-_.]?(\d{5})-of-(\d{5})")
_NUMBER = re.compile(r"\d{5}")
# In order: of a repository that has its data in several forms the first is read.
_DATA = (ARROW_TABLES, (RECORDS, ".ndjson"), (".csv", ".tsv"), (".json",))
_ABOUT_DATA = ("dataset_info.json", "dataset_infos.json", "state.json")
_ABOUT_FOLDER = re.compile(r"(readme|licen[cs]e|changelog|citation|notice)\b.*", re.IGNORECASE)
_MOST_NAMES = 8  # groups of files that a sentence names


def expand_corpus(paths: Sequence[str], report: Callable[[str], None]) -> list[str]:
    """Return the files of a corpus, with those of folders of tables and of the hub in their names' place.

    What a data set of the hub lacks here is fetched. Folders of documents stay as they are. ``report`` gets
    sentences of progress.

    Raises:
        ConfigError: for a data set of the hub that cannot be fetched, or has several sets of files.
        DataError: for a folder some of whose shards are missing.
    """
    files: list[str] = []
    for path in paths:
        if is_hub_name(path):
            source = HubFiles.parse(path)
            local_files = source.fetch(partial(_choose, source=source), report)
            files += map(str, local_files)
        elif os.path.isdir(path) and (tables := _tables_of(Path(path))):
            report(f"{path}: a folder of {len(tables):,} files of records, which are read as one corpus")
            files += tables
        else:
            files.append(path)
    return files


def _tables_of(folder: Path) -> list[str]:
    """Return the Parquet and Arrow files of a folder that has no documents; [] for any other folder."""
    names = sorted(
        file.relative_to(folder).as_posix()
        for file in folder.rglob("*")
        if file.is_file() and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    )
    tables = [name for name in names if content_ending(Path(name)) in ARROW_TABLES]
    documents = [
        name for name in names if is_document(folder / name) or content_ending(Path(name)) == RECORDS
    ]
    if not tables or not all(_ABOUT_FOLDER.fullmatch(PurePosixPath(name).name) for name in documents):
        return []
    sets = _sets_of_files(tables)
    if len(sets) > 1:
        raise ConfigError(
            f"'{folder}' has several sets of tables ({_list_names([str(folder / each) for each in sets])}): "
            "name the folder or the files of one."
        )
    _refuse_missing_shards(tables, str(folder))
    return [str(folder / name) for name in tables]


def _choose(names: Sequence[str], source: HubFiles) -> list[str]:
    """Return the files that are the corpus, among those that a name of the hub means."""
    for endings in _DATA:
        data = [
            name
            for name in names
            if content_ending(Path(name)) in endings and PurePosixPath(name).name not in _ABOUT_DATA
        ]
        if data:
            break
    else:
        raise ConfigError(
            f"{source} has no files of records ({', '.join(e for each in _DATA for e in each)}), but: "
            f"{_list_names(names)}. Name a revision that has some, such as {source}@refs/convert/parquet."
        )
    if content_ending(Path(data[0])) in ARROW_TABLES:  # asked for now, and not after gigabytes were fetched
        require(f"'{data[0]}'", "pyarrow")
    sets = _sets_of_files(data)
    if len(sets) > 1 and not any(wildcard in source.pattern for wildcard in "*?["):
        listing = _list_names([f"{source}/{each}" for each in sets])
        raise ConfigError(f"{source} has several sets of files: name one of {listing}.")
    if not _NUMBER.search(source.pattern):  # which names some shards
        _refuse_missing_shards(data, str(source))
    return sorted(data)


def _sets_of_files(names: Sequence[str]) -> list[str]:
    """Return a pattern for each set of files that belong together: the shards of a split, a folder's tables.

    Of other files each is a set of its own: a repository has its corpus beside its queries.

    >>> _sets_of_files(["d/train-00000-of-00002.parquet", "d/train-00001-of-00002.parquet", "q.jsonl"])
    ['d/train-*', 'q.jsonl']
    """
    patterns: dict[str, None] = {}
    for name in names:
        path = PurePosixPath(name)
        if match := _SHARD.fullmatch(_stem(name)):
            pattern = str(path.parent / f"{match[1]}-*")
        elif content_ending(Path(name)) in ARROW_TABLES:
            pattern = str(path.parent / "*")
        else:
            pattern = name
        patterns[pattern] = None
    return list(patterns)


def _refuse_missing_shards(names: Sequence[str], where: str) -> None:
    """Raise :class:`DataError` if files are numbered "00001-of-00040" and some numbers are not there."""
    shards: dict[tuple[str, str, str], set[int]] = {}
    for name in names:
        if match := _SHARD.fullmatch(_stem(name)):
            folder = str(PurePosixPath(name).parent)
            shards.setdefault((folder, match[1], match[3]), set()).add(int(match[2]))
    for (folder, stem, count), numbers in shards.items():
        if len(numbers) < int(count):
            lacking = next(number for number in range(int(count)) if number not in numbers)
            raise DataError(
                f"{where}: {int(count) - len(numbers):,} of {int(count):,} files "
                f"'{folder}/{stem}-*-of-{count}' are missing, such as number {lacking}: a part of a corpus "
                "would pass for the whole. Fetch the rest, or name the files that are to be read."
            )


def _stem(name: str) -> str:
    """Return a file's name without folders and endings."""
    return PurePosixPath(content_name(name)).stem


def _list_names(names: Sequence[str]) -> str:
    return ", ".join([*names[:_MOST_NAMES], *["..."] * (len(names) > _MOST_NAMES)])
