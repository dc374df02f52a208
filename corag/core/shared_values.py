"""What of recorded options others may read: numbers, texts and names that they know, nothing of this machine.

An option's :class:`corag.core.option_names.Mark` decides; what is not known to be public is withheld.
Texts that no option explains, such as fingerprints, are withheld if a path or an address is in them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import is_dataclass
from pathlib import Path, PureWindowsPath
from types import MappingProxyType
from typing import Any, cast

from corag.core.hub_files import is_repository_name
from corag.core.option_names import FREE_MAPPING, Mark, kinds_of, marked_options, marks_of

_WITHHELD_PREFIX = "not-shared:"
NOT_SHARED = "(its message is not shared)"  # of an error
_SERVER, _TEXT = f"{_WITHHELD_PREFIX}a server", f"{_WITHHELD_PREFIX}a text"
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://[^\s'\",;)]+", re.IGNORECASE)
_HOST = re.compile(r"(?<![\w.:-])(?:(?:\d+\.){3}\d+(?::\d+)?|[a-z][\w.-]*:\d{2,5})(?![\w:])", re.IGNORECASE)
_PATH = re.compile(
    r"(?<![\w./~-])(?:file:|~|[A-Za-z]:)?[/\\][^\s'\",;:)]*[/\\]([^\s'\",;:)/\\]*)", re.IGNORECASE
)
_RELATIVE_PATH = re.compile(
    r"\S*[^\s/]/\S*|[\w.-]+(?:\\\w[\w.-]*)+"
)  # "/no_think" is none, nor is a pattern's "\\."
_BEGINS_A_PATH = re.compile(r"~|\.{1,2}[/\\]|file:|[A-Za-z]:[/\\]|\\\\|/[^\s/]+/", re.IGNORECASE)
_CACHED_MODEL = re.compile(r".*[/\\]models--([^/\\]+?)--([^/\\]+)[/\\]snapshots[/\\][^/\\]+[/\\]?")
_PROMPT = re.compile(r"(.+)( v\S+ [0-9a-f]{16})")  # how records identify one
_ON_HUB = re.compile(r"hub:[\w.-]+/[\w.-]+(?:[@/][\w./*-]+)?")
_BARE = re.compile(r"[\w.+-]*")
_SHORT = re.compile(r"[\w.+-]{0,40}")
_NAME = re.compile(rf"{_WITHHELD_PREFIX}([^'\",\]}}\n]+)")
_SECRET = re.compile(
    r"(^|_|api|access)(keys?|token|secrets?|passw(or)?ds?|passphrase)$|^auth$|authori[sz]ation|bearer|credential|"
    r"cookie|headers?$"
)

Sections = Mapping[str, Any]
"""What mappings under such a name record: values of this class's options, ``FREE_MAPPING`` (arguments of a
library) or ``Mark.PUBLIC``."""
_NO_SECTIONS: Sections = MappingProxyType({})


def withheld_name(value: Any) -> str:
    """Return what is left of a value of another machine that was not shared: a file's own name; "" if none.

    >>> withheld_name(["not-shared:minutes"]), withheld_name("indexes/minutes")
    ('minutes', '')
    """
    match = _NAME.search(str(value)) if isinstance(value, str | list | tuple | dict) else None
    return match[1] if match else ""


def names_on_hub(*configs: Any) -> list[str]:
    """Return the names of the hub among the values of options, asked where these values are used.

    Later nobody can tell "models/tuned" from one. What a server calls its model is none.
    """
    names: list[str] = []
    for config in configs:
        for option in (
            sorted(marked_options(type(config), Mark.NAME)) if not getattr(config, "urls", ()) else ()
        ):
            value = getattr(config, option)
            values = [value] if isinstance(value, str) else list(value)
            names += [each for each in values if is_repository_name(each) and not Path(each).exists()]
    return names


def shared_options(
    record: Mapping[str, Any],
    config: type[Any],
    sections: Sections = _NO_SECTIONS,
    on_hub: Collection[str] = (),
) -> dict[str, Any]:
    """Return what others may read of recorded values of a class's options.

    Left out is what is marked PRIVATE or PLACE. ``sections`` and ``on_hub``: as for :func:`shared_value`.
    """
    kinds = kinds_of(cast("Any", config), include_extras=True)
    plain = kinds_of(cast("Any", config))
    public_values: dict[str, Any] = {}
    for name, value in record.items():
        marks, kind = marks_of(kinds.get(name)), plain.get(name)  # none of an option that there was once
        if marks & {Mark.PRIVATE, Mark.PLACE}:
            continue
        if Mark.PUBLIC in marks:
            public_values[name] = value
        elif is_dataclass(kind) and isinstance(value, Mapping):
            public_values[name] = shared_options(value, cast("type[Any]", kind), sections, on_hub)
        elif kind == FREE_MAPPING:
            public_values[name] = _shared_arguments(value)
        elif Mark.NAME in marks and isinstance(value, str):
            public_values[name] = shared_name(value, on_hub)
        elif Mark.NAME in marks and isinstance(value, list | tuple):
            public_values[name] = [shared_name(str(each), on_hub) for each in value]
        else:
            public_values[name] = shared_value(value, sections, on_hub)
    return public_values


def shared_value(value: Any, sections: Sections = _NO_SECTIONS, on_hub: Collection[str] = ()) -> Any:
    """Return what others may read of a recorded JSON value.

    Of a path "not-shared:" and its last part are left; values of keys that name a secret are left out.

    Args:
        value: texts, numbers, lists and mappings.
        sections: what mappings under these keys hold.
        on_hub: names that were fetched from the hub.
    """
    if isinstance(value, str):
        return _shared_text(value, on_hub)
    if isinstance(value, list | tuple):
        return [shared_value(each, sections, on_hub) for each in value]
    if isinstance(value, Mapping):
        public_values = {}
        for key, each in value.items():
            section = sections.get(key) if isinstance(each, Mapping) else None
            if _is_secret(key):
                continue
            if section is Mark.PUBLIC:
                public_values[key] = each
            elif section == FREE_MAPPING:
                public_values[key] = _shared_arguments(each)
            elif section is not None:
                public_values[key] = shared_options(each, section, sections, on_hub)
            else:
                public_values[_shared_text(str(key), on_hub)] = shared_value(each, sections, on_hub)
        return public_values
    return value


def shared_name(text: str, on_hub: Collection[str] = ()) -> str:
    """Return a name that others know, or what is left of a path or address.

    >>> shared_name("sub_query"), shared_name("models/tuned"), shared_name("gpu7:8100")
    ('sub_query', 'not-shared:tuned', 'not-shared:a server')
    >>> shared_name("/home/ada/hub/models--Qwen--Qwen3-8B/snapshots/ab12"), shared_name("a/b", ["a/b"])
    ('Qwen/Qwen3-8B', 'a/b')
    """
    if match := _CACHED_MODEL.fullmatch(text):
        return f"{match[1]}/{match[2]}"
    if (
        text in on_hub
        or _BARE.fullmatch(text)
        or _ON_HUB.fullmatch(text)
        or text.startswith(_WITHHELD_PREFIX)
    ):
        return text
    last = PureWindowsPath(text).name or "a path"  # which knows both kinds of slashes
    is_server = _ADDRESS.match(text) or _HOST.match(text) or re.search(r"@|:\d", last)
    return _SERVER if is_server else _WITHHELD_PREFIX + last


def _shared_arguments(value: Any) -> Any:
    """Return numbers and short words of a library's arguments; nobody knows what its texts say."""
    if isinstance(value, Mapping):
        return {
            str(key): _shared_arguments(each)
            for key, each in value.items()
            if _SHORT.fullmatch(str(key)) and not _is_secret(key)
        }
    if isinstance(value, list | tuple):
        return [_shared_arguments(each) for each in value]
    return value if value is None or isinstance(value, int | float) or _SHORT.fullmatch(str(value)) else _TEXT


def _is_secret(key: Any) -> bool:
    key_text = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(key)).lower()
    return _SECRET.search(re.sub(r"\W", "_", key_text)) is not None


def _shared_text(text: str, on_hub: Collection[str]) -> str:
    """Return a text, or what is left of the path or address that it is."""
    if match := _PROMPT.fullmatch(text):
        return shared_name(match[1], on_hub) + match[2]
    is_one = _BEGINS_A_PATH.match(text) or _RELATIVE_PATH.fullmatch(text) or _HOST.fullmatch(text)
    if is_one or text.startswith("__main__:") or ".py:" in text:
        return shared_name(text, on_hub)
    return shared_text(text)


def shared_error(text: str) -> str:
    """Return of a failed question's error its kind alone: messages name servers, files and the user's code.

    >>> shared_error("BackendError: gpu7:8000 is gone")
    'BackendError (its message is not shared)'
    """
    kind = re.match(r"[A-Za-z_]\w*(?=:|$)", text)
    return f"{kind[0] if kind else 'an error'} {NOT_SHARED}" if text else ""


def shared_origin(text: str) -> str:
    """Return how a program made questions, or only that one did, if a path may be in the text.

    >>> shared_origin("made with hub:Qwen/Qwen3-8B"), shared_origin("made with /home/ada/m")
    ('made with hub:Qwen/Qwen3-8B', 'made by a program')
    """
    is_public = all(_ON_HUB.fullmatch(word) or not re.search(r"[/\\:@~]", word) for word in text.split())
    return text if is_public else "made by a program"


def shared_text(text: str) -> str:
    """Return a sentence without the addresses and whole paths in it.

    >>> shared_text("BackendError: http://10.0.0.7:8000 is gone; see '/home/ada/runs/log.txt'.")
    "BackendError: (a server) is gone; see 'log.txt'."
    >>> shared_text("Cannot connect to host gpu01.corp:8000 ssl:default")
    'Cannot connect to host (a server) ssl:default'
    """
    return _PATH.sub(r"\1", _HOST.sub("(a server)", _ADDRESS.sub("(a server)", text)))
