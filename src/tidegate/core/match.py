"""Which requests a rule speaks of, and what each costs: patterns over the request's attributes.

A pattern is a text (equal), a text that ends in `*` (prefix), None (the attribute is absent), or a
collection of these (any of them). The attribute `route` is special: its patterns are templates such as
"POST /users/{id}" or "/files/{path:path}", and they match the request's route, or its method and path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from tidegate.core.keys import present
from tidegate.errors import PolicyError

Attributes: TypeAlias = Mapping[str, Any]
Pattern: TypeAlias = str | int | Collection[str | int | None] | None
Test: TypeAlias = Callable[[Attributes], bool]

_METHOD = re.compile(r"([A-Z]+) +(.*)", re.DOTALL)
_METHOD_MISWRITTEN = re.compile(r"([A-Za-z]+) +[/*]")
_METHOD_GLUED = re.compile(r"(GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS|TRACE|CONNECT)/")
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)(:path)?\}")


def matcher(match: Mapping[str, Pattern], rule: str) -> Test:
    """A function that tells whether all patterns match a request. Raises PolicyError for a bad pattern."""
    tests = [_attribute_test(name, pattern, rule) for name, pattern in match.items()]
    if len(tests) == 1:
        return tests[0]
    return lambda attributes: all(test(attributes) for test in tests)


def route_table(routes: Collection[str], rule: str) -> Callable[[Attributes], str | None]:
    """A function that finds the route of a request among these: an equal one first, then in their order."""
    exact = frozenset(routes)
    templates = [(route, _route_test(route, rule)) for route in routes]

    def find(attributes: Attributes) -> str | None:
        named = attributes.get("route")
        if isinstance(named, str) and named in exact:
            return named
        return next((route for route, test in templates if test(attributes)), None)

    return find


def _attribute_test(name: str, pattern: Pattern, rule: str) -> Test:
    if not isinstance(name, str) or not name:
        raise PolicyError(f"rule {rule!r}: match names the attribute {name!r}; an attribute is a text")
    several = isinstance(pattern, Collection) and not isinstance(pattern, str | bytes | Mapping)
    patterns = list(pattern) if several else [pattern]  # type: ignore[arg-type]  # narrowed by `several`
    if not patterns:
        raise PolicyError(
            f"rule {rule!r}: match for {name!r} is empty, so the rule could never apply; leave it out"
        )
    for one in patterns:
        if isinstance(one, bool) or not (one is None or isinstance(one, str | int)):
            raise PolicyError(
                f"rule {rule!r}: match for {name!r} is {one!r}; write a text, a number, None, or a list"
            )
    if name == "method":
        for one in patterns:
            if isinstance(one, str) and one != one.upper():
                raise _in_capitals(rule, name, one, one)
    if name == "route":
        tests = [_route_test(one, rule) for one in patterns]
        return tests[0] if len(tests) == 1 else lambda attributes: any(test(attributes) for test in tests)
    equal = frozenset(None if one is None else str(one) for one in patterns if not _is_prefix(one))
    prefixes = tuple(one[:-1] for one in patterns if isinstance(one, str) and _is_prefix(one))

    def test(attributes: Attributes) -> bool:
        value = present(attributes.get(name))
        if type(value) is int:  # a number matches however it was written
            value = str(value)
        if isinstance(value, str):
            return value in equal or (bool(prefixes) and value.startswith(prefixes))
        return value is None and None in equal

    return test


def _in_capitals(rule: str, name: str, given: str, method: str) -> PolicyError:
    return PolicyError(
        f"rule {rule!r}: {name} is {given!r}; methods are written in capitals: {method.upper()!r}"
    )


def _is_prefix(pattern: object) -> bool:
    return isinstance(pattern, str) and pattern.endswith("*")


def _route_test(route: object, rule: str) -> Test:
    if not isinstance(route, str) or not route.strip():
        raise PolicyError(
            f'rule {rule!r}: route is {route!r}; write it like "POST /users/{{id}}" or "/files/*"'
        )
    method, path = _split(route)
    if method is None and (miswritten := _METHOD_MISWRITTEN.match(route)):
        raise _in_capitals(rule, "route", route, miswritten[1])
    if method is None and (glued := _METHOD_GLUED.match(route)):
        raise PolicyError(
            f"rule {rule!r}: route is {route!r}; write a space: {glued[1]} {route[len(glued[1]) :]}"
        )
    if not path.startswith(("/", "*")):
        return lambda attributes: attributes.get("route") == route  # a name that the caller's framework gives
    pattern = _compiled(path, rule)

    def test(attributes: Attributes) -> bool:
        named = attributes.get("route")
        if isinstance(named, str):
            if named == route:
                return True
            its_method, its_path = _split(named)
        else:
            its_method, its_path = None, None
        its_method = its_method or _text(attributes.get("method"))
        its_path = its_path if its_path is not None else _text(attributes.get("path"))
        if method is not None and its_method != method:
            return False
        return its_path is not None and pattern.fullmatch(its_path) is not None

    return test


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


@lru_cache(maxsize=1024)
def _split(route: str) -> tuple[str | None, str]:
    """The method and path of a route such as "POST /users"; one without a method speaks of all."""
    match = _METHOD.fullmatch(route)
    return (match[1], match[2]) if match else (None, route)


def _compiled(path: str, rule: str) -> re.Pattern[str]:
    body = path.removesuffix("*")
    if set("{}") & set(_PLACEHOLDER.sub("", body)):
        raise PolicyError(
            f"rule {rule!r}: route {path!r} has a brace that is no placeholder; write {{id}} or {{rest:path}}"
        )
    if body.count(":path}") > 1:
        raise PolicyError(
            f"rule {rule!r}: route {path!r} has several {{...:path}}; one is enough, more take long to match"
        )
    pattern, end = "", 0
    for placeholder in _PLACEHOLDER.finditer(body):
        pattern += re.escape(body[end : placeholder.start()]) + (".+" if placeholder[2] else "[^/]+")
        end = placeholder.end()
    return re.compile(pattern + re.escape(body[end:]) + (".*" if path != body else ""), re.DOTALL)
