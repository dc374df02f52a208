"""Models in Hugging Face's form: fetching them, and reading weights that may be damaged or mean harm."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from pickle import UnpicklingError  # the error alone: torch reads such files with a reader of its own
from typing import Any

from corag.core.errors import ConfigError, reason
from corag.core.pace import bytes_pace, reporting

_EVERY_S = 20.0  # between two lines on a download


def download(name: str, what: str, instead: str, *, weights: bool = True) -> Path:
    """Return the folder of a model's files, fetching what is not there yet.

    It is for every library that loads a model: each would fetch by itself, but without a network some ask for
    file after file, each several times, and take more than a minute to give up.

    Args:
        name: as on Hugging Face.
        what: what it is for, such as "encoder", for the error's sentence.
        instead: what can be given in its place.
        weights: False if tokenizer and configuration are enough.

    Raises:
        ConfigError: if it can neither be found nor fetched.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    # Safetensors alone first: many repositories hold the same weights in several formats, some GB each.
    patterns = ["*.json", "*.txt", "*.model", "*.jinja"]
    try:
        with _progress_lines(f"{what} '{name}'", name):
            folder = Path(snapshot_download(name, allow_patterns=patterns + ["*.safetensors"] * weights))
            if weights and not any(folder.glob("*.safetensors")):
                folder = Path(snapshot_download(name, allow_patterns=[*patterns, "*.bin"]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ConfigError(
            f"the {what} '{name}' is no local folder and could not be fetched from Hugging Face "
            f"({reason(error)}). Check the name and the network, or give {instead}."
        ) from None
    return folder


@contextmanager
def _progress_lines(what: str, name: str) -> Iterator[None]:
    """Print how far a download is, now and then, in the place of the client's bars: not in a terminal."""
    if sys.stderr.isatty():
        yield
        return
    from huggingface_hub import constants
    from huggingface_hub.utils import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    files = Path(constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}" / "blobs"
    before = _size_of(files)
    missing = cache(lambda: _weights_size(name) - before)  # asked once it is known that there is a download

    def line(seconds: float) -> str:
        speed = bytes_pace(_size_of(files) - before, seconds, max(0, missing()))
        return f"corag: fetching the {what}: {speed}"

    quiet = are_progress_bars_disabled()
    disable_progress_bars()
    try:
        with reporting(line, lambda text: print(text, file=sys.stderr, flush=True), _EVERY_S):  # noqa: T201
            yield
    finally:
        if not quiet:
            enable_progress_bars()


def _size_of(folder: Path) -> int:
    size = 0
    for file in folder.glob("*"):
        with suppress(OSError):  # it has just got its final name
            size += file.stat().st_size
    return size


def _weights_size(name: str) -> int:
    """Return the bytes of a model's weights on the hub, in the format that is fetched; 0 if not known."""
    from huggingface_hub import HfApi

    siblings: list[Any] = []
    with suppress(Exception):  # it is for people only, and the download itself tells what is wrong
        siblings = HfApi().model_info(name, files_metadata=True, timeout=10).siblings or []
    for ending in (".safetensors", ".bin"):
        if sizes := [each.size or 0 for each in siblings if each.rfilename.endswith(ending)]:
            return sum(sizes)
    return 0


@contextmanager
def reading_weights(what: str) -> Iterator[None]:
    """Around whatever loads weights; ``what``: the model's name in a sentence, such as "the encoder 'x'".

    Raises :class:`ConfigError` for weights that are damaged, and for pickled ones that hold more than
    numbers: torch runs nothing of them, but its message tells how to.
    """
    from safetensors import SafetensorError

    try:
        yield
    except UnpicklingError:
        raise ConfigError(
            f"{what} has pickled weights that are damaged or hold more than numbers, code perhaps: nothing "
            "of them was run. Take weights in safetensors, from somebody you trust."
        ) from None
    except SafetensorError as error:
        raise ConfigError(
            f"{what} has damaged weights ({reason(error)}): copy or fetch its files again."
        ) from None
