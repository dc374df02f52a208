"""The front door's names for mkdocstrings, which reads docstrings without importing anything."""

from __future__ import annotations

import re

import corag


def reference(names: str) -> str:
    """Return an entry for each name, as mkdocstrings takes it.

    A name with a dot is not of the front door: what its functions return.
    """
    return "\n".join(_entry(name) for name in names.split())


def _entry(name: str) -> str:
    if "." in name:
        return _block(name, name.rsplit(".", 1)[1], members=True)
    exported = getattr(corag, name)
    if not hasattr(exported, "__qualname__"):
        escaped_name = name.replace("_", "\\_")
        title = f'<a id="corag.{name}"></a>\n\n### corag.{escaped_name}'
        return f"{title}\n\nThe version of the installed package.\n"
    entry = _block(f"{exported.__module__}.{exported.__qualname__}", f"corag.{name}", members=name == "Tools")
    twin = f"a{name}"
    if twin in corag.__all__:
        entry += (
            f"\n### corag.{twin} {{ #corag.{twin} }}\n\n`corag.{name}`, to be awaited: the same arguments.\n"
        )
    return entry


def _block(path: str, heading: str, members: bool) -> str:
    lines = [
        f"::: {path}",
        "    options:",
        f"      heading: {heading}",
        f"      toc_label: {heading}",
        f"      members: {'null' if members else 'false'}",
    ]
    anchor = ["", f"[](){{ #{heading} }}"] if heading.startswith("corag.") else []
    return "\n".join([*anchor, "", *lines, ""])


def plain_roles(text: str) -> str:
    """Return a docstring without the roles that Sphinx would read.

    >>> plain_roles("Raises :class:`ConfigError`; see :func:`corag.core.x.y`, ``z``.")
    'Raises `ConfigError`; see `corag.core.x.y`, `z`.'
    """
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text).replace("``", "`")
