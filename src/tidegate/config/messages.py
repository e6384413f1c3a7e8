"""Turns the complaint of a check into a sentence: what stands in the file, and what to write instead.

Nothing here knows pydantic beyond the names of its complaints, and nothing here decides: a complaint
has already been made, this file finds the words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidegate.config.values import RefusedError, shown
from tidegate.nearest import nearest

_OTHER_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "burst": ("capacity",),
    "size": ("capacity",),
    "limit": ("capacity",),
    "max": ("limit", "capacity"),
    "requests": ("limit", "capacity"),
    "count": ("limit", "capacity"),
    "requests_per_unit": ("limit", "rate"),
    "unit": ("window", "rate"),
    "per": ("window", "rate"),
    "period": ("window", "rate"),
    "interval": ("window", "rate"),
    "duration": ("window",),
    "refill": ("rate",),
    "refill_rate": ("rate",),
    "rps": ("rate",),
    "timezone": ("zone",),
    "tz": ("zone",),
    "type": ("algorithm",),
    "key": ("by",),
    "keys": ("by",),
    "group_by": ("by",),
    "when": ("match",),
    "if": ("match",),
    "action": ("mode",),
    "shadow": ("mode",),
    "shadow_mode": ("mode",),
    "weight": ("cost",),
    "costs": ("cost",),
    "bind": ("host",),
    "address": ("host",),
    "proxies": ("trusted_proxies",),
    "backend": ("store",),
    "storage": ("store",),
    "limits": ("rules",),
    "descriptors": ("rules",),
    "headers": ("fields",),
    "failure_mode": ("on_outage",),
    "fail_open": ("on_outage",),
    "on_error": ("on_outage",),
    "fallback": ("outage_limit",),
    "timeout": ("deadline",),
    "namespace": ("prefix", "schema"),
    "replicas_ack": ("replicas",),
    "instances": ("nodes", "workers"),
    "processes": ("workers",),
    "percent": ("share",),
}
"""What other systems call a key, and what it is here."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The table in which a complaint was made: its title, its keys, and an example of each."""

    title: str
    examples: Mapping[str, str]
    elsewhere: Mapping[str, Sequence[str]]
    """Keys of other tables, with the titles of those."""


def sentence(
    kind: str, name: str, value: object, error: Exception | None, table: Surroundings, *, in_list: bool
) -> str:
    """Say what is wrong with the value of the key `name`, or with an entry of its list, and what to write.

    `kind` is the complaint by its pydantic name, `error` what a reader of single values raised.
    """
    if isinstance(error, RefusedError):
        return f"an entry of {name} is {error}" if in_list else f"{name} is {error}"
    if error is not None:
        return str(error)
    if kind == "extra_forbidden":
        return unknown_key(name, table)
    example = table.examples.get(name)
    if example is None:
        return f"{name} is {shown(value)}; something else is wanted"
    written = f"write for instance {name}: {example}"
    if in_list:
        return f"an entry of {name} is {shown(value)}; write for instance {example.strip('[]')}"
    if kind == "missing":
        return f"{name} is missing; {written}"
    if kind == "bool_type":
        return f"{name} is {shown(value)}; write true or false"
    return f"{name} is {shown(value)}; {written}"


def flow(value: object) -> str:
    """The value as one line of YAML."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{flow(name)}: {flow(inner)}' for name, inner in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(flow(inner) for inner in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) and " " in value else str(value)


def unknown_key(key: str, table: Surroundings) -> str:
    """Say that no such key exists here, and which was probably meant."""
    meant = key_meant(key, table)
    if meant is not None:
        return f"unknown key {key!r}; did you mean {meant!r}?"
    others = table.elsewhere.get(key, ())
    if others:
        return f"unknown key {key!r} in {table.title}; it belongs to {' or '.join(others[:2])}"
    return f"unknown key {key!r}; the keys of {table.title} are {', '.join(table.examples)}"


def key_meant(key: str, table: Surroundings) -> str | None:
    """The key of this table that was probably meant by `key`."""
    for other in _OTHER_WORDS.get(key.lower(), ()):
        if other in table.examples:
            return other
    return nearest(key, table.examples)
