"""What an adapter or a fine-tuned model was trained for: the prompts that it was taught, by method.

Training notes it in ``training.json``; runs note what theirs says, so that a table can tell a method that is
asked as it was taught from one that is not.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from corag.core.errors import DataError
from corag.generation.adapters import MERGED_TRAINING, TRAINING, adapter_folder, read_manifest

Prompts = Mapping[str, Sequence[str]]
"""Names, versions and hashes of prompts, by the name of the method that asks them."""


def trained_for(adapter: str, model: str) -> dict[str, list[str]]:
    """Return the prompts that a model and its adapter were taught; nothing if no training noted any.

    ``adapter`` and ``model``: as ``--model.adapter`` and ``--model.name`` name them.
    """
    folders = [folder for folder in (model, adapter_folder(adapter)) if folder not in ("", "default")]
    results = []
    for folder, name in itertools.product(folders, (TRAINING, MERGED_TRAINING)):
        with suppress(DataError):  # a file of that name that is not ours
            results.append((read_manifest(Path(folder), name) or {}).get("result") or {})
    return join_prompts([result.get("trained_for", {}) for result in results])


def join_prompts(parts: Sequence[Prompts]) -> dict[str, list[str]]:
    """Return what several trainings taught together.

    >>> join_prompts([{"corag": ["stop_check v1"]}, {"corag": ["stop_check v1", "sub_query v1"]}])
    {'corag': ['stop_check v1', 'sub_query v1']}
    """
    methods = dict.fromkeys(method for part in parts for method in part)
    return {
        method: list(dict.fromkeys(prompt for part in parts for prompt in part.get(method, ())))
        for method in methods
    }
