"""The options of a method's best cell in a finished sweep, as words for the command line.

    python scripts/recipes/best_cell.py SWEEP METHOD

The best by the sweep's own metric; of equals the first, as they stand in the configuration.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(folder: str, method: str) -> None:
    """Print an option and its value a line."""
    sweep = json.loads((Path(folder) / "sweep.json").read_text(encoding="utf-8"))
    cells = [cell for cell in sweep["cells"].values() if cell["method"] == method]
    if not cells:
        raise SystemExit(f"corag: the sweep '{folder}' has no cell of {method}: name a method that it has.")
    best = max(cells, key=lambda cell: float(cell[sweep["metric"]]))
    for option, value in best["options"].items():
        if option != "method":
            sys.stdout.write(f"--{option}\n{value}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
