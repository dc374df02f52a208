"""HTML elements as text: whatever is not an element itself is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(tag: str, /, *children: str | None, **attributes: str | float | bool) -> Markup:
    """Return an element. Attributes that are False are left out; ``class_`` is ``class``, ``_`` is ``-``.

    >>> element("p", "1 < 2", element("b", "!"), class_="note", data_run=3, hidden=True)
    '<p class="note" data-run="3" hidden="">1 &lt; 2<b>!</b></p>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{"" if value is True else escape(str(value))}"'
        for key, value in attributes.items()
        if value is not False
    )
    return Markup(f"<{tag}{written}>{joined(children)}</{tag}>")


def joined(children: Iterable[str | None]) -> Markup:
    """Return elements and texts one after the other, without those that are None."""
    return Markup(
        "".join(
            each if isinstance(each, Markup) else escape(each, quote=False)
            for each in children
            if each is not None
        )
    )


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], **attributes: str) -> Markup:
    """Return a table whose first column names its rows."""
    head = element("tr", *(element("th", each, scope="col") for each in heads))
    lines = [
        element("tr", element("th", first, scope="row"), *(element("td", each) for each in rest))
        for first, *rest in rows
    ]
    return element("table", element("thead", head), element("tbody", *lines), **attributes)


def folded(title: str, /, *children: str, **attributes: str | bool) -> Markup:
    """Return what opens at a click on its title; wide tables in it scroll."""
    inner = element("div", *children, class_="scroller", role="region", aria_label=title, tabindex=0)
    return element("details", element("summary", title), inner, class_="card fold", **attributes)
