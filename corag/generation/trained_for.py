"""What an adapter or a fine-tuned model was trained for: the prompts that it was taught, by method.

Training notes it in ``training.json``; runs note what theirs says, so that a table can tell a method that is
asked as it was taught from one that is not.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from corag.core.errors import DataError
from corag.generation.adapters import MERGED_TRAINING, TRAINING, adapter_folder, read_manifest

Prompts = Mapping[str, Sequence[str]]
"""Names, versions and hashes of prompts, by the name of the method that asks them."""


def read_trainings(adapter: str, model: str) -> list[dict[str, Any]]:
    """Return how an adapter and a model were made, the adapter first; what does not say is left out.

    ``adapter`` and ``model``: as ``--model.adapter`` and ``--model.name`` name them.
    """
    folders = [folder for folder in (adapter_folder(adapter), model) if folder not in ("", "default")]
    manifests = []
    for folder, name in itertools.product(folders, (TRAINING, MERGED_TRAINING)):
        with suppress(DataError):  # a file of that name that is not ours
            manifests.append(read_manifest(Path(folder), name))
    return [manifest for manifest in manifests if manifest is not None]


def trained_for(adapter: str, model: str) -> dict[str, list[str]]:
    """Return the prompts that a model and its adapter were taught; nothing if no training noted any."""
    results = [each["result"] or {} for each in reversed(read_trainings(adapter, model))]
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
