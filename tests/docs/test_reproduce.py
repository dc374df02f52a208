"""The page on the papers' tables: each of its guesses is answered."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs/guides/reproduce.md").read_text(encoding="utf-8")


def test_every_guess_has_an_answer_and_its_source() -> None:
    rows = re.findall(r"^\| (G\d+) \| (.+?) \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)
    assert [name for name, *_ in rows] == [f"G{number}" for number in range(1, 19)]
    for name, _, answer, source in rows:
        assert source != "-" or "**open**" in answer, name
