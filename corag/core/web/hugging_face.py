"""Models in Hugging Face's form: fetching them, and reading weights that may be damaged or mean harm."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError  # the error alone: torch reads such files with a reader of its own

from corag.core.errors import ConfigError, reason


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
