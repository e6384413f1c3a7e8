"""From a URL to a store."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

from tidegate.errors import StoreError
from tidegate.stores.base import Store
from tidegate.stores.memory import MemoryStore

_MEMORY_OPTIONS = ("max_keys", "when_full")


def open_store(url: str) -> Store:
    """The store that the URL names: "memory://", with `?max_keys=100000&when_full=forget` if wanted.

    Every call opens another store of its own. Raises StoreError for what is not known.
    """
    if not isinstance(url, str):
        raise StoreError(f"store is {url!r}; write a URL such as 'memory://', or pass a store")
    parts = urlsplit(url)
    if parts.scheme != "memory":
        raise StoreError(f"store is {_shown(url)!r}; this version knows 'memory://' only")
    if parts.netloc or parts.path or parts.fragment:
        raise StoreError(f"store is {_shown(url)!r}; a memory store has no address, write 'memory://'")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(options.keys() - set(_MEMORY_OPTIONS))
    if unknown:
        raise StoreError(
            f"store option {unknown[0]!r} is unknown; a memory store has {', '.join(_MEMORY_OPTIONS)}"
        )
    max_keys = options.get("max_keys", "1000000")
    if not (max_keys.isascii() and max_keys.isdigit()):
        raise StoreError(f"max_keys is {max_keys!r}; write a whole number of keys, at least 1")
    return MemoryStore(int(max_keys), options.get("when_full", "refuse"))  # type: ignore[arg-type]  # checked there


def _shown(url: str) -> str:
    """The URL as messages may show it: without the password."""
    head, at, tail = url.rpartition("@")
    scheme, slashes, user = head.partition("://")
    return f"{scheme}{slashes}{user.partition(':')[0]}:***@{tail}" if at and ":" in user else url
