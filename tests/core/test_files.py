"""Records in every shape are read; folders of the cache are there whole or not at all."""

import errno

import pytest

from core.errors import ConfigError, DataError
from core.files import made_once, read_jsonl, read_records


def test_a_folder_takes_its_name_when_it_is_full(tmp_path):
    folder = tmp_path / "cache/model"
    with made_once(folder, "the model") as filling:
        (filling / "weights").write_text("first")
        assert not folder.exists()
    (tmp_path / "usual").mkdir()
    assert folder.stat().st_mode == (tmp_path / "usual").stat().st_mode, (
        "others who share the cache may read it"
    )
    with made_once(folder, "the model") as filling:  # by another process, which was slower
        (filling / "weights").write_text("second")
    assert (folder / "weights").read_text() == "first"
    assert list(folder.parent.iterdir()) == [folder]


def test_what_cannot_be_made_leaves_nothing(tmp_path):
    with (
        pytest.raises(DataError, match=r"cannot write the model to .*/cache/model.: No space left"),
        made_once(tmp_path / "cache/model", "the model"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    with (
        pytest.raises(ConfigError, match="no such adapter"),
        made_once(tmp_path / "cache/model", "the model"),
    ):
        raise ConfigError("no such adapter.")
    assert list((tmp_path / "cache").iterdir()) == []
    (tmp_path / "file").touch()
    with (
        pytest.raises(DataError, match="cannot write the model"),
        made_once(tmp_path / "file/model", "the model"),
    ):
        pass


def test_records_in_every_shape(tmp_path):
    rows = [{"a": 1, "b": {"c": 2}}, {"a": 2, "b": {"c": 3}}]
    texts = {
        "lines.jsonl": '{"a": 1, "b": {"c": 2}}\n\n{"a": 2, "b": {"c": 3}}\n',
        "lines.json": '{"a": 1, "b": {"c": 2}}\n{"a": 2, "b": {"c": 3}}\n',
        "list.json": '[{"a": 1, "b": {"c": 2}}, {"a": 2, "b": {"c": 3}}]',
        "data.json": '{"data": [{"a": 1, "b": {"c": 2}}, {"a": 2, "b": {"c": 3}}]}',
        "columns.json": '{"a": {"0": 1, "1": 2}, "b": {"0": {"c": 2}, "1": {"c": 3}}}',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        assert list(read_records(tmp_path / name)) == rows, name
    (tmp_path / "broken.jsonl").write_text('{"a": 1}\n{"a": \n')
    with pytest.raises(DataError, match=r"broken\.jsonl, line 2"):
        list(read_jsonl(tmp_path / "broken.jsonl"))
    with pytest.raises(DataError, match=r"there is no file"):
        list(read_jsonl(tmp_path / "missing.jsonl"))
