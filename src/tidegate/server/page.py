"""The page at `/`: the policy in words, and a form to try it, as one HTML document that loads nothing.

The words and the form's fields are written here, from the rules in force; style and script are constant,
and stand in the document with their hashes in the Content-Security-Policy: whatever text a rule, a key or
an attribute holds, nothing else can run, load or be sent elsewhere.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from tidegate.words.describe import RuleInWords, describe
from tidegate.words.homes import Home, embedded, on_network
from tidegate.words.typeset import number

if TYPE_CHECKING:
    from tidegate.core.policy import Policy
    from tidegate.core.rule import Rule
    from tidegate.stores.base import Store

SUGGESTIONS_MOST: Final = 50

_PREFILLED = {
    "key": "demo",
    "address": "203.0.113.7",
    "method": "GET",
    "path": "/",
    "host": "example.com",
    "route": "GET /",
}
"""What a field of an attribute that every request has begins with; the others begin absent."""


def _text(name: str) -> str:
    return files("tidegate.server").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


_STYLE, _SCRIPT = _text("page.css") + _text("panel.css"), _text("page.js")
_FRAME = _text("page.html")

PAGE_HEADERS: Final = [
    (
        "Content-Security-Policy",
        "; ".join(
            [
                "default-src 'none'",
                f"style-src {_hash(_STYLE)}",
                f"script-src {_hash(_SCRIPT)}",
                "connect-src 'self'",
                "img-src data:",
                "base-uri 'none'",
                "form-action 'none'",
                "frame-ancestors 'none'",
            ]
        ),
    ),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
]


def page(policy: Policy, store: Store, on_outage: str) -> bytes:
    """The document for this policy over this store. `on_outage` is what rules do that do not say.

    The address of a store is told to nobody: the page is there for everybody who can reach it.
    """
    if hasattr(store, "health"):
        return _page(policy, on_network(store.name, on_outage))
    return _page(policy, embedded(getattr(store, "max_keys", 0), getattr(store, "when_full", "")))


@lru_cache(maxsize=4)
def _page(policy: Policy, home: Home) -> bytes:
    count = len(policy)
    rules = "this rule" if count == 1 else f"every one of these {count:,} rules that speaks of it"
    lead = f"A request must pass {rules}. {home.where}"
    filled = {
        "lead": escape(lead),
        "rules": "\n".join(_rule(rule) for rule in describe(policy, home=home)),
        "fields": "\n".join(
            _field(place, *field) for place, field in enumerate(fields_of(policy).items(), 1)
        ),
        "style": _STYLE,
        "script": _SCRIPT,
    }
    # In one pass, so that a rule that is called "{script}" stays a name.
    return re.sub(r"\{(\w+)\}", lambda mark: filled[mark[1]], _FRAME).encode("utf-8", "replace")


def fields_of(policy: Policy) -> dict[str, list[str]]:
    """The attributes that the rules look at, in order of appearance, each with values that matter to them."""
    found: dict[str, list[str]] = {}
    for rule in policy:
        for name in rule.by:
            found.setdefault(name, [])
        for name, pattern in (rule.match or {}).items():
            found.setdefault(name, []).extend(_examples(pattern))
        if isinstance(rule.cost, Mapping):
            found.setdefault("route", []).extend(rule.cost)
        if isinstance(rule.overrides, Mapping):
            for value in rule.overrides:
                _suggest_override(found, rule, value)
    return {name: list(dict.fromkeys(values))[:SUGGESTIONS_MOST] for name, values in found.items()}


def _suggest_override(found: dict[str, list[str]], rule: Rule, value: Any) -> None:
    values = value if isinstance(value, tuple) else (value,)
    for name, one in zip(rule.by, values, strict=False):
        if isinstance(one, str):
            found[name].append(one)


def _examples(pattern: Any) -> list[str]:
    patterns = [pattern] if isinstance(pattern, str) or not hasattr(pattern, "__iter__") else list(pattern)
    return [str(one) for one in patterns if one is not None]


def _field(place: int, name: str, suggestions: list[str]) -> str:
    identity = f"attribute-{place}"
    begins = escape(_PREFILLED.get(name, ""))
    options = "".join(f'<option value="{escape(value)}">' for value in suggestions)
    listing = f'<datalist id="{identity}-values">{options}</datalist>' if options else ""
    uses = f' list="{identity}-values"' if options else ""
    return (
        f'<div class="field"><label for="{identity}">{escape(name)}</label>'
        f'<input id="{identity}" data-attribute="{escape(name)}" value="{begins}" placeholder="absent"'
        f' spellcheck="false" autocapitalize="none" maxlength="4096"{uses}>{listing}</div>'
    )


def _rule(rule: RuleInWords) -> str:
    mode = "" if rule.mode == "enforce" else f' <span class="mode">{escape(rule.mode)}</span>'
    warnings = "".join(f'<p class="warning">{escape(text)}</p>' for text in rule.warnings)
    facts = "".join(
        f"<dt>{escape(fact.about)}</dt><dd>{escape(fact.text)}</dd>" for fact in (*rule.facts, *rule.load)
    )
    return (
        f'<article class="rule"><h3>{escape(rule.name)}{mode}</h3>'
        f'<p class="summary">{escape(rule.summary)}</p>{_figures(rule)}{warnings}'
        f'<details><summary>All that it promises</summary><dl class="facts">{facts}</dl></details></article>'
    )


def _figures(rule: RuleInWords) -> str:
    shown = rule.figures
    if shown is None:
        return ""
    pairs = [("at once", number(shown.burst)), ("sustained", shown.sustained)]
    pairs.append(("fresh again in", shown.fresh))
    pairs += [(f"most in {most.period}", number(most.admitted)) for most in shown.most]
    tiles = "".join(f"<div><dt>{escape(about)}</dt><dd>{escape(text)}</dd></div>" for about, text in pairs)
    return f'<dl class="figures">{tiles}</dl>'
