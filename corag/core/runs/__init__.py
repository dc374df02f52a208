"""A run as a folder: a manifest, and one line per finished question.

:class:`RunFolder` writes and resumes it, ``rows`` says what stands in a line, ``manifest`` what the run was
made with. A shard is a part of a run, answered elsewhere and joined later. ``provenance`` says what
something was made with and from, and so whether it is up to date.
"""

from corag.core.lazy import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "corag.core.runs.manifest": "Manifest",
        "corag.core.runs.rows": "Row SavedAnswer SavedRow",
        "corag.core.runs.folder": "RunFolder read_attempts read_rows",
        "corag.core.runs.shards": "Shard join",
        "corag.core.runs.provenance": "Provenance",
    },
)
