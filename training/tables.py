"""Folders of what is made of chains, rows or pairs: datasets by split, and a report of what is in them."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from inspect import signature
from pathlib import Path
from typing import Any, TypeVar

from corag.chains.taught import option_arguments
from corag.core.errors import ConfigError
from corag.core.options.names import Mark, marked_options
from corag.core.runs.folder import TRACES
from corag.core.runs.provenance import Provenance
from corag.core.system.files import file_digest, write_atomically
from corag.generation.models import context_window
from retrieval.config import RetrieverConfig
from training.chains import read_chain_manifest

Report = TypeVar("Report")


def identify(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Return what tells the chains of some folders from others: their settings and what they hold."""
    names = ("options", "prompts", "questions", "model", "seed")
    return [
        {name: read_chain_manifest(folder).settings[name] for name in names}
        | {"traces": file_digest(folder / TRACES)}  # sampling may have gone on since
        for folder in folders
    ]


def search_arguments(folders: Sequence[Path]) -> list[str]:
    """Return what the chains of some folders searched, as options of the command line, if it is noted."""
    records = [read_chain_manifest(folder).last.record.get("retriever", {}) for folder in folders]
    record: dict[str, Any] = next(filter(None, records), {})
    names = sorted(record.keys() - marked_options(RetrieverConfig, Mark.ENVIRONMENT))
    return option_arguments("retriever", RetrieverConfig, record, names)


def within_window(tokens: int, model: str, folder: str, what: str) -> int:
    """Return how many tokens ``what`` may have, no more than the model in ``folder`` can read.

    Decoding would shorten prompts to the same length. A line is printed if it changes anything.
    """
    window = context_window(folder)
    if window is None or tokens <= window:
        return tokens
    sys.stderr.write(
        f"corag: '{model}' was made to read {window} tokens at once, so {what} have at most so many, not "
        f"{tokens}.\n"
    )
    return window


def read_report(file: Path, kind: type[Report], lengths: type[Any]) -> Report | None:
    """Read a report, whose ``lengths`` are of a class of their own; None if there is none.

    What earlier versions noted besides is passed over.
    """
    if not file.is_file():
        return None
    noted = json.loads(file.read_text(encoding="utf-8"))
    record = {name: noted[name] for name in signature(kind).parameters if name in noted}
    record["lengths"] = {name: lengths(**figures) for name, figures in record["lengths"].items()}
    return kind(**record)


def refuse_others(out: Path, earlier: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` if what is in a folder was made with settings other than these."""
    advice = "Give the same chains and options, choose another 'out', or remove it."
    Provenance(settings).refuse_other(f"'{out}'", Provenance(earlier), advice=advice)


def make_room(out: Path) -> None:
    """Make room for a folder. Raises :class:`ConfigError` if something else is there."""
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(
            f"'{out}' is in the way: it holds something else. Choose another 'out', or remove it."
        )
    shutil.rmtree(out, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=out.parent):
        pass  # if nothing can be written there, it is known now, not when all is made


def save(out: Path, tables: Mapping[str, Sequence[Any]], name: str, report: Any) -> None:
    """Write datasets by split, each of one or more tables, and the report, as a file called ``name``.

    A split without tables is left out. The folder is there with all of it, or not at all.
    """
    import datasets

    datasets.disable_progress_bars()
    datasets_by_split = {
        split: datasets.concatenate_datasets(list(parts)) for split, parts in tables.items() if parts
    }
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f"{out.name}.") as temporary:
        folder = Path(temporary) / "filled"
        datasets.DatasetDict(datasets_by_split).save_to_disk(folder)
        write_atomically(folder / name, json.dumps(asdict(report), indent=1) + "\n")
        folder.rename(out)
