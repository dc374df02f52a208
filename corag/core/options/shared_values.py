"""What of recorded options others may read: numbers, plain texts and names that they know.

An option's :class:`corag.core.options.names.Mark` decides. Any other text is shared only if it can be no
path and no address; what is not shared stands as :data:`NOT_SHARED`, which no option takes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, cast

from corag.core.options.names import Mark, kinds_of, marked_options, marks_of
from corag.core.web.hub_files import is_repository_name

NOT_SHARED = "(not shared)"
# No slash, behind a colon a digest at most: no path, no address, no FILE.py:NAME.
_PLAIN = re.compile(r"(?:[^/\\@~:]|:(?=\s|$|[0-9a-f]{16}\b))*")
# Options that pass arguments on to a library: a text in one may be a key.
FREE = frozenset({"engine", "more", "template_args", "trainer"})
_ON_HUB = re.compile(r"hub:[\w.-]+/[\w.-]+(?:[@/][\w./*-]+)?")


def is_withheld(value: Any) -> bool:
    """Whether a value, or one within it, is of another machine and was not shared."""
    return NOT_SHARED in str(value)


def names_on_hub(*configs: Any) -> list[str]:
    """Return the names of the hub among the values of options, asked where these values are used.

    Later "models/tuned" would look like one. What a server calls its model is none.
    """
    names: list[str] = []
    for config in configs:
        options = vars(config)
        for option in sorted(marked_options(type(config), Mark.NAME)) if not options.get("urls") else ():
            values = [options[option]] if isinstance(options[option], str) else list(options[option])
            names += [each for each in values if is_repository_name(each) and not Path(each).exists()]
    return names


def shared_options(
    record: Mapping[str, Any], config: type[Any], on_hub: Collection[str] = ()
) -> dict[str, Any]:
    """Return what others may read of recorded values of a class's options.

    Left out is what is marked PRIVATE or PLACE. ``on_hub``: names that were fetched from the hub.
    """
    marks, kinds = kinds_of(cast("Any", config), include_extras=True), kinds_of(cast("Any", config))
    shared: dict[str, Any] = {}
    for name, value in record.items():
        kind = kinds.get(name)  # none of an option that there was once
        if marks_of(marks.get(name)) & {Mark.PRIVATE, Mark.PLACE}:
            continue
        if Mark.PUBLIC in marks_of(marks.get(name)):
            shared[name] = value
        elif is_dataclass(kind) and isinstance(value, Mapping):
            shared[name] = shared_options(value, cast("type[Any]", kind), on_hub)
        else:
            shared |= shared_value({name: value}, on_hub)
    return shared


def shared_value(value: Any, on_hub: Collection[str] = ()) -> Any:
    """Return what others may read of a recorded JSON value.

    >>> shared_value(["sub_query", 3, "models/tuned", "gpu7:8100", "hub:a/b"])
    ['sub_query', 3, '(not shared)', '(not shared)', 'hub:a/b']
    """
    if isinstance(value, Mapping):
        return {
            shared_value(key, on_hub): _shared_numbers(each) if key in FREE else shared_value(each, on_hub)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [shared_value(each, on_hub) for each in value]
    is_public = not isinstance(value, str) or value in on_hub
    return value if is_public or _PLAIN.fullmatch(value) or _ON_HUB.fullmatch(value) else NOT_SHARED


def _shared_numbers(value: Any) -> Any:
    """Return the numbers among a library's arguments."""
    if isinstance(value, Mapping):
        return {shared_value(key): _shared_numbers(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_shared_numbers(each) for each in value]
    return NOT_SHARED if isinstance(value, str) else value


def shared_error(text: str) -> str:
    """Return of a failed question's error its kind alone: messages name servers, files and the user's code.

    >>> shared_error("BackendError: gpu7:8000 is gone")
    'BackendError (not shared)'
    """
    kind = re.match(r"[A-Za-z_]\w*(?=:|$)", text)
    return f"{kind[0] if kind else 'an error'} {NOT_SHARED}" if text else ""
