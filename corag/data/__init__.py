"""Users' files of records and text: one reader, one table of field names, nothing lost without a word."""

from __future__ import annotations

from corag.data.fields import Columns, parse_columns
from corag.data.records import Note, OddRecordError, Record, read_records

__all__ = ["Columns", "Note", "OddRecordError", "Record", "parse_columns", "read_records"]
