"""What an error of the server or of its client library means: an outage, with its cause, or a mistake.

An outage is what passes by itself or by somebody's work on the server: no connection, no answer in time, a
server that is loading, full, read-only, or does not know us. Each rule's outage rule then decides.
A mistake is ours: a key of another type, a permission that we were not given, keys of several slots. It is a
plain StoreError and never taken for an outage, so that no rule lets requests through because of a bug.

Errors are told by the code that the server put first, and by the names of the library's classes, which
redis-py and valkey-py share; so nothing is imported here. Messages name no passwords: servers do not
repeat them, and libraries name hosts and ports.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tidegate.errors import StoreError, StoreUnavailable

BY_CODE = {
    "LOADING": "loading",
    "BUSY": "busy",
    "UNKILLABLE": "busy",
    "READONLY": "read_only",
    "MASTERDOWN": "read_only",  # said by a replica that has lost its master
    "MISCONF": "read_only",  # it cannot save, and so refuses to write
    "NOREPLICAS": "read_only",  # too few replicas listen, and so it refuses to write
    "OOM": "out_of_memory",
    "NOAUTH": "authentication",
    "WRONGPASS": "authentication",
    "CLUSTERDOWN": "cluster_down",
    "TRYAGAIN": "busy",  # some keys of the slot have moved already, and others have not
}
"""The cause that each code of a reply stands for; whatever is missing here is a mistake."""

BY_CLASS = {
    "BusyLoadingError": "loading",
    "ReadOnlyError": "read_only",
    "MasterDownError": "read_only",
    "OutOfMemoryError": "out_of_memory",
    "AuthenticationError": "authentication",
    "AuthorizationError": "authentication",
    "AuthenticationWrongNumberOfArgsError": "authentication",
    "ExternalAuthProviderError": "authentication",
    "ClusterDownError": "cluster_down",
    "TryAgainError": "busy",
    "InvalidResponse": "broken_reply",
    "ProtocolError": "broken_reply",
    "IncompleteReadError": "connection",
    "TimeoutError": "deadline",
    "ConnectionError": "connection",
    "OSError": "connection",
    "EOFError": "connection",
}
"""The cause that a class of either library stands for, the most special first."""

FORGETFUL = frozenset({"read_only", "authentication", "loading", "broken_reply"})
"""After these a connection is not used again: another server may stand behind the name by now, or what comes
next on it may be the answer to something else."""

_INSIDE_A_SCRIPT = re.compile(rf"(?:^|[\s:])-({'|'.join(BY_CODE)})\b")  # as Redis 6.2 words it
_NOT_KNOWN = ("invalid password", "Client sent AUTH", "without any password")
_TOO_MANY = "max number of clients reached"


def classified(error: BaseException) -> StoreError:
    """The StoreUnavailable or, for a mistake, the StoreError that says what this error means."""
    if isinstance(error, StoreError):
        return error
    text = _text(error)
    cause = cause_of(error)
    if cause is None:
        return StoreError(f"the server refused what it was asked: {text}")
    return StoreUnavailable(_told(cause, text), cause)


def cause_of(error: BaseException) -> str | None:
    """The cause of an outage, or None for a mistake."""
    code = code_of(error)
    if code in BY_CODE:
        return BY_CODE[code]
    found = _cause_in(str(error))
    names = {kind.__name__ for kind in type(error).__mro__}
    return found or next((cause for name, cause in BY_CLASS.items() if name in names), None)


def error_said(text: str) -> StoreError:
    """The error that an error in the words of the server stands for, code first, as scripts hand it on."""
    cause = BY_CODE.get(text.partition(" ")[0].lstrip("-"))
    if cause is None:
        cause = "cluster_down" if text.startswith(("MOVED ", "ASK ")) else _cause_in(text)
    if cause is None:
        return StoreError(f"the server refused what it was asked: {text[:300]}")
    return StoreUnavailable(_told(cause, text[:300]), cause)


def code_of(error: BaseException) -> str:
    """The first word of the server's reply. Newer libraries keep it beside the text, which lacks it."""
    kept = getattr(error, "status_code", None)
    return kept if isinstance(kept, str) and kept else str(error).partition(" ")[0]


def is_no_script(reply: object) -> bool:
    """Whether the server does not have the script: then it has carried out nothing."""
    return isinstance(reply, Exception) and (
        type(reply).__name__ == "NoScriptError" or "NOSCRIPT" in str(reply)
    )


def is_try_again(reply: object) -> bool:
    """Whether the keys are on two servers while their slot moves: then the server has carried out nothing."""
    return isinstance(reply, Exception) and (
        type(reply).__name__ == "TryAgainError" or code_of(reply) == "TRYAGAIN"
    )


class Redirection(NamedTuple):
    """A server has sent us to another: for this time, or because the slot has moved for good."""

    slot: int
    host: tuple[str, int]
    for_good: bool


def redirection(reply: object) -> Redirection | None:
    """Where the reply sends us, if it does so: then the server has carried out nothing."""
    if not isinstance(reply, Exception):
        return None
    name, words = type(reply).__name__, str(reply).split()
    verb = {"MovedError": "MOVED", "AskError": "ASK"}.get(name) or (words[0] if words else "")
    if verb not in {"MOVED", "ASK"}:
        return None
    words = words[1:] if words[:1] == [verb] else words
    try:
        host, _, port = words[1].rpartition(":")
        return Redirection(int(words[0]), (host, int(port)), verb == "MOVED")
    except (IndexError, ValueError):
        return None


def _cause_in(text: str) -> str | None:
    """The cause that words behind the code tell."""
    if any(words in text for words in _NOT_KNOWN):
        return "authentication"
    if _TOO_MANY in text:
        return "connection"
    inside = _INSIDE_A_SCRIPT.search(text)
    return BY_CODE[inside[1]] if inside else None


def _text(error: BaseException) -> str:
    return " ".join(f"{error}".split())[:300] or type(error).__name__


def _told(cause: str, text: str) -> str:
    return {
        "deadline": "no answer came in time",
        "broken_reply": f"the reply cannot be read: {text}",
    }.get(cause, text)
