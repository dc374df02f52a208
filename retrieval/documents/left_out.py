"""What a reader saw and did not write: the one table of kinds, and how their counts are shown.

A reader counts all that it passes over: words by :meth:`Writer.leave_out`, and what has none, such as a
picture, by :meth:`Writer.pass_over`. The listing of a folder counts its files in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping

# Counted in words.
NAVIGATION, EDGES, HIDDEN_PARTS = "navigation", "page headers and footers", "hidden parts"
CONTENTS, FORMS, COOKIES = "tables of contents and indexes", "form fields and buttons", "cookie notices"
FALLBACK, READINGS = "text for browsers without scripts or plug-ins", "readings above characters"
ELSEWHERE, AROUND = "parts outside the main one", "what stands around the main text"
HIDDEN_SLIDES, HIDDEN_SHEETS, DELETED = "hidden slides", "hidden sheets", "deleted text"
COMMENTS, CHART_WORDS, DRAWN_WORDS = "comments", "words in charts", "words in drawings"

# Counted one by one.
PICTURES, CHARTS, DIAGRAMS, EMBEDDED = "pictures", "charts", "diagrams", "embedded files and media"
ATTACHMENTS, BARE_FORMULAS = "attachments", "formulas without a stored value"
BLANK_FIELDS, MARKS = "form fields without a value", "stamps, drawn marks and the like"
LOST_HEADINGS = "headings of an outline that are not where it leads"
XFA = "forms that Adobe's programs alone draw (XFA)"
MERGED = "merged ranges whose text stands in their first cell alone"
OTHER_ENDINGS, HIDDEN_FILES = "files of other endings", "hidden files and folders"
INDEXES, CLOSED, PIPES = "index folders", "folders that cannot be opened", "pipes and the like"
MET_AGAIN = "folders met again, as by links"
_OF_FILES = (PICTURES, CHARTS, DIAGRAMS, EMBEDDED, ATTACHMENTS, BARE_FORMULAS, MERGED)
_OF_PDFS = (BLANK_FIELDS, MARKS, LOST_HEADINGS, XFA)
_ITEMS = frozenset((*_OF_FILES, *_OF_PDFS, OTHER_ENDINGS, HIDDEN_FILES, INDEXES, CLOSED, PIPES, MET_AGAIN))


def describe_counts(counts: Mapping[str, int]) -> str:
    """Return what was left out, by kind, that of the highest count first.

    >>> describe_counts({"pictures": 3, "navigation": 1412})
    'navigation (1,412 words), pictures (3)'
    """
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return ", ".join(f"{kind} ({count:,}{'' if kind in _ITEMS else ' words'})" for kind, count in ordered)
