"""A run as a folder: a manifest, and one line per finished question.

:class:`RunFolder` writes and resumes it, ``rows`` says what stands in a line, ``manifest`` what the run was
made with. A shard is a part of a run, answered elsewhere and joined later. ``provenance`` says what
something was made with and from, and so whether it is up to date.
"""
