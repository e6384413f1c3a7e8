"""The commands for operators of a store on the network: keys list, show and reset; store init and check."""

from __future__ import annotations

from argparse import Namespace
from contextlib import closing
from fractions import Fraction
from typing import Any

from tidegate.cli.key_words import key_in, pasted, text_in, text_word, words_of
from tidegate.cli.terminal import complain, say, say_json, width
from tidegate.core.keys import Key, key_of, values_of
from tidegate.core.level import Level
from tidegate.errors import InvalidKey, StoreError
from tidegate.nearest import nearest
from tidegate.stores import inspection
from tidegate.stores.inspection import KeyHeld
from tidegate.stores.opening import open_store
from tidegate.units import MILLI
from tidegate.words.phrases import pace_words
from tidegate.words.typeset import labelled, listed, number, paragraph, span, table

_KEY_SHOWN = 60
_BITS_IN_JSON = 4_096
"""Python does not write thousands of decimal digits."""
_LABELS = 10
"""What stands before a key in a line of its own."""
_PAGE = 500
_RULES_SHOWN = 10
_MARKS = {"ok": "ok", "warning": "WARNING", "error": "ERROR"}


def keys_list(arguments: Namespace) -> int:
    """List keys with what is used of each, a page after another, at most so many."""
    rule = None if arguments.rule is None else text_in(arguments.rule)
    with closing(open_store(arguments.store)) as store:
        names: dict[tuple[str, Key], None] = {}
        cursor: str | None = arguments.cursor
        while True:
            most = min(_PAGE, arguments.most - len(names))
            page = inspection.list_keys(store, rule, arguments.prefix, cursor=cursor, most=most)
            names |= dict.fromkeys(page.keys)
            cursor = page.cursor
            if cursor is None or len(names) >= arguments.most:
                break
        found = [held for rule, key in names if (held := inspection.show_key(store, rule, key)) is not None]
    if arguments.json:
        say_json({"keys": [_told(held) for held in found], "cursor": cursor})
        return 0
    if not found:
        say("no keys: whatever is not listed is as good as never used")
        return 0
    header = ("rule", "key", "used", "fresh in", "kept for")
    say("\n".join(table(header, [_row(held) for held in found], width(), left=2)))
    if any(_cut(held.key) != _shown(held.key) for held in found):
        complain("keys that end with ... are longer; --json has them whole, as the words of `keys show`")
    if cursor is not None:
        complain(f"there are more; go on with --cursor {cursor}")
    return 0


def keys_show(arguments: Namespace) -> int:
    """Show what is held of one key; 1 if nothing is."""
    rule, key = text_in(arguments.rule), key_in(arguments.values)
    with closing(open_store(arguments.store)) as store:
        held = inspection.show_key(store, rule, key)
    if arguments.json:
        say_json(None if held is None else _told(held))
    elif held is None:
        say(f"nothing is held of {_shown(key)} in {_rule(rule)}: it is as good as never used")
    else:
        across = max(width(), _LABELS + len(_shown(key)))  # a key that is broken could not be pasted
        say("\n".join(labelled(_lines(held), across)))
    return 1 if held is None else 0


def keys_reset(arguments: Namespace) -> int:
    """Make one key fresh, or all keys of a rule that begin with a prefix."""
    if bool(arguments.values) == (arguments.prefix is not None or arguments.all):
        raise StoreError("say what to reset: the values of one key, or --prefix TEXT, or --all of the rule")
    rule, key = text_in(arguments.rule), key_in(arguments.values)
    configured = _rules_in(arguments.config)
    with closing(open_store(arguments.store)) as store:
        if arguments.values:
            count = int(inspection.show_key(store, rule, key) is not None)
            store.forget([(rule, key)])
        else:
            count = inspection.reset_keys(store, rule, arguments.prefix or "")
        held = inspection.rules_held(store, rule) if not count and rule not in configured else ()
    is_known = bool(count) or rule in configured or rule in held
    if arguments.json:
        say_json({"reset": count})
    elif is_known:
        say(f"{count:,} key{'' if count == 1 else 's'} of {_rule(rule)} reset")
    if not is_known:
        complain(_no_such_rule(rule, sorted({*configured, *held})))
    return 0 if is_known else 1


def store_init(arguments: Namespace) -> int:
    """Prepare a server: its schema, and the note that nothing has been lost yet."""
    with closing(open_store(arguments.url)) as store:
        said = inspection.init(store, logged=arguments.logged, full=arguments.full)
    say("\n".join(paragraph(said, width())))
    return 0


def store_check(arguments: Namespace) -> int:
    """Tell whether a server can be used, and what it may lose; 1 if something is wrong."""
    with closing(open_store(arguments.url)) as store:
        findings = inspection.check(store)
    is_usable = all(finding.grade != "error" for finding in findings)
    if arguments.json:
        names = ("where", "what", "grade", "value", "says")
        told = [{name: getattr(finding, name) for name in names} for finding in findings]
        say_json({"usable": is_usable, "findings": told})
        return 0 if is_usable else 1
    lines: list[str] = []
    for where in dict.fromkeys(finding.where for finding in findings):
        rows = [
            (f"{_MARKS[finding.grade]:<7} {finding.what}", _found(finding))
            for finding in findings
            if finding.where == where
        ]
        lines += [*([""] if lines else []), where, *labelled(rows, width(), indent="  ")]
    say("\n".join(lines))
    return 0 if is_usable else 1


def _found(finding: inspection.Finding) -> str:
    """What is said of one thing; its name is there already, and is not said twice."""
    return finding.says if finding.value == finding.what else f"{finding.value}: {finding.says}"


def _rules_in(path: str | None) -> list[str]:
    """The rules of a policy's file, if one is named."""
    if path is None:
        return []
    from tidegate.config import load  # here, for it needs more than Python alone

    return [rule.name for rule in load(path).policy]


def _no_such_rule(rule: str, known: list[str]) -> str:
    close = nearest(rule, known)
    some = [_rule(name) for name in known[:_RULES_SHOWN]]
    more = len(known) - len(some)
    others = listed(some + [f"{more:,} more"] * bool(more))
    way_out = f"the rules that are known are {others}" if others else "it holds no keys at all"
    way_out = f"did you mean {_rule(close)}?" if close else way_out
    return f"nothing was reset: the store holds no key of a rule {_rule(rule)}; {way_out}"


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
