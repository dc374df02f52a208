"""What of recorded options others may read: numbers, texts and names that they know, nothing of this machine.

An option's :class:`corag.core.option_names.Mark` decides. Without one its value does, so that an option that
nobody thought of shares no path and no address either.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import PurePosixPath, PureWindowsPath
from types import MappingProxyType
from typing import Any, cast

from corag.core.option_names import Mark, kinds_of, marks_of
from corag.core.own_identity import SECRET

_WITHHELD = "not-shared:"
_LONGEST = 1000  # of a path; what is longer is a text
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://[^\s'\",;)]+", re.IGNORECASE)
_PATH = re.compile(r"(?<![\w./~-])(?:~|[A-Za-z]:)?[/\\][^\s'\",;:)]*[/\\]([^\s'\",;:)/\\]*)")
_CACHED_MODEL = re.compile(r".*[/\\]models--([^/\\]+?)--([^/\\]+)[/\\]snapshots[/\\][^/\\]+[/\\]?")
_NAME = re.compile(rf"{_WITHHELD}([^'\",\]}}\n]+)")

Sections = Mapping[str, type[Any]]
"""The classes of options whose values a mapping under such a name records."""
_NO_SECTIONS: Sections = MappingProxyType({})


def withheld_name(value: Any) -> str:
    """Return what is left of a value of another machine that was not shared: a file's own name; "" if none.

    >>> withheld_name(["not-shared:minutes"]), withheld_name("indexes/minutes")
    ('minutes', '')
    """
    match = _NAME.search(str(value)) if isinstance(value, str | list | tuple | dict) else None
    return match[1] if match else ""


def shared_options(
    record: Mapping[str, Any], config: type[Any], sections: Sections = _NO_SECTIONS
) -> dict[str, Any]:
    """Return what others may read of recorded values of a class's options.

    Left out is what is marked PRIVATE or PLACE. ``sections``: as for :func:`shared_value`.
    """
    kinds = kinds_of(cast("Any", config), annotated=True)
    plain = kinds_of(cast("Any", config))
    shared: dict[str, Any] = {}
    for name, value in record.items():
        marks = marks_of(kinds.get(name))  # none of an option that there was once
        if marks & {Mark.PRIVATE, Mark.PLACE}:
            continue
        if Mark.PUBLIC in marks:
            shared[name] = value
        elif is_dataclass(plain.get(name)) and isinstance(value, Mapping):
            shared[name] = shared_options(value, cast("type[Any]", plain[name]), sections)
        else:
            shared[name] = shared_value(value, sections)
    return shared


def shared_value(value: Any, sections: Sections = _NO_SECTIONS) -> Any:
    """Return what others may read of a recorded JSON value.

    Of a path "not-shared:" and its last part are left; values of keys that name a secret are left out.

    Args:
        value: texts, numbers, lists and mappings.
        sections: mappings under these keys are options of these classes.
    """
    if isinstance(value, str):
        return _shared_text(value)
    if isinstance(value, list | tuple):
        return [shared_value(each, sections) for each in value]
    if isinstance(value, Mapping):
        return {
            _shared_text(str(key)): shared_options(each, sections[key], sections)
            if key in sections and isinstance(each, Mapping)
            else shared_value(each, sections)
            for key, each in value.items()
            if not SECRET.search(str(key))
        }
    return value


def _shared_text(text: str) -> str:
    """Return a text, or what is left of the path or address that it is.

    >>> _shared_text("/home/ada/adapters/towns"), _shared_text("http://10.0.0.7:8000")
    ('not-shared:towns', 'not-shared:a server')
    >>> _shared_text("/home/ada/hub/models--Qwen--Qwen3-8B/snapshots/ab12")
    'Qwen/Qwen3-8B'
    """
    if match := _CACHED_MODEL.fullmatch(text):
        return f"{match[1]}/{match[2]}"
    if _ADDRESS.match(text):
        return f"{_WITHHELD}a server"
    if _is_local(text):
        return _WITHHELD + PureWindowsPath(text).name  # which knows both kinds of slashes
    return text


def _is_local(text: str) -> bool:
    if text.startswith("__main__:") or ".py:" in text:
        return True
    if len(text) > _LONGEST or "\n" in text or not ("/" in text or "\\" in text):
        return False  # a bare word is rather a shipped name than a folder that is called alike
    if text.startswith(("~", "./", "../")) or os.path.exists(text):
        return True
    # A word such as /no_think is no path, unless there is one.
    return any(
        path.is_absolute() and len(path.parts) > 2 for path in (PurePosixPath(text), PureWindowsPath(text))
    )


def shared_text(text: str) -> str:
    """Return a sentence without the addresses and whole paths in it.

    >>> shared_text("BackendError: http://10.0.0.7:8000 is gone; see '/home/ada/runs/log.txt'.")
    "BackendError: (a server) is gone; see 'log.txt'."
    """
    return _PATH.sub(r"\1", _ADDRESS.sub("(a server)", text))
