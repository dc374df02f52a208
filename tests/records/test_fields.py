"""Names and values of fields, alike for questions and passages."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import pytest

from corag.core.errors import ConfigError, DataError
from corag.data.fields import (
    as_text,
    as_texts,
    is_nothing,
    list_field,
    parse_columns,
    record_id,
    rename,
    text_field,
    unpack,
)
from tests.messages import raises_message


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "7"), (7.0, "7"), (2.5, "2.5"), (True, "yes"), (False, "no"), (" Ada ", "Ada"), (b"Ada", "Ada"),
        (None, ""), (float("nan"), ""), ("", ""), (" - ", ""), ("...", ""), ([], ""), ("$5", "$5"),
        ("🇩🇰", "🇩🇰"),
        (date(1815, 12, 10), "1815-12-10"), (datetime(1815, 12, 10), "1815-12-10"),
        (Decimal("1.50"), "1.50"), (Decimal("NaN"), ""), ("湖南", "湖南"),
    ],
)  # fmt: skip
def test_a_value_is_its_text_or_nothing(value: object, text: str) -> None:
    assert as_text(value) == text and is_nothing(value) == (not text)


def test_what_is_no_text_is_refused() -> None:
    for value in ({"a": 1}, ["a"], b"\xff"):
        with pytest.raises(ValueError):
            as_text(value)
    assert as_texts("[Redacted]") == ["[Redacted]"] and as_texts(None) == []
    assert as_texts('["a", null, 3]') == ["a", "3"]
    assert unpack("{'a': [1]}") == {"a": [1]} == unpack('{"a": [1]}')
    with raises_message(DataError):
        list_field({"facts": "[1, 2"}, "facts", "q.csv, line 2")
    with raises_message(DataError):
        text_field({"id": "q", "answer": {"value": "x"}}, "answer", "q.csv, line 2")


def test_a_record_with_two_ids_goes_by_the_one_of_its_makers() -> None:
    assert record_id({"id": 3, "_id": "5a8b"}) == "5a8b" and record_id({"qid": 7.0}) == "7"
    assert record_id({"text": "x"}) == ""


def test_columns_are_pairs_and_reach_into_objects() -> None:
    columns = parse_columns(["text = page.body", "id=key"], ("text", "id"))
    record = {"key": "k", "page": {"body": "B"}, "title": "T"}
    assert rename(record, columns) == {"page": {"body": "B"}, "title": "T", "text": "B", "id": "k"}
    for pairs in (["text"], ["text=a", "text=b"], ["txt=a"]):
        with raises_message(ConfigError):
            parse_columns(pairs, ("text", "id"))
