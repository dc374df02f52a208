"""Lines of progress where there is no terminal: how fast work goes, how long the rest takes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.hub import serving

ROOT = Path(__file__).parents[2]
FETCH = """
import corag.core.hugging_face
corag.core.hugging_face._EVERY_S = 0.5
corag.core.hugging_face.download("an/encoder", "encoder", "a folder")
"""


def test_a_models_download_tells_size_speed_and_time_left_line_by_line(tmp_path: Path) -> None:
    files = {"config.json": b"{}", "model.safetensors": bytes(80_000_000)}
    with serving({"an/encoder": files}) as hub:
        hub.pause = 0.3
        places = {"HF_HOME": str(tmp_path), "HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1"}
        done = subprocess.run(
            [sys.executable, "-c", FETCH],
            env={**os.environ, **places},
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("corag: fetching")]
    assert lines and "%|" not in done.stderr, "no bars in a file"
    assert any("of 80.0 MB, " in line and " MB/s, " in line and line.endswith(" left") for line in lines), (
        lines
    )
