"""What an index folder says about itself: ``corag_index.json``, written last, so its presence means that the
index is complete.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import DataError, IndexMismatchError
from core.files import write_atomically
from core.runs.environment import version_of
from core.seeds import stable_hash

INDEX_FILE = "corag_index.json"
BUILDING = "corag_building.json"
SHARDS = "shards"
REBUILD = "Build it again with `corag index` (overwrite: true)."
_PACKAGES = ("corag", "pyserini", "faiss-cpu", "sentence-transformers")


@dataclass(frozen=True)
class CorpusFile:
    """A file that was indexed. ``hash``: BLAKE2b of its bytes, 16 hexadecimal digits."""

    path: str
    bytes: int
    hash: str


@dataclass(frozen=True)
class IndexSettings:
    """Everything that decides what an index finds; two builds with equal settings are interchangeable.

    ``details``: (name, value) pairs of the settings that matter for this kind. ``encoder_fingerprint`` and
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

    def differences(self, wanted: IndexSettings) -> list[str]:
        """Name what differs from other settings, as "name: here -> there"."""
        here, there = dict(self.details), dict(wanted.details)
        here |= {"kind": self.kind, "encoder": f"{self.encoder} {self.encoder_fingerprint}".strip()}
        there |= {"kind": wanted.kind, "encoder": f"{wanted.encoder} {wanted.encoder_fingerprint}".strip()}
        if self.encoder_fingerprint == wanted.encoder_fingerprint:  # the same weights under another name
            there["encoder"] = here["encoder"]
        if [file.hash for file in self.corpus] != [file.hash for file in wanted.corpus]:
            here["corpus"], there["corpus"] = (_named(settings.corpus) for settings in (self, wanted))
        names = sorted(name for name in here | there if here.get(name) != there.get(name))
        return [f"{name}: {here.get(name) or '(none)'} -> {there.get(name) or '(none)'}" for name in names]


def _named(corpus: Sequence[CorpusFile]) -> str:
    return ", ".join(f"{Path(file.path).name} ({file.hash})" for file in corpus)


@dataclass(frozen=True)
class IndexManifest:
    """The manifest of a complete index. ``files``: (name, bytes) of every file that belongs to it.

    ``notes``: sentences about the corpus, such as how many passages were dropped or longer than the encoder's
    limit.
    """

    settings: IndexSettings
    passages: int
    notes: tuple[str, ...]
    files: tuple[tuple[str, int], ...]
    versions: tuple[tuple[str, str], ...]

    @property
    def fingerprint(self) -> str:
        """Identify what this index finds; independent of where it lies and when it was built."""
        return self.settings.fingerprint


def hash_corpus(paths: Sequence[str | Path]) -> tuple[CorpusFile, ...]:
    """Hash the corpus files by content. Raises :class:`DataError` for a missing one."""
    files = []
    for path in map(Path, paths):
        if not path.is_file():
            raise DataError(f"there is no corpus file '{path}': check the path.")
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=8)).hexdigest()
        files.append(CorpusFile(str(path), path.stat().st_size, digest))
    return tuple(files)


def write_manifest(
    folder: Path, settings: IndexSettings, passages: int, notes: Sequence[str]
) -> IndexManifest:
    """Seal a finished index: list its files, write the manifest, drop the mark of an unfinished build."""
    files = tuple(
        (file.name, file.stat().st_size) for file in sorted(folder.iterdir()) if file.name != BUILDING
    )
    versions = tuple((package, version) for package in _PACKAGES if (version := version_of(package)))
    manifest = IndexManifest(settings, passages, tuple(notes), files, versions)
    write_atomically(folder / INDEX_FILE, json.dumps(dataclasses.asdict(manifest), indent=1) + "\n")
    (folder / BUILDING).unlink(missing_ok=True)
    return manifest


def read_manifest(folder: Path) -> IndexManifest | None:
    """Return the manifest of an index folder, None if it has none.

    Raises :class:`IndexMismatchError` if the manifest cannot be read, or a file that it lists is missing or
    has another size.
    """
    path = folder / INDEX_FILE
    if not path.is_file():
        return None
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        manifest = IndexManifest(
            settings=_settings_from(record["settings"]),
            passages=record["passages"],
            notes=tuple(record["notes"]),
            files=tuple((name, size) for name, size in record["files"]),
            versions=tuple((name, version) for name, version in record["versions"]),
        )
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


def begin_build(folder: Path, settings: IndexSettings, *, overwrite: bool) -> IndexManifest | None:
    """Make the folder ready for a build; return the manifest instead if this very index is already there.

    What an interrupted build of the same settings left is kept. Raises :class:`IndexMismatchError` if the
    folder has files and is no index of ours, or, naming the difference, holds another index or the vectors of
    one; ``overwrite`` empties it in that case.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ours = (folder / INDEX_FILE).is_file() or (folder / BUILDING).is_file()
    if not ours and any(folder.iterdir()):
        raise IndexMismatchError(
            f"the folder '{folder}' has files in it but is not an index of ours: choose another `out`."
        )
    if overwrite:
        _empty(folder)
    existing = read_manifest(folder)
    before = existing.settings if existing else _read_building(folder)
    if before and (differences := before.differences(settings)):
        if existing or (folder / SHARDS).is_dir():
            raise IndexMismatchError(
                f"the folder '{folder}' already holds {'an' if existing else 'an unfinished'} index with "
                f"other settings ({'; '.join(differences)}). Choose another `out`, or set overwrite: true to "
                "replace it."
            )
        _empty(folder)
    if existing is None:
        write_atomically(folder / BUILDING, json.dumps(dataclasses.asdict(settings), indent=1) + "\n")
    return existing


def _empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def _read_building(folder: Path) -> IndexSettings | None:
    path = folder / BUILDING
    return _settings_from(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None


def _settings_from(record: dict[str, Any]) -> IndexSettings:
    corpus = tuple(CorpusFile(**file) for file in record["corpus"])
    details = tuple((name, value) for name, value in record["details"])
    return IndexSettings(**(record | {"corpus": corpus, "details": details}))
