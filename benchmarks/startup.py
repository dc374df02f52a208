"""How long 'corag --help' takes, as seconds and as a multiple of an empty Python, and what it imports."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

HEAVY = ("torch", "vllm", "transformers", "jnius", "pyserini", "faiss", "sentence_transformers", "datasets")


async def main(repeats: int = 7) -> dict[str, float]:
    """Return median seconds of 'corag --help' and of an empty Python, their ratio, and heavy imports."""
    help_seconds = _median_seconds([sys.executable, "-m", "corag.cli", "--help"], repeats)
    empty_seconds = _median_seconds([sys.executable, "-c", "pass"], repeats)
    return {
        "help_seconds": help_seconds,
        "empty_python_seconds": empty_seconds,
        "ratio_to_empty_python": help_seconds / empty_seconds,
        "heavy_imports": float(len(heavy_imports("from corag.cli.main import main; main(['--help'])"))),
    }


def heavy_imports(code: str) -> list[str]:
    """Run code in a fresh Python and return which heavy packages it had imported at its end."""
    probe = f"{code}\nimport sys; print('LOADED', *[name for name in {HEAVY!r} if name in sys.modules])"
    output = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    return output.splitlines()[-1].split()[1:]


def _median_seconds(command: list[str], repeats: int) -> float:
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)
