"""Run a benchmark: python -m benchmarks NAME [--OPTION VALUE ...]; NAME --help lists its options.

decode, scoring, sweep (an engine), search, scale (indexes), service: each prints its figures, with
--json also as JSON on the last line.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import inspect
import json
import sys
from collections.abc import Sequence

from corag.core.errors import CoragError
from corag.core.system.machine import limit_threads
from eval.experiment.opening import quiet

BENCHES = ("decode", "scale", "scoring", "search", "service", "sweep")


def main(arguments: Sequence[str]) -> None:
    """Run one benchmark and print its figures."""
    if not arguments or arguments[0] not in BENCHES:
        sys.exit(str(__doc__))
    name, *given = arguments
    limit_threads()  # before torch, which reads it when it is imported
    module = importlib.import_module(f"benchmarks.{name}")
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks {name}", description=module.__doc__)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON, too")
    for option in inspect.signature(module.main).parameters.values():
        if isinstance(option.default, str | int | float):
            parser.add_argument(f"--{option.name}", type=type(option.default), default=option.default)
    options = vars(parser.parse_args(given))
    prints_json = options.pop("json")
    with quiet(f"measuring {name}"):
        figures: dict[str, float] = asyncio.run(module.main(**options))
    width = max(map(len, figures))
    for title, figure in figures.items():
        print(f"{title:<{width}}  {figure:,.4g}")
    if prints_json:
        print(json.dumps({"bench": name, **options, **figures}))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except CoragError as error:
        sys.exit(f"corag: {error}")
