"""What an error of the server means: an outage, with its cause, or a mistake."""

from __future__ import annotations

import re

from tidegate.errors import StoreError, StoreUnavailable

_CAUSES = {
    "LOADING": "loading",
    "READONLY": "read_only",
    "MISCONF": "read_only",  # it cannot save, so it takes no writes
    "NOREPLICAS": "read_only",
    "MASTERDOWN": "read_only",
    "OOM": "out_of_memory",
    "NOAUTH": "authentication",
    "WRONGPASS": "authentication",
    "NOPERM": "authentication",
    "BUSY": "busy",
    "CLUSTERDOWN": "cluster_down",
    "TRYAGAIN": "cluster_down",
    "MOVED": "cluster_down",
    "ASK": "cluster_down",
}
_CODE = re.compile(r"(?:@?user_script:\s*[0-9]+:\s*)?-?([A-Z]+)\b")


def error_said(text: str) -> StoreError:
    """The error that the server's text stands for: StoreUnavailable for an outage, else a plain StoreError."""
    found = _CODE.match(text)
    cause = _CAUSES.get(found[1]) if found else None
    if cause is None and "max number of clients" in text:
        cause = "connection"
    if cause is None:
        return StoreError(f"the store refuses: {text}")
    return StoreUnavailable(f"the store refuses: {text}", cause)
