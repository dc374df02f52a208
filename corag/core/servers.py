"""Addresses of servers, as options hold them."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from corag.core.errors import ConfigError


def contain_credentials(urls: Iterable[str]) -> bool:
    """Return whether an address holds more than where a server is: a user name, a password or a query.

    Addresses are printed, and noted in every run's manifest. So whoever refuses one does not repeat it.

    >>> contain_credentials(["http://localhost:8000/v1"])
    False
    >>> contain_credentials(["http://bob:secret@localhost:8000"])
    True
    """
    return any("@" in url or "?" in url for url in urls)


def check_schemes(urls: Iterable[str], option: str) -> None:
    """Raise :class:`ConfigError` for an address without http:// or https://. ``option``: its full name.

    Call it after :func:`contain_credentials`, since it repeats the address.
    """
    for url in urls:
        if not is_address(url):
            host = url.rpartition("://")[2]
            raise ConfigError(
                f"'{url}' in '{option}' does not begin with http:// or https://: write http://{host}."
            )


def is_address(name: str) -> bool:
    """Return whether a name is the address of a server."""
    return name.lower().startswith(("http://", "https://"))


def base_address(url: str) -> str:
    """Return the address that routes such as /models are added to: one with a path is used as it stands.

    >>> base_address("http://localhost:8000/"), base_address("https://host/v1beta/openai/")
    ('http://localhost:8000/v1', 'https://host/v1beta/openai')
    """
    url = url.rstrip("/")
    return url if urlsplit(url).path else f"{url}/v1"
