"""Addresses of servers."""

from __future__ import annotations

from collections.abc import Iterable


def hold_secrets(urls: Iterable[str]) -> bool:
    """Whether an address holds more than where a server is: a user name, a password or a query.

    Addresses are printed, and noted in every run's manifest. So whoever refuses one does not repeat it.

    >>> hold_secrets(["http://localhost:8000/v1"])
    False
    >>> hold_secrets(["http://bob:secret@localhost:8000"])
    True
    """
    return any("@" in url or "?" in url for url in urls)
