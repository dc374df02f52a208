"""Where the real question files are, for tests that read them."""

import os
from pathlib import Path

import pytest


def data_folder() -> Path:
    """Return $CORAG_DATA, else ../shared/data beside the repository; skip the test if neither is there."""
    folder = Path(os.environ.get("CORAG_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no real data: set CORAG_DATA to its folder ('{folder}' does not exist)")
    return folder
