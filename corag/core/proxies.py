"""Proxies and certificates of the environment: never for this machine's own servers, and named in errors."""

from __future__ import annotations

import ipaddress
import os
import urllib.request
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx

from corag.core.errors import ConfigError


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


def open_client(urls: Iterable[str], **options: Any) -> httpx.AsyncClient:
    """Return a client of these servers: those of this machine are reached directly.

    People set HTTP_PROXY for the world outside; a proxy cannot reach this machine's own 127.0.0.1.
    Certificates are read for https alone. Raises :class:`ConfigError` for a proxy or a file of certificates
    in the environment that cannot be used.
    """
    addresses = list(urls)
    try:
        return httpx.AsyncClient(**_environment(addresses), **options)
    except OSError as error:
        raise ConfigError(
            f"SSL_CERT_FILE is '{os.environ.get('SSL_CERT_FILE', '')}', which cannot be read as certificates "
            f"({error.strerror or error}), and an address begins with https://: correct the variable, or "
            "unset it."
        ) from None
    except (ImportError, ValueError, httpx.InvalidURL):
        proxies = [text for url in addresses if (text := describe_proxy(url))]
        if not proxies:
            raise
        raise ConfigError(
            f"the proxy {proxies[0]} cannot be used: correct it, take it out of the environment, or add the "
            "server to NO_PROXY."
        ) from None


def _environment(urls: Sequence[str]) -> dict[str, Any]:
    """Return what of the environment an httpx client of these servers goes by, as its arguments."""
    is_secure = any(url.lower().startswith("https://") for url in urls)
    if urls and all(map(is_loopback, urls)):
        # Without a look at the environment: a proxy of a kind that httpx does not know would be an error even
        # where it is not used. Certificates of the environment stay.
        return {"trust_env": False, "verify": httpx.create_ssl_context() if is_secure else False}
    mounts = {f"all://{_authority(url)}": None for url in urls if is_loopback(url)}
    return {"verify": is_secure} | ({"mounts": mounts} if mounts else {})


def describe_proxy(url: str) -> str:
    """Return the proxy that a request to this address goes through, with its variable; "" if none.

    Its user name and password are left out.
    """
    if is_loopback(url):
        return ""
    parts = urlsplit(url)
    if urllib.request.proxy_bypass(parts.netloc):
        return ""
    proxies = urllib.request.getproxies_environment()
    for scheme in (parts.scheme.lower(), "all"):
        if proxy := proxies.get(scheme, ""):
            variable = f"{scheme}_proxy"
            # Both spellings are read, and the lower one counts.
            name = variable if os.environ.get(variable) else variable.upper()
            return f"{_without_user(proxy)} ({name})"
    return ""


def _without_user(proxy: str) -> str:
    scheme, separator, rest = proxy.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def _authority(url: str) -> str:
    host = urlsplit(url).hostname or ""
    return f"[{host}]" if ":" in host else host
