"""Which releases of vLLM are installed, and what differs between them."""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


def test_the_extra_takes_the_release_that_was_tried_and_no_later_one() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (vllm,) = (each for each in map(Requirement, extras["vllm"]) if each.name == "vllm")
    assert vllm.specifier.contains("0.32.0")
    assert not vllm.specifier.contains("0.33.0") and not vllm.specifier.contains("0.26.0")
