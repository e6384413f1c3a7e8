# The page at `/`, as a document. What it does in a browser is in test_browser.py.

from __future__ import annotations

import base64
import re
from hashlib import sha256
from html.parser import HTMLParser

from tests.server.asked import app_of, ask
from tidegate import FixedWindow, Rule, SlidingLog, TokenBucket
from tidegate.core.policy import Policy
from tidegate.server.app import App
from tidegate.server.page import fields_of
from tidegate.server.settings import Settings

HOSTILE = "<script>alert(1)</script>\"'&{script}{style}"


class Outline(HTMLParser):
    """The elements of a document, their attributes, and the text outside style and script."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._inside = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"{tag} has an attribute twice"
        self.elements.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside not in {"style", "script"}:
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def outline(app: App) -> Outline:
    return Outline(ask(app, "GET", "/").body.decode())


def test_the_policy_is_said_in_words():
    """Each rule stands there with its sentence, its figures and its warnings."""
    app, _ = app_of(
        Rule("address", TokenBucket(20, "5/s"), by=("address",)),
        Rule("codes", SlidingLog(5, "10min"), by=("user",), mode="shadow"),
        Rule("bots", match={"agent": "bot"}, mode="deny"),
    )

    text = outline(app).text
    for said in (
        "Up to 20 at once, then 5 a second",
        "320",
        "carriers",
        "shadow",
        "Up to 5 in any 10 min",
        "bots",
    ):
        assert said in text


def test_the_page_changes_with_the_policy():
    """After a reload the page says the new policy."""
    app, _ = app_of()
    assert "Up to 20 at once" in outline(app).text

    app.put_in_force(Policy([Rule("new", FixedWindow(7, "day"))]), Settings())

    assert "Up to 7 in each day" in outline(app).text


def test_nothing_but_its_own_script_and_style_can_run():
    """The Content-Security-Policy allows the two by their hashes, the own origin, and nothing else."""
    app, _ = app_of()
    reply = ask(app, "GET", "/")
    rules = dict(rule.split(" ", 1) for rule in reply.headers["content-security-policy"].split("; "))
    html = reply.body.decode()

    def allowed(tag: str) -> str:
        (inside,) = re.findall(f"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        return f"'sha256-{base64.b64encode(sha256(inside.encode()).digest()).decode()}'"

    assert rules == {
        "default-src": "'none'",
        "style-src": allowed("style"),
        "script-src": allowed("script"),
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["referrer-policy"] == "no-referrer"


def test_hostile_names_are_text():
    """Markup in the name of a rule, of an attribute or of a key is shown and does nothing."""
    app, _ = app_of(
        Rule(
            HOSTILE,
            TokenBucket(20, "5/s"),
            by=(HOSTILE, "org"),
            match={"path": HOSTILE},
            cost={f"POST /{HOSTILE.replace('{script}', '').replace('{style}', '')}": 2},
            overrides={(HOSTILE, "x"): TokenBucket(2, "1/s")},
        )
    )
    plain, _ = app_of()

    page = outline(app)

    assert HOSTILE in page.text
    assert len(page.all("script")) == len(outline(plain).all("script")) == 1
    assert HOSTILE in [field.get("data-attribute") for field in page.all("input")]


def test_the_page_loads_nothing():
    """No element names another resource: it works without a network."""
    app, _ = app_of()

    page = outline(app)

    assert not [one for one in page.elements if one[1].get("src")]
    assert {link["href"] for link in page.all("a")} <= {"metrics", "healthz", "#try"}
    assert all(str(link["href"]).startswith("data:") for link in page.all("link"))
    assert not [
        one for one in page.elements if any(name.startswith("on") or name == "style" for name in one[1])
    ]


def test_every_field_has_a_label():
    """Each input is named by a label, every id is there once, and every reference to one leads somewhere."""
    app, _ = app_of(
        Rule("two words", TokenBucket(1, "1/s"), by=("a b", "org"), match={"plan": ["free", "pro"]})
    )

    page = outline(app)

    labelled = {label["for"] for label in page.all("label")}
    identities = [attributes["id"] for _, attributes in page.elements if attributes.get("id")]
    assert {field["id"] for field in page.all("input")} == labelled
    assert len(set(identities)) == len(identities)
    for _, attributes in page.elements:
        for reference in ("list", "aria-labelledby", "for"):
            assert attributes.get(reference) is None or attributes[reference] in identities
    assert all(not str(identity).count(" ") for identity in identities)


def test_the_fields_are_what_the_rules_look_at():
    """The form asks for the attributes of keys, matches and costs, and suggests the values that matter."""
    policy = Policy(
        [
            Rule(
                "a",
                TokenBucket(1, "1/s"),
                by=("org", "user"),
                overrides={("acme", "x"): TokenBucket(2, "1/s")},
            ),
            Rule(
                "b",
                TokenBucket(9, "1/s"),
                match={"plan": ["free", None], "path": "/api/*"},
                cost={"POST /x": 2},
            ),
            Rule("c", TokenBucket(9, "1/s"), cost=lambda _: 1),
        ]
    )

    assert fields_of(policy) == {
        "org": ["acme"],
        "user": ["x"],
        "plan": ["free"],
        "path": ["/api/*"],
        "route": ["POST /x"],
    }


def test_a_thousand_rules_are_a_page():
    """The largest policy is shown, and shown again at once."""
    app, _ = app_of(*(Rule(f"r{n}", TokenBucket(n + 1, "1/s"), by=(f"a{n}",)) for n in range(1_000)))

    assert len(outline(app).all("article")) == 1_000
