"""Whether what a model learns from is for testing by its name: then figures on it would say nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Protocol

_HELD_OUT = re.compile(r"(?:^|[^a-z])(test|dev|valid|validation|eval)(?:[^a-z]|$)")


class MadeOfChains(Protocol):
    """A report of what was made of chains: which they were, and for which question files."""

    @property
    def settings(self) -> dict[str, Any]: ...  # noqa: D102
    @property
    def files(self) -> list[str]: ...  # noqa: D102


def held_out_named(report: MadeOfChains) -> list[str]:
    """Return the question files and splits of some rows that are for testing by their names.

    Names are all that there is to go by: of questions from Hugging Face the split that was loaded, of files
    what they are called, since what a file is for stands nowhere in it. A test set called questions.jsonl is
    not noticed. ('corag rounds' compares the questions themselves with those of its option ``test``.)

    >>> from types import SimpleNamespace
    >>> settings = {"chains": [{"questions": {"split": "validation"}}]}
    >>> held_out_named(SimpleNamespace(settings=settings, files=["x/dev.json"]))
    ['dev.json', 'validation']
    """
    splits = [chains.get("questions", {}).get("split", "") for chains in report.settings["chains"]]
    names = [*(Path(file).name for file in report.files), *splits]
    return [name for name in dict.fromkeys(names) if _HELD_OUT.search(name.lower())]
