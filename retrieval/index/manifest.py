"""What an index folder records about itself: ``corag_index.json``.

It is written last, so its presence means that the index is complete.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from corag.core.errors import IndexMismatchError
from corag.core.runs.environment import installed_version
from corag.core.runs.provenance import Input, Provenance
from corag.core.runs.shards import read_share
from corag.core.seeds import new_digest, stable_hash
from corag.core.system.files import file_digest, write_atomically
from corag.core.web.hub_files import hub_name
from corag.data.packed import check_records_file

IndexKind = Literal["bm25", "dense"]
INDEX_FILE = "corag_index.json"
FORMAT = 1
LANGUAGE = "language"  # the detail of a BM25 index that is not English
# Beside the manifest and not in it: files that identify an index by its manifest would else take every new
# build for another index, since Lucene writes random names into its files.
HASHES = "corag_hashes.json"
SHARDS = "shards"
PART = "part"  # a detail that only parts have
# How vectors are indexed: parts are flat, and become an index of any of these.
FORM = ("faiss", "hnsw_m", "hnsw_ef_construction", "ivf_lists", "pq_bytes", "refine")
# What an index in the making is made of; one in its place has its manifest alone. The name is its own:
# folders of runs have such a file too, and a folder of ours may be emptied.
BUILDING = "corag_building.json"
_PART = 1 << 20  # bytes that are hashed at once
REBUILD = "Build it again with `corag index ... --overwrite true`."
_PACKAGES = ("corag", "pyserini", "faiss-cpu", "sentence-transformers")


@dataclass(frozen=True, slots=True)
class IndexPart:
    """Part ``number`` (from 1) of ``count``: so many passages in a row of the whole corpus.

    ``whole``: the fingerprint of the index that all parts are together; "" where none is built yet.

    >>> IndexPart.parse("2/3").rows(10)
    range(3, 6)
    """

    number: int
    count: int
    whole: str = ""

    @classmethod
    def parse(cls, text: str, whole: str = "") -> IndexPart:
        """Read "2/4". Raises :class:`ConfigError` as :func:`read_share` does."""
        return cls(*read_share(text, "part", "2/4"), whole)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def rows(self, total: int) -> range:
        """Return which of so many passages are this part's.

        In a row, so that where scores are equal the earlier passage is in the earlier part.
        """
        return range(total * (self.number - 1) // self.count, total * self.number // self.count)


def require_all_parts(parts: Mapping[str, IndexPart | None]) -> dict[int, list[str]]:
    """Return the holder of each part, by number, in order.

    ``parts``: by name or address; None for an index that is no part. Raises :class:`IndexMismatchError` for
    parts of several indexes, or a part that is missing: the corpus would be smaller, unnoticed.
    """
    whole = {name: part for name, part in parts.items() if part is None}
    if whole:
        raise IndexMismatchError(
            f"'{next(iter(whole))}' is a whole index, but others are parts of one: search one or the other."
        )
    holders: dict[int, list[str]] = {}
    for name, part in parts.items():
        assert part is not None
        holders.setdefault(part.number, []).append(name)
    first = next(part for part in parts.values() if part is not None)
    for name, part in parts.items():
        if part is not None and (part.whole, part.count) != (first.whole, first.count):
            raise IndexMismatchError(
                f"'{name}' is part {part} of another index than '{next(iter(parts))}' is part {first} of: "
                "build all parts from the same corpus with the same options."
            )
    if missing := [str(number) for number in range(1, first.count + 1) if number not in holders]:
        raise IndexMismatchError(
            f"of an index in {first.count} parts, part {', '.join(missing)} is missing among "
            f"{', '.join(parts)}: name all of them, or the answers would be searched for in less."
        )
    return {number: holders[number] for number in sorted(holders)}


@dataclass(frozen=True)
class CorpusFile:
    """A file that was indexed.

    ``hash``: BLAKE2b of its bytes, 16 hexadecimal digits; of a document, of its name and bytes. ``content``:
    of a document, of its bytes alone; "" for an empty one.
    """

    path: str
    bytes: int
    hash: str
    content: str = ""


@dataclass(frozen=True)
class IndexSettings:
    """Everything that decides what an index finds; two builds with equal settings are interchangeable.

    ``details``: (name, value) pairs of the settings that matter for this kind. ``shard_size`` is one of them:
    the provenance of an unfinished index is of the same settings, and shards of another size cannot be taken
    up. So indexes that differ by it alone have different fingerprints. ``encoder_fingerprint`` and
    ``dimension`` are empty for BM25.
    """

    kind: str
    corpus: tuple[CorpusFile, ...]
    details: tuple[tuple[str, str], ...] = ()
    encoder: str = ""
    encoder_fingerprint: str = ""
    dimension: int = 0

    @property
    def fingerprint(self) -> str:
        """Identify corpus contents (not where the files lay), settings and encoder."""
        hashes = "/".join(file.hash for file in self.corpus)
        return stable_hash(f"{self.kind}|{hashes}|{self.details}|{self.encoder_fingerprint}|{self.dimension}")

    def detail(self, name: str) -> str:
        """Return one of the ``details``, "" if this kind has none of that name."""
        return dict(self.details).get(name, "")

    @property
    def part(self) -> IndexPart | None:
        """Which part of an index this is, None for a whole one."""
        text = self.detail(PART)
        return IndexPart.parse(text, self.without(PART).fingerprint) if text else None

    def without(self, *names: str) -> IndexSettings:
        """Return the same without some of the ``details``."""
        details = tuple(pair for pair in self.details if pair[0] not in names)
        return dataclasses.replace(self, details=details)

    @property
    def provenance(self) -> Provenance:
        """What it is made of: a corpus is its content, an encoder its weights, wherever they lie."""
        corpus = [Input(file.path, file.hash) for file in self.corpus]
        encoder = [Input(self.encoder, self.encoder_fingerprint)] if self.encoder else []
        return Provenance({"kind": self.kind} | dict(self.details), {"corpus": corpus, "encoder": encoder})


@dataclass(frozen=True)
class IndexManifest:
    """The manifest of a complete index. ``files``: (name, bytes) of every file that belongs to it.

    ``notes``: sentences about the corpus, such as how many passages were dropped or longer than the encoder's
    limit. ``format``: of the manifest and the files that it lists.
    """

    settings: IndexSettings
    passages: int
    notes: tuple[str, ...]
    files: tuple[tuple[str, int], ...]
    versions: tuple[tuple[str, str], ...]
    format: int = FORMAT

    @property
    def fingerprint(self) -> str:
        """Identify what this index finds; independent of where it lies and when it was built."""
        return self.settings.fingerprint


def hash_corpus(paths: Sequence[str | Path]) -> tuple[CorpusFile, ...]:
    """Hash the corpus files by content. Raises :class:`DataError` for a missing one."""
    files = []
    for path in map(Path, paths):
        check_records_file(path)
        files.append(CorpusFile(hub_name(str(path)), path.stat().st_size, file_digest(path)))
    return tuple(files)


def _flush_to_disk(path: Path) -> None:
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


def hash_documents(files: Iterable[tuple[Path, str]]) -> tuple[CorpusFile, ...]:
    """Hash documents by name and content, since their passages are shown with the name, and titled by it.

    ``files``: each with the name that is kept. One that cannot be opened is hashed by its name alone: reading
    will tell why.
    """
    files_with_hashes = []
    for path, name in files:
        digest, size = new_digest(name.encode() + b"\0"), 0
        content = new_digest()
        with contextlib.suppress(OSError), path.open("rb") as stream:
            while part := stream.read(_PART):
                digest.update(part)
                content.update(part)
                size += len(part)
        # Files without content have nothing in common.
        files_with_hashes.append(
            CorpusFile(name, size, digest.hexdigest(), content.hexdigest() if size else "")
        )
    return tuple(files_with_hashes)


def write_manifest(
    folder: Path, settings: IndexSettings, passages: int, notes: Sequence[str]
) -> IndexManifest:
    """Seal a finished index: hash and list its files, write the manifest."""
    index_files = [file for file in sorted(folder.iterdir()) if file.name not in (BUILDING, HASHES)]
    files = tuple((file.name, file.stat().st_size) for file in index_files)
    hashes = {file.name: file_digest(file) for file in index_files if file.is_file()}
    for name in hashes:  # a power cut must not leave a manifest that names files without content
        _flush_to_disk(folder / name)
    versions = tuple((package, version) for package in _PACKAGES if (version := installed_version(package)))
    manifest = IndexManifest(settings, passages, tuple(notes), files, versions)
    text = json.dumps(dataclasses.asdict(manifest), indent=1) + "\n"
    hashes[INDEX_FILE] = stable_hash(text)
    write_atomically(folder / HASHES, json.dumps(hashes, indent=1) + "\n")
    write_atomically(folder / INDEX_FILE, text)
    return manifest


def read_manifest(folder: Path) -> IndexManifest | None:
    """Return the manifest of an index folder, None if it has none.

    Raises :class:`IndexMismatchError` if the manifest cannot be read, or lists no files, or one that is
    missing or has another size.
    """
    path = folder / INDEX_FILE
    if not path.is_file():
        return None
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if record.get("format") != FORMAT:
            raise ValueError(f"its format is {record.get('format')}, and not {FORMAT}")
        settings = _settings_from(record["settings"])
        if settings.kind not in get_args(IndexKind):
            raise ValueError(f"an index of the kind '{settings.kind}'")
        manifest = IndexManifest(
            settings=settings,
            passages=record["passages"],
            notes=tuple(record["notes"]),
            files=tuple((name, size) for name, size in record["files"]),
            versions=tuple((name, version) for name, version in record["versions"]),
        )
        if not manifest.files:
            raise ValueError("it lists no files")
    except (ValueError, KeyError, TypeError) as error:
        raise IndexMismatchError(
            f"'{path}' is not a manifest that this version reads ({error!r}). {REBUILD}"
        ) from None
    for name, size in manifest.files:
        file = folder / name
        if not file.is_file():
            raise IndexMismatchError(
                f"the index '{folder}' lacks its file '{name}'. Copy it back or rebuild. {REBUILD}"
            )
        if file.stat().st_size != size:
            raise IndexMismatchError(
                f"the index file '{file}' has {file.stat().st_size:,} bytes, but {size:,} were written: it "
                f"is damaged. {REBUILD}"
            )
    return manifest


def changed_files(folder: Path, manifest: IndexManifest) -> list[str]:
    """Return the files of an index whose content is not what was built.

    The manifest is one of them, also where it does not list all files that were hashed. This reads the whole
    index. Raises :class:`IndexMismatchError` if the hashes are missing or cannot be read.
    """
    file, files = folder / HASHES, dict(manifest.files)
    if not file.is_file():
        raise IndexMismatchError(
            f"the index '{folder}' lacks its file '{HASHES}', so its content cannot be checked. Copy it "
            f"back or rebuild. {REBUILD}"
        )
    try:
        hashes: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
        manifest_changed = hashes.get(INDEX_FILE) != file_digest(folder / INDEX_FILE)
        fewer = hashes.keys() - files.keys() - {INDEX_FILE}
        changed_names = [name for name in files if hashes.get(name) != file_digest(folder / name)]
    except (ValueError, AttributeError) as error:
        raise IndexMismatchError(f"'{file}' does not say what was built ({error}). {REBUILD}") from None
    return [INDEX_FILE] * bool(manifest_changed or fewer) + changed_names


def _settings_from(record: dict[str, Any]) -> IndexSettings:
    corpus = tuple(CorpusFile(**file) for file in record["corpus"])
    details = tuple((name, value) for name, value in record["details"])
    return IndexSettings(**(record | {"corpus": corpus, "details": details}))
