"""The list of the drills, docs/drills.md: what it names is there."""

from __future__ import annotations

import re

from tests.drills.answering import ROOT


def test_every_test_that_the_page_names_is_there() -> None:
    page = (ROOT / "docs/drills.md").read_text()
    tests = "\n".join(file.read_text() for file in (ROOT / "tests").glob("**/test_*.py"))
    there = set(re.findall(r"^(?:async )?def (test_\w+)", tests, re.MULTILINE))
    named = re.findall(r"`(test_\w+?)(_?\.\.\.)?`", page)
    assert len(named) > 40
    for name, more in named:
        assert any(each == name or (more and each.startswith(name)) for each in there), name
    assert all((ROOT / file).exists() for file in re.findall(r"`(tests/[\w/]+(?:\.py)?)`", page))
