"""From one record of a corpus to a passage, whatever the toolkit that wrote it calls its fields.

A field is found by its name: the commonest first, then those of Pyserini, BEIR, MS MARCO, LangChain,
LlamaIndex, HippoRAG, AutoRAG and Wikipedia's dumps. :class:`Columns` names what has another name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from corag.core.errors import ConfigError, DataError
from corag.core.types import Passage, passage_id

_TEXTS = (
    "text", "contents", "content", "page_content", "body", "passage_text", "paragraph_text", "chunk_text",
    "segment", "full_text",
)  # fmt: skip
# What is as often a reference to a text, or a part of it: the text only where there is none of the above.
_FURTHER_TEXTS = (
    "passage", "paragraph", "chunk", "document", "doc", "sentences", "abstract", "context",
)  # fmt: skip
_TITLES = ("title", "wikipedia_title", "page_title", "doc_title", "document_title", "headline", "heading")
# The smallest unit first: a chunk's id before its document's.
_IDS = (
    "id", "_id", "id_", "pid", "passage_id", "psg_id", "paragraph_id", "chunk_id", "node_id", "segment_id",
    "docid", "doc_id", "document_id", "corpus_id", "uuid",
)  # fmt: skip
_SOURCES = ("source", "file_name", "file_path")
# Objects around a record: LlamaIndex, LangChain, Hugging Face's dataset server, Elasticsearch, vector stores.
_WRAPPINGS = ("__data__", "kwargs", "node", "row", "_source", "payload", "text_resource")
TEXT_FIELDS = frozenset({*_TEXTS, *_FURTHER_TEXTS})
KNOWN_FIELDS = frozenset({*TEXT_FIELDS, *_TITLES, *_IDS, *_SOURCES, "metadata", "page", "url"})


class OddRecordError(DataError):
    """A record that is no passage.

    Args:
        where: its place, such as "c.jsonl, line 3".
        reason: why, in the words under which such records are counted.
        detail: what was expected and what was found; or an error that says so, with the place.
    """

    def __init__(self, where: str, reason: str, detail: str | DataError) -> None:
        super().__init__(f"{where}: {detail}" if isinstance(detail, str) else str(detail))
        self.reason = reason


@dataclass(frozen=True)
class Columns:
    """Which fields or columns hold what, "" for those that are known by their own names.

    A field within another is named with a dot, such as "metadata.title"; a column of a table without a header
    by its number, counted from 1.
    """

    text: str = ""
    title: str = ""
    id: str = ""
    source: str = ""

    @classmethod
    def parse(cls, pairs: Sequence[str]) -> Columns:
        """Read ["text=body", "title=name"]. Raises :class:`ConfigError` for anything else."""
        values: dict[str, str] = {}
        names = [each.name for each in fields(cls)]
        for pair in pairs:
            part, equals, column = (piece.strip() for piece in pair.partition("="))
            if part not in names or not equals or not column or part in values:
                raise ConfigError(
                    f"columns has {pair!r}: expected PART=COLUMN, each part ({', '.join(names)}) once, such "
                    "as text=body,title=name."
                )
            values[part] = column
        return cls(**values)

    @property
    def names(self) -> tuple[str, ...]:
        """The names that are given."""
        return tuple(filter(None, (self.text, self.title, self.id, self.source)))

    def __str__(self) -> str:
        pairs = ((each.name, getattr(self, each.name)) for each in fields(self))
        return ",".join(f"{part}={column}" for part, column in pairs if column)


NO_COLUMNS = Columns()


def passage_from_record(record: Mapping[str, Any], where: str, columns: Columns = NO_COLUMNS) -> Passage:
    """Read one record: an id, a title and a text, each under any of the names above.

    A number counts as text, and a list of sentences as one text. Of Pyserini's ``contents`` the first line is
    the title unless there is another. A record without an id gets one derived from title and text. ``source``
    (text) is taken over, with ``page`` (a number or label); anything else that goes by these names is the
    corpus's own affair. A text that is null or blank makes a passage without text.

    Raises:
        OddRecordError: starting with ``where``, for a record that is no passage.
    """
    text, title = record.get("text"), record.get("title")
    if columns is not NO_COLUMNS or not isinstance(text, str) or not text:
        record = _unwrap(record, columns)
        name = _text_field(record, where, columns)
        text = _as_text(_at(record, name), name, where)
        title = _find_title(record, where, columns)
        if name == "contents" and not columns.text:
            title, text = _split_contents(text, title)
    elif not isinstance(title, str):
        title = _find_title(record, where, columns)
    identifier = _find_id(record, where, columns)
    source, page = _find_source(record, columns)
    return Passage(identifier or passage_id(title, text), title, text, source, page)


def has_id(record: Mapping[str, Any], columns: Columns = NO_COLUMNS) -> bool:
    """Whether a record that is a passage brings its own id."""
    return bool(_find_id(_unwrap(record, columns), "", columns))


def _unwrap(record: Mapping[str, Any], columns: Columns) -> Mapping[str, Any]:
    """Return the record that an object is wrapped around, with what only the object has."""
    for name in _WRAPPINGS:
        inner = record.get(name)
        if isinstance(inner, Mapping) and not columns.text and not any(map(record.get, _TEXTS)):
            # LangChain's object has an ``id`` of its own, the path of a class: no passage's.
            outer = {key: value for key, value in record.items() if not isinstance(value, Mapping | list)}
            return _unwrap({**outer, **inner}, columns)
    return record


def _at(record: Mapping[str, Any], name: str) -> Any:
    """Return a field, or one within others ("metadata.title"); None if it is not there."""
    if name in record:
        return record[name]
    value: Any = record
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _text_field(record: Mapping[str, Any], where: str, columns: Columns) -> str:
    """Return the name of the field that holds the text: the first with any, else the first that is there."""
    if columns.text:
        present = [columns.text] if columns.text in record or _at(record, columns.text) is not None else []
    else:
        present = [name for name in _TEXTS if name in record]
        present = present or [name for name in _FURTHER_TEXTS if name in record]
    if not present:
        expectation = f"the field '{columns.text}'" if columns.text else "a text under 'text' or another name"
        raise OddRecordError(
            where,
            "without a field of text",
            f"expected {expectation}, but found: {', '.join(map(str, record))[:200] or 'nothing'}. If one of "
            "them is the text, name it: columns=text=NAME.",
        )
    return next((name for name in present if _at(record, name) not in (None, "", [])), present[0])


def _as_text(value: Any, name: str, where: str) -> str:
    """Return a value as text: a number's digits, a list's items with a space between."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if _is_number(value):
        return str(value)
    if isinstance(value, list | tuple):
        parts = (_as_text(each, name, where).strip() for each in value)
        return " ".join(filter(None, parts))
    kind = "an object" if isinstance(value, Mapping) else f"{value!r:.40}"
    raise OddRecordError(
        where,
        f"whose '{name}' is no text",
        f"expected '{name}' to be a text, a number or a list of texts, but it is {kind}.",
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _find_title(record: Mapping[str, Any], where: str, columns: Columns) -> str:
    if columns.title:
        return _as_text(_at(record, columns.title), columns.title, where)
    for name in _TITLES:
        if record.get(name) not in (None, ""):
            return _as_text(record[name], name, where)
    metadata = record.get("metadata")
    title = metadata.get("title") if isinstance(metadata, Mapping) else None
    return title if isinstance(title, str) else ""


def _split_contents(contents: str, title: str) -> tuple[str, str]:
    """Return title and text of Pyserini's ``contents``: title, newline, text.

    A first line is the title only if no other title is given: corpora with both may put the text alone here.
    Pyserini's wiki18 quotes the title.
    """
    first, newline, rest = contents.partition("\n")
    if newline and (not title or title in (first, first.strip('"'))):
        return title or first.strip('"'), rest
    return title, contents


def _find_id(record: Mapping[str, Any], where: str, columns: Columns) -> str:
    """Return a record's id, "" if it has none."""
    names = (columns.id,) if columns.id else _IDS
    for name in names:
        value = record.get(name) if "." not in name else _at(record, name)
        if type(value) is str:
            if value:
                return value
        elif value is not None:
            return _id_text(value, name, where)
    return ""


def _id_text(value: Any, name: str, where: str) -> str:
    if isinstance(value, Mapping) and isinstance(value.get("$oid"), str):  # as MongoDB exports it
        return str(value["$oid"])
    if isinstance(value, float):  # a column of whole numbers with a gap, as pandas has it
        return "" if value != value else str(int(value)) if value.is_integer() else str(value)
    if isinstance(value, Mapping | list | tuple):
        raise OddRecordError(
            where,
            f"whose '{name}' is no id",
            f"expected '{name}' to be a text or a number, but it is {value!r:.60}.",
        )
    return str(value)


def _find_source(record: Mapping[str, Any], columns: Columns) -> tuple[str, int | str]:
    """Return the file that a passage was cut from and its page, "" and 0 where they are not known."""
    if columns.source:
        source = _at(record, columns.source)
        return (source if isinstance(source, str) else ""), 0
    source, page = record.get("source"), record.get("page")
    if isinstance(source, str):
        return source, page if isinstance(page, str) or (isinstance(page, int) and page > 0) else 0
    metadata = record.get("metadata")
    if not isinstance(metadata, Mapping):
        return "", 0
    source = next((metadata[name] for name in _SOURCES if isinstance(metadata.get(name), str)), "")
    # ``page`` is counted from 0 by some of LangChain's readers and from 1 by others; the label is the page's.
    label = metadata.get("page_label")
    if not source or not isinstance(label, str):
        return source, 0
    return source, int(label) if label.isdecimal() else label
