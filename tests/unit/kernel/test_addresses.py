"""Addresses that can be called, and what is wrong with others (P6)."""

import pytest

from nightmill.kernel.domain.addresses import flaw


@pytest.mark.parametrize(
    "url",
    [
        *("https://api.openai.com/v1", "http://127.0.0.1:8399/v1", "http://[::1]:8080/v1", "http://localhost"),
        *("https://xn--tda.example/v1/", f"https://{'a' * 63}.example", "https://llm.example./v1"),
    ],
)
def test_a_good_address(url: str) -> None:
    assert flaw(url) is None


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://host:99999/v1", "is no address"),
        ("http://host:http/v1", "is no address"),
        ("http://[::1/v1", "is no address"),
        ("http://host:0/v1", "is no http or https address"),
        ("ftp://host/v1", "is no http or https address"),
        ("host/v1", "is no http or https address"),
        ("http:///v1", "is no http or https address"),
        ("https://u:secret@host/v1", "holds a login, a query or a fragment"),
        ("https://host/v1?key=secret", "holds a login, a query or a fragment"),
        ("https://ho st/v1", "holds a space, or what is no printable ASCII"),
        ("https://h\u00f6st/v1", "holds a space, or what is no printable ASCII"),
        (f"https://{'a' * 64}.example/v1", "names no host"),
        ("https://a..example/v1", "names no host"),
        (f"https://{'a.' * 127}example/v1", "names no host"),
    ],
)
def test_what_is_wrong_is_said_without_the_address(url: str, said: str) -> None:
    assert flaw(url) == said
