"""From a URL to a store. No message repeats what may be a password."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

from tidegate.errors import StoreError
from tidegate.stores.base import Store
from tidegate.stores.memory import MemoryStore

_MEMORY_OPTIONS = ("max_keys", "when_full")
_DIGITS_MOST = 18


def open_store(url: str) -> Store:
    """The store that the URL names: "memory://", with `?max_keys=100000&when_full=forget` if wanted.

    Every call opens another store of its own. Raises StoreError for what is not known.
    """
    if not isinstance(url, str):
        raise StoreError(f"store is {url!r}; write a URL such as 'memory://', or pass a store")
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise StoreError(f"store URL cannot be read: {error}; write one such as 'memory://'") from None
    if parts.scheme != "memory":
        raise StoreError(f"store is {_shown(url)!r}; this version knows 'memory://' only")
    if parts.netloc or parts.path or parts.fragment:
        raise StoreError(f"store is {_shown(url)!r}; a memory store has no address, write 'memory://'")
    options = _options(parts.query)
    max_keys = options.get("max_keys", "1000000")
    if not (max_keys.isascii() and max_keys.isdigit()) or len(max_keys) > _DIGITS_MOST:
        raise StoreError(f"max_keys is {max_keys[:40]!r}; write a whole number of keys, at least 1")
    return MemoryStore(int(max_keys), options.get("when_full", "refuse"))  # type: ignore[arg-type]  # checked there


def _options(query: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in _MEMORY_OPTIONS:
            raise StoreError(
                f"store option {name!r} is unknown; a memory store has {', '.join(_MEMORY_OPTIONS)}"
            )
        if name in options:
            raise StoreError(f"store option {name!r} is given twice")
        options[name] = value
    return options


def _shown(url: str) -> str:
    """The URL as messages may show it: without user, password and options."""
    head = url.partition("?")[0]
    before, at, address = head.rpartition("@")
    return f"{before.partition('://')[0]}://***@{address}" if at else head
