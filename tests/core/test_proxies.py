"""Proxies of the environment: not for this machine, and named for others."""

import httpx
import pytest

from corag.core.errors import ConfigError
from corag.core.web.json_client import open_client
from corag.core.web.servers import is_loopback
from tests.messages import raises_message

PROXY = "http://bob:secret@proxy.example:3128"


@pytest.fixture
def proxied(monkeypatch):
    """An environment with a proxy for everything."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, PROXY)


def goes_direct(client: httpx.AsyncClient, url: str) -> bool:
    """Whether a client's request would be sent without a proxy."""
    return client._transport_for_url(httpx.URL(url)) is client._transport


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://127.0.0.1:8000/v1", True),
        ("http://localhost:11434", True),
        ("http://LOCALHOST.", True),
        ("http://[::1]:8000", True),
        ("http://0.0.0.0:8000", True),
        ("http://10.0.0.1:8000", False),
        ("http://localhost.example.org", False),
        ("https://api.example.org", False),
        ("http://[", False),
    ],
)
def test_what_is_on_this_machine(url, here):
    assert is_loopback(url) is here


@pytest.mark.usefixtures("proxied")
def test_servers_of_this_machine_are_reached_directly_and_others_through_the_proxy():
    here, there = ["http://127.0.0.1:8000", "http://localhost:9", "http://[::1]:7"], "http://gpu-1:8000"
    alone, both = open_client(here), open_client([*here, there], timeout=3)
    for url in here:
        assert goes_direct(alone, f"{url}/v1/models") and goes_direct(both, f"{url}/v1/models")
    assert not goes_direct(both, there) and both.timeout.read == 3


@pytest.mark.usefixtures("proxied")
@pytest.mark.parametrize("proxy", ["ftp://proxy.example:1", "http://proxy.example:port"])
def test_a_proxy_that_cannot_be_used_is_an_error_only_where_it_is_needed(monkeypatch, proxy):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, proxy)
    open_client(["http://127.0.0.1:8000"])
    with raises_message(ConfigError):
        open_client(["http://gpu-1:8000"])


@pytest.mark.parametrize("url", ["https://api.example.org", "https://localhost:8443"])
def test_certificates_that_are_not_there_are_named_for_https(monkeypatch, url):
    monkeypatch.setenv("SSL_CERT_FILE", "/no/such/file.pem")
    with raises_message(ConfigError):
        open_client([url])
