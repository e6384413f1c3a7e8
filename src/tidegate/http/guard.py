"""What the ASGI and the WSGI middleware decide alike: hooks, fields and the answer to a refusal.

Nothing here knows either protocol. What can be worked out once is worked out at construction, and what
is wrong with a setting is an error there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tidegate.errors import PolicyError
from tidegate.http.attributes import Attributes, Source
from tidegate.http.fields import EXPOSE, Draft, Legacy, Pairs, Writer, field_names, field_writer, merge_fields
from tidegate.http.keys import check_range
from tidegate.http.problem import Answer, line_too_long, refusal
from tidegate.units import Duration, duration_us

if TYPE_CHECKING:
    from tidegate.core.decision import Decision
    from tidegate.core.policy import Policy
    from tidegate.http.keys import ClientAddress
    from tidegate.limiter import AsyncLimiter, Limiter

MARK = "tidegate.decisions"
"""Where a request carries its decisions, by the identity of the limiter: one request, one charge each."""

AttributesSetting: TypeAlias = Attributes | Mapping[str, Source] | Callable[[Any], Any] | None


class Guard:
    """The settings of a middleware, checked, and the answers that follow from them."""

    def __init__(
        self,
        limiter: Limiter | AsyncLimiter,
        *,
        draft: Draft,
        legacy: Legacy,
        expose: bool,
        deny_status: int,
        hold_max: Duration,
        wall_clock_s: Callable[[], float],
    ) -> None:
        check_range("deny_status", deny_status, 400, 599)
        self._limiter = limiter
        self._policy, self._by_key_alone = limiter.policy, _looks_at_key_alone(limiter.policy)
        self._deny_status = deny_status
        self._wall_clock_s = wall_clock_s
        writer, names = field_writer(draft, legacy, wall_clock_s=wall_clock_s), field_names(draft, legacy)
        self.pairs = _exposing(writer, names) if expose else writer
        """The fields that go with an answer under a decision."""
        self.names = frozenset((*names, EXPOSE) if expose else names)
        """The names of all fields that may be written."""
        self.hold_us_max = 0 if hold_max == 0 else duration_us(hold_max, "hold_max")

    def address_is_enough(self) -> bool:
        """Whether the policy, as it now is, asks for nothing but a key that is the client's address.

        Then the limiter is asked with the plain address, which means the same and is much the fastest.
        """
        policy = self._limiter.policy
        if policy is not self._policy:
            self._policy, self._by_key_alone = policy, _looks_at_key_alone(policy)
        return self._by_key_alone

    def merged(self, theirs: Sequence[tuple[str, str]], ours: Pairs) -> Pairs:
        """The application's fields with ours, where both may have set some of the same."""
        return merge_fields(theirs, ours, now_s=self._wall_clock_s())

    def refused(self, decision: Decision, own: object = None) -> Answer:
        """The whole answer to a refused request; `own` is what the application would rather say.

        Raises TypeError if that is no `Answer`: a broken hook must not look like an answer.
        """
        if own is None:
            answer = refusal(decision, shared=self._is_shared(decision.rule), deny_status=self._deny_status)
        elif isinstance(own, Answer):
            answer = own
        else:
            raise TypeError(f"the on_refused hook returned {own!r}; it must return an Answer or None")
        return answer._replace(headers=self.merged(answer.headers, self.pairs(decision)))

    def held_too_long(self, decision: Decision) -> Answer:
        """The answer to a request whose turn comes later than it may be held."""
        answer = line_too_long(decision, self.hold_us_max)
        return answer._replace(headers=self.merged(answer.headers, self.pairs(decision)))

    def _is_shared(self, name: str) -> bool:
        """Whether the rule counts everybody together."""
        return any(rule.name == name and not rule.by for rule in self._limiter.policy.rules)


def _exposing(writer: Writer, names: Sequence[str]) -> Writer:
    """A writer that lets scripts on other origins read what it writes."""
    exposed = (EXPOSE, ", ".join(names))

    def write(decision: Decision) -> Pairs:
        pairs = writer(decision)
        return [*pairs, exposed] if pairs else pairs

    return write


def _looks_at_key_alone(policy: Policy) -> bool:
    """Whether no rule asks for any attribute but `key`, be it in a table or a function."""
    return policy.bare and not any(
        callable(given) or isinstance(given, Mapping)
        for rule in policy.rules
        for given in (rule.cost, rule.overrides)
    )


def attributes_setting(
    setting: AttributesSetting, client: ClientAddress | None
) -> tuple[Attributes, Callable[[Any], Any] | None]:
    """The attributes by configuration, and the hook that adds to them if one was given."""
    if setting is None or isinstance(setting, Mapping):
        return Attributes(setting, client=client), None
    if isinstance(setting, Attributes):
        if client is not None:
            raise PolicyError("client is given twice; an Attributes object has its own")
        return setting, None
    if not callable(setting):
        raise PolicyError(f"attributes is {setting!r}; give a mapping, an Attributes object or a function")
    return Attributes(client=client), setting


def check_hook(name: str, hook: object) -> None:
    """Raise PolicyError unless `hook` is None or can be called."""
    if hook is not None and not callable(hook):
        raise PolicyError(f"{name} is {hook!r}; give a function")
