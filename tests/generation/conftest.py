"""What the tests of models share."""

from __future__ import annotations

import pytest

from corag.generation.http import endpoints


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pause for milliseconds between attempts."""
    for pause in ("_FIRST_PAUSE_S", "_FIRST_PAUSE_OPENING_S"):
        monkeypatch.setattr(endpoints, pause, 0.001)
