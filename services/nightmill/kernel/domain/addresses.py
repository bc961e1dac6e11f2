"""Whether a text can be the address where a server's API begins: http or https, host, perhaps a port and a path.

Here, and not where calls are made: one address that no library can read ended the gateway, and the calls of all other
pools with it, as often as it was started.
"""

from urllib.parse import urlsplit

_MOST_HOST_CHARS = 253
_MOST_LABEL_CHARS = 63


def flaw(url: str) -> str | None:
    """What is wrong with an address, without showing it: it may hold a key. None: it can be called."""
    try:
        parts = urlsplit(url)
        port_fits = parts.port != 0
    except ValueError:
        return "is no address"
    if parts.username is not None or parts.query or parts.fragment:
        return "holds a login, a query or a fragment"
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_fits:
        return "is no http or https address"
    if not (url.isascii() and url.isprintable() and " " not in url):
        return "holds a space, or what is no printable ASCII"
    return None if _is_host(parts.hostname) else "names no host"


def _is_host(name: str) -> bool:
    if ":" in name:  # of IPv6, which was read in its brackets
        return True
    labels = name.removesuffix(".").split(".")
    return len(name) <= _MOST_HOST_CHARS and all(0 < len(label) <= _MOST_LABEL_CHARS for label in labels)
