"""What the server takes from a configuration beside the policy: checked, and ready to be put in force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidegate.http.attributes import Attributes
from tidegate.http.keys import ClientAddress

if TYPE_CHECKING:
    from tidegate.config import Config
    from tidegate.core.policy import Policy
    from tidegate.http.fields import Draft, Legacy


def attributes_looked_at(policy: Policy) -> set[str] | None:
    """The attributes that the rules look at; None where a function of the policy may look at any."""
    found: set[str] = set()
    for rule in policy:
        if callable(rule.cost) or callable(rule.overrides):
            return None
        found.update(rule.by, rule.match or ())
        if isinstance(rule.cost, Mapping):
            found.add("route")
    return found | {"method", "path"} if "route" in found else found


@dataclass(frozen=True)
class Settings:
    """How requests become attributes, how decisions look as header fields, and who may change state.

    `token` is what callers must show to change state; None: nobody may.
    """

    attributes: Attributes = field(default_factory=Attributes)
    fields: Draft = "draft-10"
    legacy: Legacy = "off"
    token: str | None = None

    @classmethod
    def of(cls, config: Config) -> Settings:
        """The settings of a configuration. Raises PolicyError for what cannot be used."""
        server = config.server
        client = ClientAddress(
            server.trusted_proxies, server.client_header, server.ipv4_prefix, server.ipv6_prefix
        )
        return cls(
            Attributes(config.attributes, client=client), config.http.fields, config.http.legacy, server.token
        )
