"""A run as a folder: a manifest, and one line per finished question.

:class:`RunFolder` writes and resumes it, ``rows`` says what stands in a line, ``manifest`` what the run was
made with. A shard is a part of a run, answered elsewhere and joined later. ``stamp`` tells whether something
made of such things is up to date.
"""

from core.lazy import lazy_exports

_PLACES = {
    "Manifest": "core.runs.manifest",
    "Row": "core.runs.rows",
    "RunFolder": "core.runs.folder",
    "SavedAnswer": "core.runs.rows",
    "SavedRow": "core.runs.rows",
    "Shard": "core.runs.shards",
    "Stamp": "core.runs.stamp",
    "join": "core.runs.shards",
    "read_attempts": "core.runs.folder",
    "read_rows": "core.runs.folder",
}
__all__ = list(_PLACES)
__getattr__, __dir__ = lazy_exports(__name__, _PLACES)
