"""What a decision looks like as HTTP header fields.

Pure functions from a decision to `(name, value)` pairs. Every spelling that a draft of the RateLimit
fields has had stands in one table, `NAMES`, so that the next renaming is one line there.

What is said, whatever the spelling:

- quota: the whole tokens that may pass at one instant; window: the seconds in which they come back.
- remaining: whole tokens left under the binding rule, rounded down. A client may send that many now.
- reset, on an admission: the seconds until the limit is full again, left out when it is full. The
  drafts let the server name the next token instead, but a client that spreads `remaining` over
  `reset` would then fire a whole burst into the first second.
- reset, on a refusal: the seconds until this very request can pass. Retry-After carries the caller's
  place in line, which is never earlier, as the drafts ask ("Retry-After should not be earlier than t").
  In the forms up to draft 07 reset and Retry-After must name one instant, so there both are the place.
- A refusal that waiting cannot mend carries neither reset nor Retry-After.

The policy field lists every enforced limit that the request met, the binding one always among them;
the state field speaks of the binding one alone. The others were not charged by a refusal, and in an
admission they have more left than it has, so their numbers would only invite a client to add them up.
Shadow rules are not shown: nobody is held to them. A limit with a reserve (`core/outage.py`) is listed as
the whole, with what is left in the part that decided, which a client may count on. What was decided without
the store has no RateLimit fields at all, for nobody knows what is left; a refusal then carries Retry-After.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from math import ceil
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from tidegate.errors import PolicyError
from tidegate.units import US_PER_S, header_seconds

if TYPE_CHECKING:
    from tidegate.core.decision import Brief, Decision
    from tidegate.core.limits import Limit

Draft: TypeAlias = Literal["draft-10", "draft-07", "draft-06", "draft-03", "off"]
Legacy: TypeAlias = Literal["off", "seconds", "date"]
Pairs: TypeAlias = list[tuple[str, str]]
Writer: TypeAlias = Callable[["Decision"], Pairs]
Form: TypeAlias = Callable[["Decision", "Brief"], Pairs]

RETRY_AFTER = "Retry-After"
EXPOSE = "Access-Control-Expose-Headers"
POLICIES_MAX = 16  # a header block has room for so many; the binding one is always shown
INTEGER_MAX = 999_999_999_999_999  # the largest integer of a structured field; no time comes near it
_CACHED_MAX = 1024


@dataclass(frozen=True)
class Names:
    """The words of one form. In a "triple" quota, remaining and reset are whole fields."""

    shape: Literal["items", "dictionary", "triple"]
    quota: str
    window: str
    remaining: str
    reset: str
    state: str = ""  # the field of the binding limit; "" in a triple
    policy: str = ""  # the field that lists the limits; "" if they follow the quota or are not listed
    listed: bool = True


NAMES: dict[str, Names] = {
    "draft-10": Names("items", "q", "w", "r", "t", state="RateLimit", policy="RateLimit-Policy"),
    "draft-07": Names(
        "dictionary", "limit", "w", "remaining", "reset", state="RateLimit", policy="RateLimit-Policy"
    ),
    "draft-06": Names(
        "triple", "RateLimit-Limit", "w", "RateLimit-Remaining", "RateLimit-Reset", policy="RateLimit-Policy"
    ),
    "draft-03": Names("triple", "X-RateLimit-Limit", "w", "X-RateLimit-Remaining", "X-RateLimit-Reset"),
    "legacy": Names(
        "triple", "X-RateLimit-Limit", "w", "X-RateLimit-Remaining", "X-RateLimit-Reset", listed=False
    ),
}


def fields(decision: Decision, draft: Draft = "draft-10", legacy: Legacy = "off") -> Pairs:
    """The header fields that tell a client about `decision`; see `field_writer`."""
    return field_writer(draft, legacy)(decision)


def field_writer(
    draft: Draft = "draft-10", legacy: Legacy = "off", *, wall_clock_s: Callable[[], float] = time.time
) -> Writer:
    """A function from a decision to its fields, with what never changes worked out once.

    `draft` chooses the form of the RateLimit fields; "off" leaves only Retry-After. `legacy` adds
    `X-RateLimit-Limit`, `-Remaining` and `-Reset`, the last as "seconds" from now or as a "date"
    (seconds since 1970 by `wall_clock_s`, rounded up, so never in the past). A decision without a
    limit (no rule matched, bypass, deny) has no RateLimit fields.
    Raises PolicyError for an unknown form, and for two forms that would write the same fields.
    """
    if draft not in get_args(Draft):
        raise PolicyError(f"fields is {draft!r}; choose one of {_spoken(get_args(Draft))}")
    if legacy not in get_args(Legacy):
        raise PolicyError(f"legacy is {legacy!r}; choose one of {_spoken(get_args(Legacy))}")
    if draft == "draft-03" and legacy != "off":
        raise PolicyError("draft-03 writes X-RateLimit-* itself; leave legacy off, or choose another draft")
    parts: list[Form] = []
    if draft != "off":
        parts.append(_form(NAMES[draft]))
    if legacy != "off":
        parts.append(_form(NAMES["legacy"], _as_date(wall_clock_s) if legacy == "date" else None))
    if len(parts) == 1:
        return _with_retry_after(parts[0])
    return _with_retry_after(
        lambda decision, binding: [pair for part in parts for pair in part(decision, binding)]
    )


def field_names(draft: Draft = "draft-10", legacy: Legacy = "off") -> tuple[str, ...]:
    """The names of all fields that `field_writer` with the same arguments may write."""
    chosen = [NAMES[form] for form in (draft, "legacy" if legacy != "off" else "off") if form != "off"]
    written = [RETRY_AFTER]
    for names in chosen:
        own = (names.quota, names.remaining, names.reset) if names.shape == "triple" else (names.state,)
        written.extend(name for name in (*own, names.policy) if name)
    return tuple(written)


def policy_name(rule: str) -> str:
    """The name of a rule as it stands in fields and problem bodies: printable ASCII.

    A structured field holds no other text, so every other character is written as percent and its
    UTF-8 bytes in hexadecimal, and a percent sign too: two names never look the same.
    """
    if rule.isascii() and rule.isprintable() and "%" not in rule:
        return rule
    return "".join(
        character if " " <= character <= "~" and character != "%" else _percent(character)
        for character in rule
    )


def merge_fields(
    theirs: Sequence[tuple[str, str]], ours: Iterable[tuple[str, str]], *, now_s: float
) -> Pairs:
    """The application's fields with ours added, where it may have set some of the same.

    One Retry-After goes out, the later one, so that neither side's is broken; a date is compared with
    `now_s` (seconds since 1970). Lists (draft 10, and the policy field) are continued on a line of
    their own. For any other field the application's word stands.
    """
    taken = {name.lower() for name, _ in theirs}
    merged = list(theirs)
    for name, value in ours:
        if name.lower() not in taken or _goes_on(name, value):
            merged.append((name, value))
        elif name == RETRY_AFTER:
            merged = _one_retry_after(merged, int(value), now_s)
    return merged


def retry_after_s(value: str, *, now_s: float) -> int | None:
    """What a Retry-After says, as whole seconds from `now_s`, rounded up; None if it says nothing."""
    text = value.strip()
    if text.isascii() and text.isdigit():
        return min(int(text[:16]), INTEGER_MAX)
    try:
        return max(0, ceil(parsedate_to_datetime(text).timestamp() - now_s))
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


_ITEMS = (NAMES["draft-10"].state, NAMES["draft-10"].policy)


def _goes_on(name: str, value: str) -> bool:
    """Whether the field is a list that may go on in a second line (draft 07's dictionary may not)."""
    return name == EXPOSE or (name in _ITEMS and (value[:1] == '"' or value[:1].isdigit()))


def _one_retry_after(pairs: Pairs, ours_s: int, now_s: float) -> Pairs:
    """`pairs` with a single Retry-After that is the latest of theirs and ours."""
    latest, latest_s = str(ours_s), ours_s
    rest: Pairs = []
    for name, value in pairs:
        if name.lower() != "retry-after":
            rest.append((name, value))
            continue
        said_s = retry_after_s(value, now_s=now_s)
        if said_s is not None and said_s >= latest_s:
            latest, latest_s = value, said_s
    return [*rest, (RETRY_AFTER, latest)]


def _with_retry_after(form: Form) -> Writer:
    def write(decision: Decision) -> Pairs:
        brief = decision.brief
        pairs = form(decision, brief) if brief is not None else []
        if not decision.allowed:
            hint_s = decision.retry_hint_s
            if hint_s is not None:
                pairs.append((RETRY_AFTER, str(max(1, hint_s))))
        return pairs

    return write


def _form(names: Names, say: Callable[[int], str] | None = None) -> Form:
    """The writer of one form, from a decision and the outcome that binds; `say` writes a reset."""
    say = _as_seconds if say is None else say
    listing = _policies(names)
    quota, remaining, reset = names.quota, names.remaining, names.reset
    state, policy = names.state, names.policy

    def items(decision: Decision, brief: Brief) -> Pairs:
        policies, start = listing(decision, brief)
        text = f"{start}{_bounded(brief.remaining)}"
        if brief.after_us:
            text = f"{text};{reset}={header_seconds(brief.after_us)}"
        return [(policy, policies), (state, text)]

    def dictionary(decision: Decision, brief: Brief) -> Pairs:
        reset_us = _reset_us(decision, brief)
        text = f"{quota}={_bounded(brief.limit.whole.quota)}, {remaining}={_bounded(brief.remaining)}"
        if reset_us is not None:
            text += f", {reset}={say(reset_us)}"
        return [(policy, listing(decision, brief)[0]), (state, text)]

    def triple(decision: Decision, brief: Brief) -> Pairs:
        reset_us = _reset_us(decision, brief)
        allowance = str(_bounded(brief.limit.whole.quota))
        pairs = [(quota, allowance), (remaining, str(_bounded(brief.remaining)))]
        if reset_us is not None:
            pairs.append((reset, say(reset_us)))
        if names.listed:
            if policy:
                pairs.append((policy, listing(decision, brief)[0]))
            else:
                pairs[0] = (quota, f"{allowance}, {listing(decision, brief)[0]}")
        return pairs

    return {"items": items, "dictionary": dictionary, "triple": triple}[names.shape]


def _reset_us(decision: Decision, brief: Brief) -> int | None:
    """The reset of the older forms: on a refusal the instant that Retry-After names."""
    if decision.allowed:
        return brief.after_us
    hint_s = decision.retry_hint_s
    return None if hint_s is None else max(1, hint_s) * US_PER_S


def _as_seconds(after_us: int) -> str:
    return str(header_seconds(after_us))


def _as_date(wall_clock_s: Callable[[], float]) -> Callable[[int], str]:
    """Seconds since 1970, rounded up once: in whole microseconds, so that a whole second stays one."""
    return lambda after_us: str(header_seconds(round(wall_clock_s() * US_PER_S) + after_us))


def _policies(names: Names) -> Callable[[Decision, Brief], tuple[str, str]]:
    """A function from a decision to the list of its limits and the start of the binding one's item.

    The texts are made once and kept by the identity of the limit (which the entry keeps alive), since
    hashing a limit costs more than writing it. Limits made anew for every call only empty the store often.
    """
    kept: dict[tuple[str, int], tuple[str, str, Limit]] = {}

    def texts(rule: str, limit: Limit) -> tuple[str, str, Limit]:
        entry = kept.get((rule, id(limit)))
        if entry is None:
            if len(kept) >= _CACHED_MAX:
                kept.clear()
            start = f'"{_escaped(rule)}";{names.remaining}='
            entry = kept[rule, id(limit)] = (_policy_item(names, rule, limit), start, limit)
        return entry

    def listing(decision: Decision, brief: Brief) -> tuple[str, str]:
        item, start, _ = texts(brief.rule, brief.limit)
        if decision.limits_asked == 1:
            return item, start
        shown = [(o.rule, o.limit) for o in decision.outcomes if o.mode == "enforce" and not o.outage]
        if len(shown) > POLICIES_MAX:
            others = [rule_and_limit for rule_and_limit in shown if rule_and_limit[0] != brief.rule]
            shown = [(brief.rule, brief.limit), *others][:POLICIES_MAX]
        return ", ".join([texts(rule, limit)[0] for rule, limit in shown]), start

    return listing


def _policy_item(names: Names, rule: str, limit: Limit) -> str:
    limit = limit.whole
    quota = _bounded(limit.quota)
    item = f'"{_escaped(rule)}";{names.quota}={quota}' if names.shape == "items" else str(quota)
    window_us = limit.quota_window_us
    return (
        item if window_us is None else f"{item};{names.window}={_bounded(max(1, header_seconds(window_us)))}"
    )


def _escaped(rule: str) -> str:
    return policy_name(rule).replace("\\", "\\\\").replace('"', '\\"')


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))


def _bounded(number: int) -> int:
    return min(number, INTEGER_MAX)


def _spoken(words: Sequence[str]) -> str:
    return ", ".join(f'"{word}"' for word in words)
