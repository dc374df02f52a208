"""Docstrings as written here, for mkdocstrings."""

from __future__ import annotations

from typing import Any

import griffe
from site_reference import plain_roles


class Ours(griffe.Extension):
    """Roles of Sphinx become code; functions that wait for their result are no coroutines."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Change an object after it was read."""
        if obj.docstring:
            obj.docstring.value = plain_roles(obj.docstring.value)

    def on_attribute(self, *, attr: griffe.Attribute, **kwargs: Any) -> None:
        """Name an option's type without its bounds, which its text tells."""
        kind = attr.annotation
        if isinstance(kind, griffe.ExprSubscript) and kind.canonical_name == "Annotated":
            inner = kind.slice
            attr.annotation = inner.elements[0] if isinstance(inner, griffe.ExprTuple) else inner

    def on_function(self, *, func: griffe.Function, **kwargs: Any) -> None:
        """Take the label off what ``waits`` decorates: a call returns the result."""
        if any("waits" in str(each.value) for each in func.decorators):
            func.labels.discard("async")
