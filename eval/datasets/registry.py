"""All datasets and corpus formats by name, collected from the files of ``eval/datasets/sets/``."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from corag.core.errors import ConfigError, nearest
from eval.datasets import sets
from eval.datasets.dataset import CorpusFormat, Dataset

_MODULES = [import_module(f"{sets.__name__}.{each.name}") for each in iter_modules(sets.__path__)]

DATASETS: dict[str, Dataset] = {dataset.name: dataset for module in _MODULES for dataset in module.DATASETS}
"""Datasets by the name that ``--dataset`` takes."""

CORPUS_FORMATS: dict[str, CorpusFormat] = {
    form.name: form for module in _MODULES for form in vars(module).get("CORPUS_FORMATS", ())
}
"""Corpora in the layouts of datasets by the name that ``--format`` takes."""


def find_dataset(name: str) -> Dataset:
    """Return the dataset of this name. Raises :class:`ConfigError` with the nearest name if there is none."""
    if name not in DATASETS:
        raise ConfigError(f"there is no dataset '{name}': {nearest(name, DATASETS)}")
    return DATASETS[name]


def recognise(record: Mapping[str, Any]) -> str:
    """Return the dataset whose official fields a record has; "" for none.

    >>> recognise({"id": "q1", "question": "Who?", "paragraphs": [], "question_decomposition": []})
    'musique'
    """
    fields = record.keys()
    return next((each.name for each in DATASETS.values() if each.marks and each.marks <= fields), "")
