"""Whom a message is for: its options are written as a shell has them, and told to a program as Python has.

A message says ``--model.max_context 4096``, ``--out`` or ``'corag.max_hops'``. That is what the command line
prints. In a program the same message has ``open_model(max_context=4096)``, ``out=`` and
``CoRAGConfig(max_hops=...)``: :class:`corag.core.errors.CoragError` and what the Python interface prints go
through :func:`for_caller`, so no message is written twice. Commands (``corag index CORPUS --out FOLDER``),
options of other programs and all in quotes, which may be a user's own words, stay as they are. So do tables:
what stands in them is translated sentence by sentence before it is drawn.
"""

from __future__ import annotations

import os
import re
import sys
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from typing import Any, Literal

from corag.core.option_names import choices_of, is_list, kinds_of

# In the environment, since the processes that a command starts, such as workers, speak to the same caller.
CALLER = "CORAG_CALLED_FROM"
SHELL = "shell"
PARAMETER = "="
"""The ``CALL`` of a section that Python's functions take as a parameter of its name."""
_COMMAND = re.compile(
    r"\b(?:corag [a-z_]+|vllm serve|pip install)\b.*?(?:(?<!\.)\.(?=\s|$)|[,;:)'\"`](?=\W|$)|$)", re.DOTALL
)
# An option, with its value if it has one; or a text in quotes, which is none of ours.
_OPTION = re.compile(
    r"(?<![\w-])--(?P<name>[a-zA-Z](?:[\w.-]*\w)?)"
    r"(?:[ =](?P<value>\"[^\"]*\"|'[^']*'|[^\s'\"]+))?"
    r"|(?<!\w)(?P<sign>['\"`])(?:(?!(?P=sign)).|(?P=sign)(?=\w))*(?P=sign)(?!\w)",
    re.DOTALL,
)
_QUOTED_OPTION = re.compile(r"(?P<unknown>unknown option )?'(?P<name>[a-z_]\w*(?:\.[a-zA-Z]\w*)+)'")
_SAME_CALL = re.compile(r"\b(\w+)\(([^()]*)\) (?:and )?\1\((?!\.\.\.)")
_ALONE = re.compile(r"[.,;:)]|\s*(?:or|and)\b|\s*$")
_PLACEHOLDER = re.compile(r"[A-Z][A-Z_]+|.*[/\\:].*|.*\.\w+|\d+")


@contextmanager
def called_from_shell() -> Iterator[None]:
    """Tell messages as a shell needs them, here and in the processes that are started from here."""
    before = os.environ.get(CALLER)
    os.environ[CALLER] = SHELL
    try:
        yield
    finally:
        if before is None:
            del os.environ[CALLER]
        else:
            os.environ[CALLER] = before


def is_shell() -> bool:
    """Whether a command is at work, not a program of somebody's own."""
    return os.environ.get(CALLER) == SHELL


def for_caller(text: str) -> str:
    """Return a message as whoever called needs it."""
    return text if is_shell() else in_python(text)


def help_on(config: type[Any]) -> str:
    """Return where the options of a class are listed: ``--help``, or ``help(corag.ModelConfig)``."""
    if is_shell():
        return "--help"
    public = getattr(sys.modules.get("corag"), "__all__", ())
    name = next((f"corag.{each.__name__}" for each in config.__mro__ if each.__name__ in public), "")
    return f"help({name or f'{config.__module__}.{config.__qualname__}'})"


def in_python(text: str) -> str:
    """Return a message with the options in it as Python writes them.

    >>> from corag.generation.config import ModelConfig
    >>> in_python("set --model.max_context 4096, or look at 'corag doctor --all'.")
    "set open_model(max_context=4096), or look at 'corag doctor --all'."
    """
    if "--" not in text and not _QUOTED_OPTION.search(text):
        return text
    parts, end = [], 0
    for command in _COMMAND.finditer(text):
        parts += [_translate(text[end : command.start()]), command[0]]
        end = command.end()
    return "".join([*parts, _translate(text[end:])])


def _translate(text: str) -> str:
    sections = _sections()

    def translate_option(match: re.Match[str]) -> str:
        if match["sign"]:
            return match[0]
        name, raw_value = match["name"].replace("-", "_"), match["value"] or ""
        value = raw_value.rstrip(".,;:)'`\"") if raw_value[:1] not in "'\"" else raw_value
        prefix, _, last = name.rpartition(".")
        section = sections.get(prefix.rpartition(".")[2])
        kinds = _kinds(last, section) if prefix and section else () if prefix else _all_kinds(name)
        rest = match[0][len(f"--{match['name']}") :]
        if not kinds:
            if name not in sections:
                return match[0]
            is_choice = any(value in choices_of(each, sections[name]) for each in kinds_of(sections[name]))
            return f"{_call(sections[name])}(...){rest[1 + len(value) :] if is_choice else rest}"
        call = _call(section) if prefix and section else ""
        if call == PARAMETER:
            return f"{prefix}={rest}"
        full_value = getattr(section, "VALUE_ALIASES", {}).get(last, {}).get(value, value)
        alone = bool(_ALONE.match(raw_value.removeprefix(value) + text[match.end() :]))
        literal = next((each for kind in kinds if (each := _literal(full_value, kind, alone=alone))), "")
        rest = rest[1 + len(value) :] if literal else rest
        if call:
            return f"{call}({last}={literal or '...'}){rest}"
        return f"{name}={literal}{rest}"

    def translate_quoted(match: re.Match[str]) -> str:
        prefix, _, last = match["name"].rpartition(".")
        section = sections.get(prefix.rpartition(".")[2])
        if section is None or section.CALL == PARAMETER or not (match["unknown"] or _kinds(last, section)):
            return match[0]
        return f"{match['unknown'] or ''}{_call(section)}({last}=...)"

    text = _QUOTED_OPTION.sub(translate_quoted, _OPTION.sub(translate_option, text))
    while (shorter := _SAME_CALL.sub(r"\1(\2, ", text)) != text:
        text = shorter
    return text


def _literal(value: str, kind: Any, *, alone: bool) -> str:
    """Return a word as Python writes a value of this type; "" for one that goes on in prose.

    ``alone``: whether no further word of prose follows, as one would after a verb.
    """
    if is_list(kind):
        kind = typing.get_args(kind)[0]
    kinds = [each for each in typing.get_args(kind) if each is not type(None)] or [kind]
    if typing.get_origin(kind) is Literal:
        return f'"{value}"' if value in typing.get_args(kind) else ""
    if bool in kinds:
        return {"true": "True", "false": "False"}.get(value, "")
    if not value or value[:1] in "'\"":
        return value
    if int in kinds or float in kinds:
        return value if re.fullmatch(r"[\d.,]*\d|[A-Z_]+", value) else ""
    return f'"{value}"' if alone or _PLACEHOLDER.fullmatch(value) else ""


def _options() -> Iterator[Any]:
    """Yield all classes of options that are loaded: a message is about those that its module knows."""
    from corag.core.options import Options  # which imports the names that this module's caller is in

    waiting: list[Any] = [Options]
    while waiting:
        each = waiting.pop()
        waiting += each.__subclasses__()
        if is_dataclass(each):
            yield each


def _sections() -> dict[str, Any]:
    """Return the class of each section by the name that commands have for it."""
    sections: dict[str, Any] = {}
    for each in _options():
        if each.SECTION:
            sections.setdefault(each.SECTION, each)
        for name, kind in kinds_of(each).items():
            if is_dataclass(kind):
                sections.setdefault(name, kind)
    return sections


def _kinds(option: str, section: Any) -> tuple[Any, ...]:
    name = getattr(section, "ALIASES", {}).get(option, option)
    return tuple(kind for each, kind in kinds_of(section).items() if each == name)


def _all_kinds(option: str) -> tuple[Any, ...]:
    return tuple(kind for each in _options() for kind in _kinds(option, each) if not is_dataclass(kind))


def _call(section: type[Any]) -> str:
    """Return what makes an object of a section in Python."""
    return str(getattr(section, "CALL", "") or section.__name__)
