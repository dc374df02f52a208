"""Record what the product does, or compare what it does now with a record.

python -m tests.record OUT                 # about a minute
python -m tests.record OUT --compare       # status 1 if anything differs; --lines 0 names the files alone

No model is opened: replies follow from the prompts (world.py). The shared cases are in ../shared/cases or
$CORAG_CASES. Both records of a comparison must have had them, and the same packages installed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

# Before rich is imported: tables and help are as wide everywhere.
os.environ |= {"COLUMNS": "110", "LINES": "60", "NO_COLOR": "1", "TERM": "dumb"}

from tests.record.product import PARTS
from tests.record.writing import differences


def record(out: Path, parts: Iterable[str]) -> None:
    """Write some parts of the record under a folder."""
    for part in parts:
        began = time.monotonic()
        with (
            tempfile.TemporaryDirectory() as folder,
            contextlib.chdir(folder),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            PARTS[part](out / part)
        print(f"{part}: {time.monotonic() - began:.0f} s", file=sys.stderr)


def main() -> int:
    """Record, or compare; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.record", description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path, help="folder of the record")
    parser.add_argument("--compare", action="store_true", help="record anew and print what differs")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS), help="these alone")
    parser.add_argument("--lines", type=int, default=40, help="most lines printed per file")
    options = parser.parse_args()
    out = options.out.resolve()
    for part in options.parts:
        if (out / part).exists() != options.compare:
            parser.error(f"{out / part} " + ("does not exist" if options.compare else "exists: name another"))
    if not options.compare:
        record(out, options.parts)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        record(Path(folder), options.parts)
        lines = list(differences(out, Path(folder), options.lines, options.parts))
    print("\n".join(lines or ["nothing differs"]))
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
