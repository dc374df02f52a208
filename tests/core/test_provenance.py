"""Provenance: what is finished, what differs, and how a message names it."""

from pathlib import Path

import pytest

from corag.core.errors import ConfigError, IndexMismatchError
from corag.core.runs.folder import TRACES, RunFolder
from corag.core.runs.manifest import MANIFEST
from corag.core.runs.provenance import PROVENANCE, Input, Provenance
from tests.messages import raises_message

MADE = Provenance({"seed": 0, "tasks": ("stop", "draft")}, {"model": [Input("/here/model", "ab12")]})


def test_a_thing_is_finished_once_it_says_so_and_as_long_as_it_is_of_the_same(tmp_path: Path) -> None:
    file = tmp_path / PROVENANCE
    assert not MADE.is_finished(file)
    MADE.write(file)
    assert not MADE.is_finished(file)
    MADE.finish(file)
    assert MADE.is_finished(file)
    moved = Provenance(MADE.settings, {"model": [Input("/there/model", "ab12")]})
    assert moved.is_finished(file), "what it holds counts, not where it lies"
    for other in (Provenance(MADE.settings), Provenance({"seed": 1}, MADE.inputs)):
        assert not other.is_finished(file)


def test_a_second_making_of_the_same_has_another_provenance(tmp_path: Path) -> None:
    texts = []
    for _ in range(2):
        MADE.finish(tmp_path / PROVENANCE)
        texts.append((tmp_path / PROVENANCE).read_text())
    assert texts[0] != texts[1] and MADE.is_finished(tmp_path / PROVENANCE)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"settings": {}', '{"inputs": {"a": 3}}'])
def test_what_is_none_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / PROVENANCE).write_text(text)
    assert Provenance.read(tmp_path / PROVENANCE) is None and not MADE.is_finished(tmp_path / PROVENANCE)


def test_the_message_shows_every_difference_and_what_to_do() -> None:
    MADE.refuse_other("'rows'", MADE)
    other = Provenance(
        {"seed": 1, "more": {"k": 5}, "tasks": ["stop", "draft"]}, {"model": [Input("m/new", "cd34")]}
    )
    with pytest.raises(ConfigError) as refused:
        other.refuse_other("'rows'", MADE)
    assert str(refused.value).splitlines() == [
        "'rows' was made with other settings:",
        "  model: model (ab12) -> new (cd34)",
        "  seed: 0 -> 1",
        '  more: null -> {"k": 5}',
        "Give the same settings to resume it, or choose another 'out'.",
    ]
    turns = [Provenance({"turns": [{"name": "one"}, {"name": "two", "skip": skip}]}) for skip in (3, 4)]
    assert turns[0].differences(turns[1]) == ["turns[1].skip: 3 -> 4"]
    longer = Provenance({"turns": [{"name": "one"}]})
    assert longer.differences(Provenance({"turns": []})) == ['turns: [{"name": "one"}] -> []']
    with raises_message(IndexMismatchError):
        other.refuse_other("'a'", MADE, than="'b'", advice="Build it.", error=IndexMismatchError)


def test_answers_without_a_manifest_are_of_no_run(tmp_path: Path) -> None:
    """They would count as answers of whatever settings come next."""
    RunFolder(tmp_path, {"k": 1}, {}).__exit__(None, None, None)
    (tmp_path / TRACES).write_text("")
    (tmp_path / MANIFEST).unlink()
    with raises_message(ConfigError):
        RunFolder(tmp_path, {"k": 2}, {})
    RunFolder(tmp_path, {"k": 2}, {}, overwrite=True).__exit__(None, None, None)
    assert '"k": 2' in (tmp_path / MANIFEST).read_text()
