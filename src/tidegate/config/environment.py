"""Reads what may stand in the environment: the store's address, the server's address and port, its token.

`{env: NAME}` is possible for these alone, because they are secret or differ from host to host. A variable
that is missing or empty is an error that names it. What a variable holds is never shown: it may be secret.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tidegate.config.places import UNREADABLE
from tidegate.config.values import AlreadySaidError, either, refused, text, whole
from tidegate.core.outage import NODES_MOST
from tidegate.stores.opening import kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_STORES: Final = ("memory://", "redis://", "postgresql://")
"""How the addresses of stores begin, in their plainest forms."""

_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_HOST = re.compile(r"[A-Za-z0-9._:%-]+", re.ASCII)


def from_environment(value: object, name: str, env: Mapping[str, str]) -> str | None:
    """What the variable in `{env: NAME}` says, None if `value` has not that form."""
    if not isinstance(value, dict) or "env" not in value:
        return None
    variable = value["env"]
    if variable is UNREADABLE:
        raise AlreadySaidError
    if len(value) > 1:
        raise ValueError(f"{name} names an environment variable; beside env no other key is possible here")
    if not isinstance(variable, str) or not _VARIABLE_NAME.fullmatch(variable):
        raise refused(
            variable, "write the name of an environment variable, for instance {env: TIDEGATE_TOKEN}"
        )
    found = env.get(variable)
    if not found:
        state = "is not set" if found is None else "is empty"
        raise ValueError(
            f"{name} is read from the environment variable {variable}, which {state}; set it and start again"
        )
    return found


def host(value: object, name: str, env: Mapping[str, str]) -> str:
    """A name or an address to listen on, without a port."""
    found = from_environment(value, name, env)
    if found is not None:
        if not _HOST.fullmatch(found):
            raise _unusable(value, name, "holds no host name and no address")
        return found
    written = _plain(value, name, "HOST")
    if not _HOST.fullmatch(written) or re.fullmatch(r"[^:]*:[0-9]+", written):
        raise refused(value, "write a host name or an address, and the port under port: host: 127.0.0.1")
    return written


def port(value: object, name: str, env: Mapping[str, str]) -> int:
    """A port to listen on; 0 lets the system choose."""
    found = from_environment(value, name, env)
    if found is not None:
        if not re.fullmatch(r"[0-9]{1,5}", found, re.ASCII) or int(found) > 65535:
            raise _unusable(value, name, "holds no port from 0 to 65535")
        return int(found)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 65535:
        raise refused(value, "write a whole number from 0 to 65535, for instance port: 8080, or {env: PORT}")
    return value


def node_index(value: object, name: str, env: Mapping[str, str]) -> int | None:
    """Which of the nodes of a reserve this one is, from 0 on; None for one that owns no share."""
    found = from_environment(value, name, env)
    if found is not None:
        if not re.fullmatch(r"[0-9]{1,5}", found, re.ASCII):
            raise _unusable(value, name, "holds no whole number from 0 on")
        return int(found)
    return None if value is None else whole(value, 0, NODES_MOST - 1)


def token(value: object, name: str, env: Mapping[str, str]) -> str:
    """A secret, which stands in the environment and never in the file."""
    found = from_environment(value, name, env)
    if found is None:
        if value is UNREADABLE:
            raise AlreadySaidError
        raise ValueError(
            f"{name} is a secret and does not belong into a file; write {name}: {{env: TIDEGATE_TOKEN}}"
        )
    if not re.fullmatch(r"[!-~]+", found):
        raise _unusable(
            value, name, "holds characters that no header can carry; use letters, digits and signs"
        )
    return found


def store_url(value: object, name: str, env: Mapping[str, str]) -> str:
    """The address of a store, such as memory://."""
    found = from_environment(value, name, env)
    written = found if found is not None else _plain(value, name, "TIDEGATE_STORE")
    if "://" in written and kind_of(written) is not None:
        return written
    way_out = f"write an address that begins with {either(_STORES)}"
    if found is not None:
        raise _unusable(value, name, f"holds no address of a store; {way_out}")
    if "@" in written:  # such an address may carry a password
        raise ValueError(f"{name} is no address that can be opened; {way_out}")
    raise refused(value, way_out)


def _plain(value: object, name: str, variable: str) -> str:
    if isinstance(value, dict):
        raise refused(value, f"write one text, or {{env: {variable}}}")
    written = text(value)
    if "${" in written or written.startswith("$"):
        inner = _VARIABLE_NAME.search(written)
        raise refused(
            value,
            f"nothing is filled in inside a text; write {name}: {{env: {inner[0] if inner else variable}}}",
        )
    return written


def _unusable(value: object, name: str, why: str) -> ValueError:
    """The error for a variable of no use; what it holds stays unsaid."""
    variable = value["env"] if isinstance(value, dict) else value
    return ValueError(f"{name} is read from the environment variable {variable}, which {why}")
