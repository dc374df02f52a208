"""Proxies of the environment: httpx heeds them, but never for this machine's own servers."""

from __future__ import annotations

import ipaddress
import urllib.request
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

import httpx

from corag.core.errors import ConfigError, reason


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
    """Return a client of these servers: if all are of this machine, they are reached directly.

    People set HTTP_PROXY for the world outside; a proxy cannot reach this machine's own 127.0.0.1.
    Certificates are read for https alone. Raises :class:`ConfigError` for a proxy or a file of certificates
    in the environment that cannot be used.
    """
    addresses = list(urls)
    try:
        is_secure = any(url.lower().startswith("https://") for url in addresses)
        certificates = httpx.create_ssl_context() if is_secure else False
        is_direct = bool(addresses) and all(map(is_loopback, addresses))
        return httpx.AsyncClient(verify=certificates, trust_env=not is_direct, **options)
    except (OSError, ImportError, ValueError, httpx.InvalidURL) as error:
        raise ConfigError(
            "a proxy or the certificates of the environment (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, "
            f"SSL_CERT_FILE) cannot be used ({reason(error)}): correct or unset the variable, or add the "
            "server to NO_PROXY."
        ) from None


def proxy_variable(url: str) -> str:
    """Return the name of the variable with the proxy that a request to this address goes through; "" if none.

    The proxy itself may hold a password.
    """
    parts = urlsplit(url)
    if is_loopback(url) or urllib.request.proxy_bypass(parts.netloc):
        return ""
    proxies = urllib.request.getproxies_environment()
    return next((f"{each.upper()}_PROXY" for each in (parts.scheme.lower(), "all") if proxies.get(each)), "")
