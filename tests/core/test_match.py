"""Which requests a rule speaks of: equality, prefixes, sets, absence, and templates of routes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate import Rule, TokenBucket
from tidegate.core.match import matcher, route_table
from tidegate.errors import PolicyError


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("free", ["free"], ["Free", "free ", "freedom", "", None, b"free", 5, True]),
        ("api*", ["api", "api/v1", "apiary"], ["ap", "API", " api", None, 5]),
        ("*", ["anything", " x ", "5"], [None, "", " ", b"x"]),
        (["GET", "HEAD"], ["GET", "HEAD"], ["POST", "get", None]),
        ({"GET", None}, ["GET", None, "", "  "], ["HEAD"]),
        (None, [None, "", "\t"], ["x", 0, False]),
        (["v1*", "v2"], ["v1", "v10", "v2"], ["v20", None]),
        (200, [200, "200"], [201, "2000", 200.0, True, None]),
        ("1", [1, "1"], [True, "01"]),
        ((), [], []),
    ],
)
def test_an_attribute(pattern, yes: list[object], no: list[object]):
    """A text is equal, one with a star a prefix, None an absent or blank value, a collection any of them."""
    if pattern == ():
        with pytest.raises(
            PolicyError, match="rule 'r': match for 'plan' is empty, so the rule could never apply"
        ):
            matcher({"plan": pattern}, "r")
        return
    test = matcher({"plan": pattern}, "r")

    assert [value for value in yes if not test({"plan": value})] == []
    assert [value for value in no if test({"plan": value})] == []
    assert test({}) == test({"plan": None})


@pytest.mark.parametrize(
    ("template", "yes", "no"),
    [
        (
            "/users/{id}",
            ["/users/1", "/users/a.b", "/users/\u00e9"],
            ["/users/", "/users", "/users/1/", "/users/1/x", "x/users/1"],
        ),
        ("/users/{id}/posts", ["/users/1/posts"], ["/users//posts", "/users/1/2/posts", "/users/1/postsx"]),
        ("/files/{path:path}", ["/files/a", "/files/a/b/c"], ["/files/", "/files"]),
        ("/files/*", ["/files/", "/files/a/b", "/files/\n"], ["/files", "/file/a"]),
        ("*", ["/", "/anything", ""], []),
        ("/", ["/"], ["", "//", "/x"]),
        ("/a.b", ["/a.b"], ["/axb"]),
        ("/a+(b)[c]", ["/a+(b)[c]"], ["/aab"]),
        ("/{a}-{b}", ["/x-y", "/x-y-z"], ["/xy", "/-y"]),
        ("/v{n}/*", ["/v1/", "/v10/x"], ["/v/x", "/v1"]),
    ],
)
def test_a_template_of_paths(template: str, yes: list[str], no: list[str]):
    """A placeholder is one segment, {rest:path} several, a star at the end whatever follows."""
    test = matcher({"route": template}, "r")

    assert [path for path in yes if not test({"path": path, "method": "GET"})] == []
    assert [path for path in no if test({"path": path, "method": "GET"})] == []


@pytest.mark.parametrize(
    ("template", "attributes", "matches"),
    [
        ("POST /users/{id}", {"method": "POST", "path": "/users/1"}, True),
        ("POST /users/{id}", {"method": "GET", "path": "/users/1"}, False),
        ("POST /users/{id}", {"path": "/users/1"}, False),
        ("POST /users/{id}", {"route": "POST /users/{id}"}, True),
        ("POST /users/{id}", {"route": "POST /users/7"}, True),
        ("POST /users/{id}", {"route": "/users/{id}", "method": "POST"}, True),
        ("POST /users/{id}", {"route": "/users/{id}", "method": "GET"}, False),
        ("POST /users/{id}", {"route": "/other", "method": "POST", "path": "/users/1"}, False),
        ("/users/{id}", {"route": "DELETE /users/1"}, True),
        ("users.show", {"route": "users.show"}, True),
        ("users.show", {"path": "users.show"}, False),
        ("GET users.show", {"route": "GET users.show"}, True),
        ("/x", {"path": b"/x"}, False),
        ("/x", {"route": None, "path": "/x"}, True),
        ("/x", {"route": 5, "path": "/x"}, True),
        ("/x", {}, False),
    ],
)
def test_a_route(template: str, attributes: dict[str, object], matches: bool):
    """C185: a route is what the framework names, or method and path; a name without a slash is only equal."""
    assert matcher({"route": template}, "r")(attributes) is matches


def test_all_of_several_attributes():
    """All patterns must match; several routes are any of them."""
    test = matcher({"method": ["GET", "HEAD"], "plan": "free", "route": ["/a", "/b*"]}, "r")

    assert test({"method": "GET", "plan": "free", "path": "/bcd"})
    assert not test({"method": "GET", "plan": "paid", "path": "/a"})
    assert not test({"method": "PUT", "plan": "free", "path": "/a"})
    assert not test({"method": "GET", "plan": "free", "path": "/c"})


@pytest.mark.parametrize(
    ("match", "says"),
    [
        ({"plan": []}, "match for 'plan' is empty"),
        ({"plan": set()}, "match for 'plan' is empty"),
        ({"plan": 1.5}, "match for 'plan' is 1.5; write a text"),
        ({"plan": True}, "match for 'plan' is True"),
        ({"plan": b"x"}, "match for 'plan' is b'x'"),
        ({"plan": {"a": 1}}, "match for 'plan' is {'a': 1}"),
        ({"plan": [["a"]]}, "match for 'plan' is ['a']"),
        ({"plan": object}, "match for 'plan' is <class 'object'>"),
        ({5: "x"}, "match names the attribute 5"),
        ({"": "x"}, "match names the attribute ''"),
        ({None: "x"}, "match names the attribute None"),
        ({"route": ""}, "route is ''"),
        ({"route": " "}, "route is ' '"),
        ({"route": None}, "route is None"),
        ({"route": 5}, "route is 5"),
        ({"route": "/users/{id"}, "has a brace that is no placeholder"),
        ({"route": "/users/id}"}, "has a brace that is no placeholder"),
        ({"route": "/users/{}"}, "has a brace that is no placeholder"),
        ({"route": "/users/{1d}"}, "has a brace that is no placeholder"),
        ({"route": "/users/{id:int}"}, "has a brace that is no placeholder"),
        ({"route": ["/ok", "/{"]}, "has a brace that is no placeholder"),
    ],
)
def test_a_pattern_that_is_none(match: dict[object, object], says: str):
    """Each is an error at construction that names the rule, the attribute and the value."""
    with pytest.raises(PolicyError) as caught:
        matcher(match, "r")  # type: ignore[arg-type]  # what the test is about

    assert str(caught.value).startswith("rule 'r': ")
    assert says in str(caught.value)


def test_a_table_of_routes():
    """An equal route comes first, then the templates in their order; others find nothing."""
    find = route_table(["/a/*", "/a/{id}", "POST /a/b", "/a/b"], "r")

    assert find({"route": "/a/b"}) == "/a/b"
    assert find({"route": "POST /a/b"}) == "POST /a/b"
    assert find({"path": "/a/b", "method": "POST"}) == "/a/*"
    assert find({"path": "/z"}) is None
    assert find({}) is None


@given(st.text(max_size=20), st.text(max_size=20))
def test_a_text_matches_itself(pattern: str, other: str):
    """Whatever signs a text has, without a star at its end it matches itself and nothing else."""
    if not pattern.strip() or pattern.endswith("*"):
        return
    test = matcher({"a": pattern}, "r")

    assert test({"a": pattern})
    assert test({"a": other}) == (other == pattern)
    assert matcher({"a": pattern + "*"}, "r")({"a": pattern + other})


@given(st.text(alphabet="/ab.+*?[](){}|^$\\\n", max_size=12), st.text(alphabet="/ab.\n", max_size=12))
def test_a_path_is_no_regular_expression(rest: str, path: str):
    """Signs that mean something elsewhere mean themselves: a template without placeholder is equality."""
    literal = "/" + rest.replace("{", "").replace("}", "").rstrip("*")
    test = matcher({"route": literal}, "r")

    assert test({"path": literal})
    assert test({"path": path}) == (path == literal)


@pytest.mark.parametrize(
    ("match", "cost"),
    [
        ({"method": "post"}, None),
        ({"method": ["GET", "Head"]}, None),
        ({"route": "get /x"}, None),
        ({"route": "Post /x/*"}, None),
        (None, {"post /exports": 5}),
    ],
)
def test_a_method_in_small_letters_would_never_match(match, cost):
    """So it is an error that says how it is written, and not a rule that silently limits nobody."""
    with pytest.raises(PolicyError, match="methods are written in capitals"):
        Rule("a", TokenBucket(20, "5/s"), match=match, cost=cost)


def test_a_route_has_one_placeholder_for_paths():
    """Several would take time that grows with a power of the path's length, which clients choose."""
    with pytest.raises(PolicyError, match="several"):
        Rule("a", TokenBucket(20, "5/s"), match={"route": "/{a:path}/{b:path}/x"})
