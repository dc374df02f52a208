"""Stamps: what is finished, what differs, and what a reader is told of it."""

from pathlib import Path

import pytest

from corag.core.errors import ConfigError, IndexMismatchError
from corag.core.runs.stamp import STAMP, Input, Stamp, is_finished, refuse_differences
from tests.messages import raises_message

MADE = Stamp({"seed": 0, "tasks": ("stop", "draft")}, {"model": [Input("/here/model", "ab12")]})


def test_a_stamp_is_finished_once_it_says_so_and_as_long_as_it_is_of_the_same(tmp_path: Path) -> None:
    file = tmp_path / STAMP
    assert not is_finished(file, MADE)
    MADE.write(file)
    assert not is_finished(file, MADE)
    MADE.finish(file)
    assert is_finished(file, MADE)
    moved = Stamp(MADE.made_with, {"model": [Input("/there/model", "ab12")]})
    assert is_finished(file, moved), "what it holds counts, not where it lies"
    for other in (Stamp(MADE.made_with), Stamp({"seed": 1}, MADE.made_from)):
        assert not is_finished(file, other)


def test_a_second_making_of_the_same_has_another_stamp(tmp_path: Path) -> None:
    texts = []
    for _ in range(2):
        MADE.finish(tmp_path / STAMP)
        texts.append((tmp_path / STAMP).read_text())
    assert texts[0] != texts[1] and is_finished(tmp_path / STAMP, MADE)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"made_with": {}', '{"made_from": {"a": 3}}'])
def test_what_is_no_stamp_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / STAMP).write_text(text)
    assert Stamp.read(tmp_path / STAMP) is None and not is_finished(tmp_path / STAMP, MADE)


def test_the_message_shows_every_difference_and_what_to_do() -> None:
    refuse_differences("'rows'", MADE, MADE)
    other = Stamp(
        {"seed": 1, "more": {"k": 5}, "tasks": ["stop", "draft"]}, {"model": [Input("m/new", "cd34")]}
    )
    with pytest.raises(ConfigError) as refused:
        refuse_differences("'rows'", MADE, other)
    assert str(refused.value).splitlines() == [
        "'rows' was made with other settings:",
        "  model: model (ab12) -> new (cd34)",
        "  seed: 0 -> 1",
        '  more: null -> {"k": 5}',
        "Give the same settings to resume it, or choose another --out.",
    ]
    turns = [Stamp({"turns": [{"name": "one"}, {"name": "two", "skip": skip}]}) for skip in (3, 4)]
    assert turns[0].differences(turns[1]) == ["turns[1].skip: 3 -> 4"]
    longer = Stamp({"turns": [{"name": "one"}]})
    assert longer.differences(Stamp({"turns": []})) == ['turns: [{"name": "one"}] -> []']
    with raises_message(IndexMismatchError):
        refuse_differences("'a'", MADE, other, than="'b'", advice="Build it.", error=IndexMismatchError)
