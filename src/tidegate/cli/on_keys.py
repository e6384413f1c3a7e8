"""The commands about the keys that a store on the network holds: keys list, show and reset."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from tidegate.cli.key_words import key_in, pasted, text_in, text_word, words_of
from tidegate.cli.subject import Subject, opened, rules_of
from tidegate.cli.terminal import complain, say, say_json, width
from tidegate.core.keys import Key, key_of, values_of
from tidegate.core.level import Level
from tidegate.errors import InvalidKey, StoreError
from tidegate.nearest import nearest
from tidegate.stores import inspection
from tidegate.stores.inspection import KeyHeld
from tidegate.units import MILLI, US_PER_S, quoted
from tidegate.words.phrases import pace_words
from tidegate.words.typeset import labelled, listed, number, paragraph, span, table

if TYPE_CHECKING:
    from tidegate.core.rule import Rule

_KEY_SHOWN = 60
_BITS_IN_JSON = 4_096
"""Python does not write thousands of decimal digits."""
_LABELS = 10
"""What stands before a key in a line of its own."""
_PAGE = 500
_RULES_SHOWN = 10
_WITHIN_US = 5_000_000
_IN_VAIN_MOST = 10_000
"""So many keys that do not count are looked at, beside those that do, before it is said where to go on."""
_EMPTY_PAGE = 50
"""What a page without keys stands for: the store has made as many steps for it."""


def keys_list(arguments: Namespace) -> int:
    """List keys with what is used of each, page after page, at most so many; 1 if there is no such rule."""
    rule = None if arguments.rule is None else text_in(arguments.rule)
    with opened(arguments) as subject:
        found, cursor = _held(subject.store, rule, arguments)
        others = None
        if rule is not None and not found and cursor is None:
            others = _unknown(subject, rule)
    if arguments.json:
        say_json({"keys": [_told(held) for held in found], "cursor": cursor})
    elif found:
        header = ("rule", "key", "used", "fresh in", "kept for")
        say("\n".join(table(header, [_row(held) for held in found], width(), left=2)))
        if any(_cut(held.key) != _shown(held.key) for held in found):
            complain("keys that end with ... are longer; --json has them whole, as the words of `keys show`")
    elif others is None:
        some = "" if cursor is None else " among those looked at so far"
        say("\n".join(paragraph(f"no keys{some}: {_unlisted(subject, rule)}", width())))
    if cursor is not None and not arguments.json:
        complain(f"there {'are' if found else 'may be'} more; go on with --cursor {cursor}")
    if others is not None:
        complain(others)
    return 0 if others is None else 1


def keys_show(arguments: Namespace) -> int:
    """Show what is held of one key; 1 if nothing is."""
    rule, key, rules = _named(arguments, is_one=True)
    others = since_us = None
    with opened(arguments, rules) as subject:
        held = inspection.show_key(subject.store, rule, key)
        if held is None:
            others = _unknown(subject, rule)
            since_us = inspection.strict_since_us(subject.store, rule, key)
    if arguments.json:
        say_json(None if held is None else _told(held))
    elif held is not None:
        across = max(width(), _LABELS + len(_shown(key)))  # a key that is broken could not be pasted
        say("\n".join(labelled(_lines(held), across)))
    elif others is None:
        counts = _as_good_as(since_us, is_strict=subject.is_strict(rule))
        say(f"nothing is held of {_shown(key)} in {_rule(rule)}: {counts}")
    if others is not None:
        complain(others)
    return 1 if held is None else 0


def keys_reset(arguments: Namespace) -> int:
    """Make one key fresh, or all keys of a rule that begin with a prefix; 1 if there is no such rule."""
    if bool(arguments.values) == (arguments.prefix is not None or arguments.all):
        raise StoreError("say what to reset: the values of one key, or --prefix TEXT, or --all of the rule")
    rule, key, rules = _named(arguments, is_one=bool(arguments.values))
    with opened(arguments, rules) as subject:
        reset = _reset_one(subject, rule, key) if arguments.values else _reset_many(subject, rule, arguments)
    if arguments.json:
        say_json({"reset": reset.keys})
    elif reset.is_known:
        say(reset.says)
    if not reset.is_known:
        complain(f"nothing was reset: {reset.says}")
    return 0 if reset.is_known else 1


class _Reset(NamedTuple):
    """How many keys were made fresh, what is said of it, and whether there is such a rule."""

    keys: int
    says: str
    is_known: bool = True


def _reset_one(subject: Subject, rule: str, key: Key) -> _Reset:
    store, named = subject.store, f"{_shown(key)} in {_rule(rule)}"
    is_held = inspection.show_key(store, rule, key) is not None
    if not is_held and (others := _unknown(subject, rule)) is not None:
        return _Reset(0, others, is_known=False)  # no note is left of a rule that there is not
    before_us = inspection.strict_since_us(store, rule, key)
    store.forget([(rule, key)], deadline_us=_WITHIN_US)
    if is_held:
        return _Reset(1, f"1 key of {_rule(rule)} reset")
    if before_us == 0:
        return _Reset(0, f"nothing was held of {named}: it was fresh, and is")
    since_us, is_strict = inspection.strict_since_us(store, rule, key), subject.is_strict(rule)
    if is_strict is False or since_us != 0:
        return _Reset(0, f"nothing was held of {named}: {_as_good_as(since_us, is_strict=is_strict)}")
    strictly = (
        "its rule is strict, and now it is full" if is_strict else "now it is full, for a strict rule too"
    )
    return _Reset(0, f"nothing was held of {named}: {strictly}")


def _reset_many(subject: Subject, rule: str, arguments: Namespace) -> _Reset:
    count = inspection.reset_keys(subject.store, rule, arguments.prefix or "")
    if count:
        is_one = count == 1
        return _Reset(
            count,
            f"{count:,} key{'' if is_one else 's'} of {_rule(rule)} {'is' if is_one else 'are'} fresh now",
        )
    others = _unknown(subject, rule)
    if others is not None:
        return _Reset(0, others, is_known=False)
    those = f" that begins with {quoted(arguments.prefix)}" if arguments.prefix else ""
    return _Reset(0, f"no key of {_rule(rule)}{those} is held: nothing was reset")


def _held(store: Any, rule: str | None, arguments: Namespace) -> tuple[list[KeyHeld], str | None]:
    """The keys that count, at most as many as wanted, and where to go on; a bounded number is looked at."""
    seen: set[tuple[str, Key]] = set()
    found: list[KeyHeld] = []
    cursor: str | None = arguments.cursor
    in_vain = 0
    while True:
        most = min(_PAGE, arguments.most - len(found))
        page = inspection.list_keys(store, rule, arguments.prefix, cursor=cursor, most=most)
        fresh = [place for place in dict.fromkeys(page.keys) if place not in seen]
        seen.update(fresh)
        held = [one for place in fresh if (one := inspection.show_key(store, *place)) is not None]
        found += held
        cursor = page.cursor
        in_vain += len(page.keys) - len(held) or (0 if held else _EMPTY_PAGE)
        if cursor is None or len(found) >= arguments.most or in_vain >= _IN_VAIN_MOST:
            return found, cursor


def _named(arguments: Namespace, *, is_one: bool) -> tuple[str, Key, Mapping[str, Rule] | None]:
    """The rule, the key if it is about one, and the rules of the file. StoreError for values in vain."""
    rule, key, rules = text_in(arguments.rule), key_in(arguments.values), rules_of(arguments)
    if is_one and rules and rule in rules:
        _check_values(rules[rule], arguments.values)
    return rule, key, rules


def _check_values(rule: Rule, words: Sequence[str]) -> None:
    """Raise StoreError unless these are as many values as the rule's keys have."""
    count, wanted = (0 if list(words) == ["all:"] else len(words)), len(rule.by)
    if count == wanted or (count == 1 and words[0].startswith("raw:")):
        return
    values = f"{wanted} value{'' if wanted == 1 else 's'}, {listed(list(rule.by))}"
    values = values if wanted else "no values; all share one, all:"
    given = f"{count or 'none'} {'is' if count < 2 else 'are'} given"
    raise StoreError(f"a key of the rule {_rule(rule.name)} has {values}; {given}")


def _as_good_as(since_us: int | None, *, is_strict: bool | None) -> str:
    """What it means that nothing is held of a key. `since_us` is that of `inspection.strict_since_us`."""
    if since_us == 0 or is_strict is False:
        return "it is as good as never used"
    counts = "it begins empty, at its first request"
    if since_us is not None:
        at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(since_us // US_PER_S))
        counts = f"it counts as used up at {at}, and has been filling since"
    if is_strict:
        return f"the rule is strict, so {counts}"
    return f"it is as good as never used, unless its rule is strict: then {counts}"


def _unlisted(subject: Subject, rule: str | None) -> str:
    """What it means that keys are not listed."""
    never = "whatever is not listed is as good as never used"
    tells = "(`keys show` tells of one key)"
    if subject.rules is None:
        return f"{never}; of a strict rule it may begin empty {tells}"
    strict = [name for name in subject.rules if subject.is_strict(name) and rule in {None, name}]
    if not strict:
        return never
    return f"{never}, but of {listed(list(map(_rule, strict)))} it may begin empty: strict {tells}"


def _unknown(subject: Subject, rule: str) -> str | None:
    """That there is no such rule, and which may be meant; None if the file or the store knows it."""
    configured = subject.rules or {}
    if rule in configured:
        return None
    held = inspection.rules_held(subject.store, rule)
    if rule in held:
        return None
    known = sorted({*configured, *held})
    close = nearest(rule, known)
    some = [_rule(name) for name in known[:_RULES_SHOWN]]
    more = len(known) - len(some)
    others = listed(some + [f"{more:,} more"] * bool(more))
    way_out = f"the rules that are known are {others}" if others else "it holds no keys at all"
    way_out = f"did you mean {_rule(close)}?" if close else way_out
    files = " (--config FILE knows the rules of a file, held or not)" if subject.rules is None else ""
    return f"the store holds no key of a rule {_rule(rule)}; {way_out}{files}"


def _row(held: KeyHeld) -> tuple[str, str, str, str, str]:
    used, fresh = "cannot be read" if held.foreign is None else f"not tidegate's: a {held.foreign}", ""
    if held.state is not None:
        law = held.state.law
        state = law.advance(held.state, held.now_us)
        used = f"{_tokens(law.used(state))} of {_tokens(law.capacity)}"
        fresh = _never(law.reset_after_us(state, held.now_us))
    return _rule(held.rule), _cut(held.key), used, fresh, _time(held.forgotten_after_us)


def _lines(held: KeyHeld) -> list[tuple[str, str]]:
    lines = [("rule", _rule(held.rule)), ("key", _shown(held.key))]
    if held.foreign is not None:
        means = "Requests of this key fail until it is gone; a reset removes it"
        lines.append(("state", f"not tidegate's: a {held.foreign}. {means}"))
    elif held.state is None:
        lines.append(("state", "cannot be read; the next request counts it as used up, and writes it anew"))
    else:
        law = held.state.law
        state = law.advance(held.state, held.now_us)
        lines += [
            ("limit", _limit(law)),
            ("used", f"{_tokens(law.used(state))} of {_tokens(law.capacity)}"),
            ("left", _tokens(law.left(state) // law.grain)),
            ("touched", f"{span(max(0, held.now_us - held.state.at_us))} ago, by the store's clock"),
            ("fresh in", _never(law.reset_after_us(state, held.now_us))),
        ]
    return [*lines, ("kept for", _time(held.forgotten_after_us))]


def _limit(law: Any) -> str:
    if isinstance(law, Level):
        drained = f"drained at {pace_words(Fraction(law.p, law.q))}" if law.p else "never drained"
        return f"a level: capacity {_tokens(law.capacity)}, {drained}"
    kind = {"Fixed": "a fixed window", "Sliding": "two weighed windows", "Log": "a sliding log"}
    return f"{kind.get(type(law).__name__, 'a limit')}: at most {_tokens(law.capacity)}"


def _told(held: KeyHeld) -> dict[str, Any]:
    told: dict[str, Any] = {"rule": held.rule, "key": _plain(held.key), "capacity": None, "used": None}
    told |= {"words": words_of(held.key), "foreign": held.foreign}
    told |= {"fresh_after_us": None, "kept_for_us": held.forgotten_after_us}
    if held.state is not None:
        law = held.state.law
        state = law.advance(held.state, held.now_us)
        told["capacity"], told["used"] = law.capacity / MILLI, law.used(state) / MILLI
        told["fresh_after_us"] = law.reset_after_us(state, held.now_us)
    return told


def _plain(key: Key) -> Any:
    """The key as JSON: a text, or a list of the values it is made of. What JSON does not know is a word."""
    if isinstance(key, str):
        return key
    try:
        values = values_of(key)
    except InvalidKey:
        return words_of(key)
    return [value if _is_plain(value) else " ".join(words_of(key_of((value,)))) for value in values]


def _is_plain(value: object) -> bool:
    if isinstance(value, int):
        return value.bit_length() <= _BITS_IN_JSON
    return value is None or isinstance(value, str)


def _shown(key: Key) -> str:
    """The key as `keys show` takes it."""
    return pasted(words_of(key))


def _cut(key: Key) -> str:
    """The same, not too long for a line."""
    text, most = _shown(key), min(_KEY_SHOWN, width() - _LABELS)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _rule(name: str) -> str:
    """The rule as a command takes it."""
    return pasted([text_word(name)])


def _tokens(thousandths: int) -> str:
    return number(Fraction(thousandths, MILLI))


def _time(us: int | None) -> str:
    return "ever" if us is None else span(us)


def _never(us: int | None) -> str:
    return "never" if us is None else span(us)
