"""What the tests of models share."""

from __future__ import annotations

import pytest

from corag.core.web import json_client
from corag.generation.http import engine


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pause for milliseconds between attempts."""
    monkeypatch.setattr(engine, "_PAUSE_S", 0.001)
    monkeypatch.setattr(json_client, "_OPENING_PAUSE_S", 0.001)
