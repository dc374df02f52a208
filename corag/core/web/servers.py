"""Addresses of servers, as options hold them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from corag.core.errors import ConfigError


def check_addresses(urls: Iterable[str], option: str, key: str) -> None:
    """Raise :class:`ConfigError` for an address with a secret in it, or without http:// or https://.

    Addresses are printed, and noted in every run's manifest: one with a user name, a password or a query is
    not even repeated here. ``option``: its full name. ``key``: a sentence's end on where a key goes instead.
    """
    for url in urls:
        if "@" in url or "?" in url:
            raise ConfigError(
                f"an address in '{option}' holds a user name, a password or a query: give the address alone, "
                f"and {key}."
            )
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


def is_loopback(url: str) -> bool:
    """Return whether an address is on this machine.

    >>> is_loopback("http://127.0.0.2:8000"), is_loopback("http://localhost"), is_loopback("http://gpu-1")
    (True, True, False)
    """
    try:
        host = (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return False
    try:
        address = ipaddress.ip_address(host)
        return address.is_loopback or address.is_unspecified
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
