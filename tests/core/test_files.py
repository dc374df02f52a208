"""Folders of the cache are there whole or not at all."""

import errno

import pytest

from core.errors import ConfigError, DataError
from core.files import made_once


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
