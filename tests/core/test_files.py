"""Records in every shape are read; folders of the cache are there whole or not at all."""

import errno

from corag.core.errors import ConfigError, DataError
from corag.core.system.files import build_once, read_jsonl, read_text
from tests.messages import raises_message


def test_a_folder_takes_its_name_when_it_is_full(tmp_path):
    folder = tmp_path / "cache/model"
    with build_once(folder, "the model") as filling:
        (filling / "weights").write_text("first")
        (filling / "weights").chmod(0o600)  # as libraries write them
        assert not folder.exists()
    (tmp_path / "plain").touch()
    assert (folder / "weights").stat().st_mode == (tmp_path / "plain").stat().st_mode
    (tmp_path / "usual").mkdir()
    assert folder.stat().st_mode == (tmp_path / "usual").stat().st_mode, (
        "others who share the cache may read it"
    )
    with build_once(folder, "the model") as filling:  # by another process, which was slower
        (filling / "weights").write_text("second")
    assert (folder / "weights").read_text() == "first"
    assert list(folder.parent.iterdir()) == [folder]


def test_what_cannot_be_made_leaves_nothing(tmp_path):
    with raises_message(DataError), build_once(tmp_path / "cache/model", "the model"):
        raise OSError(errno.ENOSPC, "No space left on device")
    with raises_message(ConfigError), build_once(tmp_path / "cache/model", "the model"):
        raise ConfigError("no such adapter.")
    assert list((tmp_path / "cache").iterdir()) == []
    (tmp_path / "file").touch()
    with raises_message(DataError), build_once(tmp_path / "file/model", "the model"):
        pass


def test_our_own_lines_are_strict(tmp_path):
    file = tmp_path / "x.jsonl"
    file.write_text('{"a": 1}\n\n{"a": 2}\n')
    assert list(read_jsonl(file)) == [{"a": 1}, {"a": 2}]
    torn, a_list, latin = b'{"a": 1}\n{"a": \n', b'{"a": 1}\n[2]\n', b'{"a": "\xe9"}\n'
    for content in (torn, a_list, latin, b'{"a": "\\ud800"}'):
        file.write_bytes(content)
        with raises_message(DataError):
            list(read_jsonl(file))
    with raises_message(DataError):
        list(read_jsonl(tmp_path / "missing.jsonl"))


def test_a_text_is_utf8_with_or_without_a_mark(tmp_path):
    file = tmp_path / "x.txt"
    for encoding in ("utf-8", "utf-8-sig"):
        file.write_bytes("Fluß\n".encode(encoding))
        assert read_text(file) == "Fluß\n"
    file.write_bytes("a\nFluß".encode("latin-1"))
    with raises_message(DataError):
        read_text(file)
    with raises_message(DataError):
        read_text(tmp_path)
