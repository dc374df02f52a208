"""Corpora in the layouts of datasets, known to ``corag index --format`` beside the plain ones of retrieval.

Importing this module registers them, which every process that reads corpora has to do once
(``eval.experiment.extensions`` does it for the commands).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from core.errors import DataError
from core.files import read_jsonl
from core.types import Passage
from eval.datasets.paragraphs import POOLED_DATASETS, read_pooled
from retrieval.corpora import read_passage_records, register_format
from retrieval.sifting import passage_from_record

PAGED_FORMATS = frozenset({"kilt"})
"""Formats whose passage ids are known to begin with a page's ``wikipedia_id`` (:mod:`eval.datasets.kilt`)."""
PAGES = (
    "Pages are read from passage ids: right only if these begin with the wikipedia_id (corag index --format "
    "kilt)."
)
"""What a table says of measures by page over a corpus of another format."""


def read_kilt(paths: Sequence[str | Path]) -> Iterator[Passage]:
    """Read KILT's knowledge source (an article per line) or corag/kilt-corpus (a passage per line).

    A paragraph of an article's ``text`` becomes a passage with the id "<article id>-<place in the list>". The
    first one repeats the title and those starting with "Section::::" are headings: neither is a passage. A
    line with ``contents`` gets "<wikipedia_id>-<id>", since its own id is the number of its row.
    """
    for path in paths:
        for number, article in enumerate(read_jsonl(path), 1):
            where = f"{path}, record {number}"
            if "contents" in article:
                yield _kilt_passage(article, where)
            else:
                yield from _kilt_paragraphs(article, where)


def _kilt_paragraphs(article: dict[str, Any], where: str) -> Iterator[Passage]:
    identifier = article.get("wikipedia_id", article.get("_id"))
    title, paragraphs = article.get("wikipedia_title"), article.get("text")
    if identifier is None or not isinstance(title, str) or not isinstance(paragraphs, list):
        raise DataError(
            f"{where}: expected 'wikipedia_id', 'wikipedia_title' and a list 'text', but found: "
            f"{', '.join(sorted(article))}."
        )
    for place, paragraph in enumerate(paragraphs):
        text = str(paragraph).strip()
        if text != title and not text.startswith("Section::::"):
            yield Passage(f"{identifier}-{place}", title, text)


def _kilt_passage(record: dict[str, Any], where: str) -> Passage:
    page, row = (record.get(name) for name in ("wikipedia_id", "id"))
    if page in (None, "") or row in (None, ""):
        raise DataError(
            f"{where}: a passage of KILT's pages needs 'id', 'wikipedia_id', 'title' and 'contents', but "
            f"found: {', '.join(sorted(record))}."
        )
    return replace(passage_from_record(record, where), id=f"{page}-{row}")


register_format("beir", read_passage_records)
register_format("kilt", read_kilt)
for _dataset in POOLED_DATASETS:  # a question file's own paragraphs, pooled into one corpus
    register_format(_dataset, partial(read_pooled, dataset=_dataset))
