"""Where Lucene's classes are: in Anserini's jar, which comes inside the package Pyserini."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

from corag.core.errors import BackendError
from corag.core.system.files import build_once, cache_folder
from corag.core.system.package_files import PackageFiles

JAR = PackageFiles("pyserini==1.6.0", "pyserini", "resources/jars/anserini-*-fatjar.jar", size_mb=150)
"""Pyserini itself, its Python, asks for torch and much else that nothing here needs."""
_UNUSED_FOLDERS = ("ai/onnxruntime/native/", "native/lib/")
VERSIONS = (1, 7), (2, 0)
"""Of Anserini: from the first, below the second."""


def jar_folder() -> Path:
    """Return the folder of the cache that ``corag doctor --fetch`` fills with the jar."""
    return cache_folder() / "lucene"


def fetch_jar() -> None:
    """Download the jar into the cache, without libraries that nothing here loads: 107 of its 170 MB.

    Those are ONNX's and tokenizers' for every system, and what debugs them; Anserini's encoders use them.
    Raises as :meth:`corag.core.system.package_files.PackageFiles.fetch`.
    """
    with (
        JAR.fetch() as file,
        build_once(jar_folder(), "Lucene") as filling,
        ZipFile(file) as whole,
        ZipFile(filling / file.name, "w", ZIP_DEFLATED) as copy,
    ):
        for entry in whole.infolist():
            if not entry.filename.startswith(_UNUSED_FOLDERS):
                copy.writestr(entry, whole.read(entry))


def find_jar() -> Path:
    """Return Anserini's jar: that of an installed Pyserini, so that both can be used in one process.

    Without a Pyserini of a fitting version it is the one in the cache. Raises :class:`BackendError` if there
    is none.
    """
    installed_jars = JAR.find_installed()
    fitting = _fitting(installed_jars) or _fitting(jar_folder().glob("*.jar"))
    if fitting:
        return max(fitting, key=_version)
    other = f" (the Pyserini that is installed has {installed_jars[-1].name})" if installed_jars else ""
    raise BackendError(
        f"Lucene, which BM25 is, is not on this machine yet{other}: run `corag doctor --fetch` "
        f"(about {JAR.size_mb} MB)."
    )


def _fitting(jars: Iterable[Path]) -> list[Path]:
    first, beyond = VERSIONS
    return [jar for jar in jars if first <= _version(jar) < beyond]


def _version(jar: Path) -> tuple[int, ...]:
    """Return the version in a jar's name.

    >>> _version(Path("anserini-1.7.1-fatjar.jar"))
    (1, 7, 1)
    """
    match = re.match(r"anserini-(\d+(?:\.\d+)*)", jar.name)
    return tuple(map(int, match[1].split("."))) if match else ()
