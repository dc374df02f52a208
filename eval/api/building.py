"""Building an index, from Python."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from corag.core.errors import ConfigError
from eval.api.arguments import with_keywords
from eval.experiment.extensions import IndexConfig
from eval.experiment.opening import quiet
from retrieval.index import build
from retrieval.index.manifest import IndexManifest

Kind = Literal["bm25", "dense"]


@dataclass(frozen=True, repr=False)
class BuiltIndex:
    """An index on disk. It stands for its folder: ``open_index(build_index(...))``.

    Attributes:
        folder: where it lies.
        manifest: how many passages it has, all that decides what it finds, and notes on what was left out.
    """

    folder: Path
    manifest: IndexManifest

    def __fspath__(self) -> str:
        return str(self.folder)

    def __repr__(self) -> str:
        return f"<BuiltIndex {str(self.folder)!r}, {self.manifest.passages:,} passages>"


def build_index(
    *corpus: str | os.PathLike[str],
    out: str | os.PathLike[str],
    kind: Kind = "bm25",
    report: Callable[[str], None] | None = None,
    **options: Any,
) -> BuiltIndex:
    """Build an index, or find that this very one is there already.

    Args:
        corpus: files or folders with the passages.
        out: folder that becomes the index.
        kind: "bm25" (Lucene) or "dense" (FAISS).
        report: called with sentences of progress; they go to standard error without it.
        options: further ones of :class:`retrieval.config.IndexConfig`, such as ``format="hotpotqa"``,
            ``encoder="intfloat/e5-base-v2"`` or ``overwrite=True``.

    Raises:
        ConfigError: for an unknown option.
        DataError: for a corpus that is missing or broken.
        IndexMismatchError: if the folder holds something else.

    Example::

        index = open_index(build_index("corpus.jsonl", out="indexes/mine"))
    """
    if not corpus:
        raise ConfigError("no corpus was given: name the files or folders that hold the passages.")
    config = IndexConfig([os.fspath(file) for file in corpus], os.fspath(out), kind=kind)
    config = with_keywords(config, {"kind": kind} | options)
    with quiet(f"building the index {config.out}") as print_line:
        manifest = build.build_index(config, report or print_line)
    return BuiltIndex(Path(config.out), manifest)
