"""Check that tag, version, changelog and citation agree: ``python scripts/check_release.py v0.1.0``.

Without a tag: that what stands there now agrees. Ends with status 1 and a sentence for each that does not.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]


def disagreements(version: str, changelog: str, citation: dict[str, object], tag: str = "") -> list[str]:
    """Return a sentence for everything that does not fit pyproject.toml's version."""
    wrong = []
    if tag and tag != f"v{version}":
        wrong.append(
            f"The tag is {tag}, but pyproject.toml's version {version}: tag v{version}, or raise it."
        )
    if str(citation.get("version")) != version:
        wrong.append(f"CITATION.cff's version is {citation.get('version')}, but must be {version}.")
    date = dict(re.findall(r"^## \[([^\]]+)\] - (\d{4}-\d\d-\d\d)$", changelog, re.MULTILINE)).get(
        version, ""
    )
    if tag and not date:
        wrong.append(f"CHANGELOG.md has no line '## [{version}] - YYYY-MM-DD': name what was unreleased so.")
    elif str(citation.get("date-released", "")) != date:
        wrong.append(f"CITATION.cff's date-released must be {date or 'left out'}, as CHANGELOG.md has it.")
    return wrong


def main(tag: str = "") -> int:
    """Check the repository's own files; return the exit status."""
    wrong = disagreements(
        tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"],
        (ROOT / "CHANGELOG.md").read_text(),
        yaml.safe_load((ROOT / "CITATION.cff").read_text()),
        tag,
    )
    sys.stderr.writelines(f"{sentence}\n" for sentence in wrong)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
