"""Records in every shape are read; folders of the cache are there whole or not at all."""

import errno
import gzip

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


def test_json_is_told_off_in_words(tmp_path):
    file = tmp_path / "torn.jsonl"
    for text, said in (
        ('{"a": "x', "Unterminated string starting at column 7"),
        ('{"a": "x\ty"}', "Invalid control character at column 9"),
        ('{"a" 1}', "Expecting ':' delimiter at column 6"),
    ):
        file.write_text(text)
        with pytest.raises(DataError, match=rf"torn\.jsonl, line 1: not valid JSON \({said}\)"):
            list(read_jsonl(file))


def test_text_in_utf16_and_a_torn_character_are_named(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_bytes('{"a": 1}'.encode("utf-16"))
    with pytest.raises(DataError, match=r"line 1: byte 1 \(0xff\) is not UTF-8\..*iconv -f UTF-16"):
        list(read_jsonl(file))
    file.write_bytes(b'{"a": 1}\n{"a": "\xc3')
    with pytest.raises(DataError, match=r"line 2: byte 8 \(0xc3\) is not UTF-8"):
        list(read_jsonl(file))
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(b'{"a": "caf\xe9"}'))
    with pytest.raises(
        DataError, match=r"zcat '.*a\.jsonl\.gz' \| iconv -f LATIN1 -t UTF-8 > 'utf8-a\.jsonl'"
    ):
        list(read_jsonl(packed))
