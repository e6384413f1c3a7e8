# How a request becomes attributes: defaults, sources, what is missing, doubled, long or not UTF-8.

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate import Limiter, Policy, Rule, TokenBucket
from tidegate.errors import PolicyError
from tidegate.http.attributes import Attributes, Request, added, shortened, shortened_path
from tidegate.http.keys import ClientAddress


def ask(method: str = "GET", path: str = "/", query: str = "", peer: str | None = "203.0.113.7", **headers):
    """A request; headers by keyword, several lines as a list."""
    lines = {
        name.replace("_", "-"): value if isinstance(value, list) else [value]
        for name, value in headers.items()
    }
    return Request(method, path, lines, peer, query)


def value_of(source: dict, request: Request):
    return Attributes({"it": source}).of(request)["it"]


def test_the_defaults():
    """Without configuration: address, key, method, path, host and route."""
    assert Attributes().of(ask("POST", "/orders", host="API.Example.COM:8443")) == {
        "key": "203.0.113.7",
        "address": "203.0.113.7",
        "method": "POST",
        "path": "/orders",
        "host": "api.example.com",
        "route": "POST /orders",
    }


def test_the_address_is_found_behind_proxies():
    """The client setting decides which header is needed and what it means."""
    attributes = Attributes(client=ClientAddress(["203.0.113.0/24"]))

    assert attributes.header_names == {"host", "x-forwarded-for"}
    assert attributes.of(ask(x_forwarded_for=["198.51.100.1"]))["key"] == "198.51.100.1"


@pytest.mark.parametrize(
    ("source", "request_", "value"),
    [
        ({"header": "X-Org"}, ask(x_org="acme"), "acme"),
        ({"header": "X-Org"}, ask(x_org="  acme "), "acme"),
        ({"header": "X-Org"}, ask(x_org=["acme", "acme"]), "acme"),
        ({"header": "X-Org"}, ask(x_org="caf\xc3\xa9"), "caf\xc3\xa9"),
        ({"cookie": "sid"}, ask(cookie="a=1; sid=xyz; b=2"), "xyz"),
        ({"cookie": "sid"}, ask(cookie=["a=1", "sid=xyz"]), "xyz"),
        ({"cookie": "sid"}, ask(cookie='sid="xyz"'), "xyz"),
        ({"cookie": "sid"}, ask(cookie='sid="\\170y\\z"'), "xyz"),
        ({"cookie": "sid"}, ask(cookie="sid=a=b"), "a=b"),
        ({"query": "api_key"}, ask(query="x=1&api_key=a%20b+c"), "a b c"),
        ({"query": "api_key"}, ask(query="api%5Fkey=k"), "k"),
        ({"path_segment": 1}, ask(path="/acme/orders"), "acme"),
        ({"path_segment": 2}, ask(path="/acme/orders"), "orders"),
        ({"host_label": 1}, ask(host="acme.example.com"), "acme"),
        ({"templates": ["GET /users/{id}"]}, ask(path="/users/1"), "GET /users/{id}"),
        ({"templates": ["/users/{id}"]}, ask("PUT", path="/users/1"), "/users/{id}"),
        ({"templates": ["GET /users/me", "GET /users/{id}"]}, ask(path="/users/me"), "GET /users/me"),
        ({"templates": ["GET /files/*"]}, ask(path="/files/a/b"), "GET /files/*"),
        ({"value": "free"}, ask(), "free"),
    ],
)
def test_sources(source: dict, request_: Request, value: str):
    """Where an attribute can come from."""
    assert value_of(source, request_) == value


@pytest.mark.parametrize(
    ("source", "request_"),
    [
        ({"header": "X-Org"}, ask()),
        ({"header": "X-Org"}, ask(x_org="")),
        ({"header": "X-Org"}, ask(x_org=" \t")),
        ({"header": "X-Org"}, ask(x_org=["acme", "other"])),
        ({"header": "X-Org"}, ask(x_org=["", "other"])),
        ({"cookie": "sid"}, ask()),
        ({"cookie": "sid"}, ask(cookie="sid")),
        ({"cookie": "sid"}, ask(cookie="sid=")),
        ({"cookie": "sid"}, ask(cookie='sid=""')),
        ({"cookie": "sid"}, ask(cookie="xsid=1;;;=;==")),
        ({"cookie": "sid"}, ask(cookie="sid=1; sid=2")),
        ({"query": "k"}, ask()),
        ({"query": "k"}, ask(query="k")),
        ({"query": "k"}, ask(query="k=&&=")),
        ({"query": "k"}, ask(query="k=1&k=2")),
        ({"path_segment": 1}, ask(path="/")),
        ({"path_segment": 3}, ask(path="/acme/orders")),
        ({"path_segment": 1}, ask(path="*")),
        ({"host_label": 1}, ask()),
        ({"host_label": 4}, ask(host="acme.example.com")),
        ({"templates": ["GET /users/{id}"]}, ask(path="/users/1/x")),
        ({"templates": ["GET /users/{id}"]}, ask("POST", path="/users/1")),
    ],
)
def test_missing_empty_blank_and_ambiguous_are_absent(source: dict, request_: Request):
    """C155: None, one shared value; never an error, and never a key of the client's own choice."""
    assert value_of(source, request_) is None


def test_absent_values_share_one_budget():
    """C155: requests without, with an empty, and with a blank header spend from one budget."""
    limiter = Limiter(Policy([Rule("org", TokenBucket(2, "0/s"), by=("org",))]))
    attributes = Attributes({"org": {"header": "X-Org"}})
    missing = [ask(), ask(x_org=""), ask(x_org="  ")]

    assert [limiter.hit(attributes.of(request)).allowed for request in missing] == [True, True, False]
    assert limiter.hit(attributes.of(ask(x_org="acme"))).allowed


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("Example.com.", "example.com"),
        ("example.com:", "example.com"),
        ("[2001:db8::1]:80", "[2001:db8::1]"),
        ("[2001:db8::1]", "[2001:db8::1]"),
        ("a:b", "a:b"),
        (".", None),
        (":80", None),
    ],
)
def test_one_host_has_one_name(host: str, name: str | None):
    """Case, port and final dot make no new key."""
    assert Attributes().of(ask(host=host))["host"] == name


def test_a_peer_with_a_long_name_is_shortened():
    """A server that gives a name instead of an address cannot make a key too long."""
    assert len(Attributes().of(ask(peer="x" * 9_000))["key"] or "") == 289


def test_ipv6_peers_are_grouped_in_key_and_address():
    """C170: both attributes name the network."""
    values = Attributes().of(ask(peer="2001:db8::1"))

    assert (values["key"], values["address"]) == ("2001:db8::/64", "2001:db8::/64")


def test_a_digest_hides_a_secret():
    """What must not stand in a store is replaced by bytes, which no text equals; equal stays equal."""
    read = Attributes({"token": {"header": "Authorization", "digest": True}})
    first, again, other = (
        read.of(ask(authorization=text))["token"] for text in ("secret", "secret", "Secret")
    )

    assert isinstance(first, bytes)
    assert b"secret" not in first
    assert first == again != other
    assert read.of(ask())["token"] is None


@given(st.text(), st.text())
def test_shortening_keeps_values_apart_and_beginnings_together(start: str, end: str):
    """A long value becomes one that is longer than any that is left whole, so none can imitate it."""
    text = start + "x" * 300 + end
    short = shortened(text)

    assert len(short.encode("utf-8", "surrogatepass")) > 256
    assert len(short.encode("utf-8", "surrogatepass")) <= 256 + 33
    assert shortened(text + "y") != short
    assert shortened(short) != short
    assert short.startswith(start[:64].encode("utf-8", "ignore").decode())


@given(st.text(st.characters(codec="utf-8"), max_size=256))
def test_short_values_stay(text: str):
    """Up to 256 bytes nothing is changed."""
    if len(text.encode()) <= 256:
        assert shortened(text) == text


@given(st.lists(st.text(st.characters(exclude_characters="/"), max_size=200), max_size=60))
def test_a_path_has_a_bound(segments: list[str]):
    """However long the path, key and route fit together into the longest key there may be."""
    path = "/" + "/".join(segments)
    values = Attributes().of(ask("M" * 10_000, path))
    by = ("key", "address", "method", "path", "host", "route")

    assert len(shortened_path(path).encode("utf-8", "surrogatepass")) <= 512 + 33
    assert Limiter(Policy([Rule("all", TokenBucket(1, "1/s"), by=by)])).hit(values).allowed


def test_a_long_segment_does_not_hide_a_path_from_its_rule():
    """A rule that matches a template or a prefix still does when a client makes the path long."""
    templates = Attributes({"endpoint": {"templates": ["GET /users/{id}/export"]}})
    policy = Policy(
        [
            Rule("export", TokenBucket(1, "0/s"), match={"route": "GET /users/{id}/export"}),
            Rule("api", TokenBucket(9, "0/s"), match={"path": "/users/*"}),
        ]
    )
    values = templates.of(ask(path=f"/users/{'7' * 5_000}/export"))

    assert values["endpoint"] == "GET /users/{id}/export"
    assert [outcome.rule for outcome in Limiter(policy).hit(values).outcomes] == ["export", "api"]


def test_a_long_header_does_not_hide_from_a_prefix():
    """The beginning of a long value survives, so a rule on it still matches."""
    agent = Attributes({"agent": {"header": "User-Agent"}}).of(ask(user_agent="BadBot/" + "x" * 9_000))
    rule = Rule("bots", TokenBucket(1, "0/s"), match={"agent": "BadBot/*"})

    assert Limiter(Policy([rule])).hit(agent).rule == "bots"


@pytest.mark.parametrize("number", [1, 2, 3])
def test_one_budget_for_a_route_or_for_each_url(number: int):
    """C185: a template is one budget (1 passes, 2 refused); `by=("route",)` alone counts each URL."""
    paths = [f"/users/{n}" for n in (1, 2, 3)]
    attributes = Attributes({"endpoint": {"templates": ["GET /users/{id}"]}})
    rules = {
        1: Rule("r", TokenBucket(1, "0/s"), match={"route": "GET /users/{id}"}),
        2: Rule("r", TokenBucket(1, "0/s"), by=("endpoint",)),
        3: Rule("r", TokenBucket(1, "0/s"), by=("route",)),
    }
    limiter = Limiter(Policy([rules[number]]))
    passed = [limiter.hit(attributes.of(ask(path=path))).allowed for path in paths]

    assert passed == ([True, True, True] if number == 3 else [True, False, False])


def test_a_hook_adds_and_replaces():
    """What a hook returns stands beside the defaults, shortened like them."""
    values = added({"key": "a", "host": None}, {"key": "b", "org": "x" * 9_000, "id": 7, "raw": b"r" * 9_000})

    assert (values["key"], values["host"], values["id"]) == ("b", None, 7)
    assert len(values["org"]) == 289
    assert len(values["raw"]) == 32


@pytest.mark.parametrize("returned", [None, "org", ["org"], 1])
def test_a_hook_that_returns_no_mapping_is_an_error(returned: object):
    """C190: a broken hook does not look like one that adds nothing."""
    with pytest.raises(TypeError, match="must return a mapping"):
        added({}, returned)


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ({"org": "X-Org"}, "write for instance {'header'"),
        ({"org": {}}, "has 0 sources"),
        ({"org": {"header": "a", "cookie": "b"}}, "has 2 sources"),
        ({"org": {"haeder": "X-Org"}}, "did you mean 'header'"),
        ({"org": {"colour": "red"}}, "choose one of header, cookie"),
        ({"org": {"header": ""}}, "not blank"),
        ({"org": {"header": "X Org"}}, "no header name"),
        ({"org": {"header": 7}}, "not blank"),
        ({"org": {"cookie": None}}, "not blank"),
        ({"org": {"path_segment": 0}}, "count from 1"),
        ({"org": {"path_segment": True}}, "count from 1"),
        ({"org": {"host_label": "1"}}, "count from 1"),
        ({"org": {"templates": []}}, "write a list"),
        ({"org": {"templates": "GET /x"}}, "write a list"),
        ({"org": {"templates": ["GET /{a"]}}, "brace"),
        ({"org": {"header": "X-Org", "digest": "yes"}}, "write true or false"),
        ({"": {"header": "X-Org"}}, "has no name"),
        ({3: {"header": "X-Org"}}, "has no name"),
    ],
)
def test_a_wrong_source_is_an_error_at_construction(sources: dict, message: str):
    """Each names the attribute and the way out."""
    with pytest.raises(PolicyError, match=message):
        Attributes(sources)


@given(
    st.builds(
        Request,
        st.text(),
        st.text(),
        st.dictionaries(st.sampled_from(["x-org", "cookie", "host", "x-forwarded-for"]), st.lists(st.text())),
        st.none() | st.text() | st.ip_addresses().map(str),
        st.text(),
    )
)
def test_no_request_is_an_error(request_: Request):
    """C155: whatever arrives becomes text, bytes or absent, and short enough for a key."""
    attributes = Attributes(
        {
            "a": {"header": "X-Org"},
            "b": {"cookie": "sid"},
            "c": {"query": "k"},
            "d": {"path_segment": 1},
            "e": {"host_label": 1},
            "f": {"templates": ["GET /users/{id}"]},
        },
        client=ClientAddress(["unix", "10.0.0.0/8"]),
    )
    values = attributes.of(request_)

    assert all(value is None or isinstance(value, str) for value in values.values())
    assert Limiter(Policy([Rule("all", TokenBucket(1, "1/s"), by=tuple(values))])).hit(values).allowed
