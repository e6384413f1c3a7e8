# /metrics: what Prometheus reads, with bounded labels.

from __future__ import annotations

from tests.server.asked import app_of, ask, decide, samples
from tidegate import Limiter, Policy, Rule, TokenBucket
from tidegate.server.app import App
from tidegate.server.metrics import BUCKETS_S, OTHER, RULES_NAMED_MOST
from tidegate.server.settings import Settings
from tidegate.stores.memory import MemoryStore


def test_every_number_is_there_before_the_first_request():
    """Counters begin with 0 for each rule, cause and result, so that the first increase is seen as one."""
    app, _ = app_of(
        Rule("org", TokenBucket(20, "5/s"), by=("org",)),
        Rule("tight", TokenBucket(1, "1/s"), mode="shadow"),
        Rule("bots", match={"agent": "bot"}, mode="deny"),
        Rule("ours", match={"agent": "probe"}, mode="bypass"),
    )

    shown = samples(app)

    assert shown["tidegate_refusals_total", "org"] == 0
    assert shown["tidegate_refusals_total", "bots"] == 0
    assert shown["tidegate_shadow_refusals_total", "tight"] == 0
    assert ("tidegate_refusals_total", "ours") not in shown
    assert [shown["tidegate_failures_total", cause] for cause in ("request", "policy", "store")] == [0, 0, 0]
    assert [shown["tidegate_reloads_total", result] for result in ("ok", "failed")] == [0, 0]
    assert shown["tidegate_rules",] == 4
    assert shown["tidegate_store_keys",] == 0
    assert shown["tidegate_store_keys_limit",] == 1_000_000


def test_decisions_are_timed():
    """The histogram counts each decision once, under the bound that its duration stays within."""
    ticks = iter([0.0, 0.0, 0.0, BUCKETS_S[0], 0.0, 0.3, 0.0, 7.0])
    app, _ = app_of(clock_s=lambda: next(ticks))

    for _ in range(4):
        decide(app, {"attributes": {}})

    shown = samples(app)
    assert shown["tidegate_decision_seconds_bucket", str(BUCKETS_S[0])] == 2
    assert shown["tidegate_decision_seconds_bucket", "0.25"] == 2
    assert shown["tidegate_decision_seconds_bucket", "1.0"] == 3
    assert shown["tidegate_decision_seconds_bucket", "+Inf"] == 4
    assert shown["tidegate_decision_seconds_count",] == 4
    assert shown["tidegate_decision_seconds_sum",] == BUCKETS_S[0] + 0.3 + 7.0


def test_labels_are_bounded():
    """Rules beyond the first hundred count as "other", also over many reloads; keys are never labels."""
    app, _ = app_of(Rule("r", TokenBucket(1, "1/h"), by=("org",)))
    for number in range(300):
        app.put_in_force(Policy([Rule(f"r{number}", TokenBucket(1, "1/h"), by=("org",))]), Settings())
        for org in ("a-secret-key", "a-secret-key"):
            decide(app, {"attributes": {"org": f"{org}{number}"}})

    shown = samples(app)
    refusals = {place[1]: count for place, count in shown.items() if place[0] == "tidegate_refusals_total"}
    assert len(refusals) == RULES_NAMED_MOST + 1
    assert refusals[OTHER] == 300 - (RULES_NAMED_MOST - 1)
    assert sum(refusals.values()) == 300
    assert "a-secret-key" not in repr(shown)


def test_a_rule_may_have_any_name():
    """Quotes, backslashes and line breaks in a rule's name survive the text format."""
    name = 'a "b" \\ c\nd \u00e9'
    app, _ = app_of(Rule(name, TokenBucket(1, "1/h")))
    decide(app, {"attributes": {}})
    decide(app, {"attributes": {}})

    assert samples(app)["tidegate_refusals_total", name] == 1


def test_a_full_store_shows():
    """How many keys are held, and what was refused for lack of room, is shown from the store itself."""
    store = MemoryStore(max_keys=2)
    app = App(Limiter(Rule("org", TokenBucket(1, "1/h"), by=("org",)), store=store))

    for org in "abc":
        decide(app, {"attributes": {"org": org}})

    shown = samples(app)
    assert shown["tidegate_store_keys",] == 2
    assert shown["tidegate_store_refused_for_room_total",] == 1
    assert shown["tidegate_store_forgotten_alive_total",] == 0


def test_scrapers_get_the_format_they_accept():
    """OpenMetrics for those who ask for it, the older text for all others."""
    app, _ = app_of()

    plain = ask(app, "GET", "/metrics")
    opened = ask(app, "GET", "/metrics", headers=[("Accept", "application/openmetrics-text; version=1.0.0")])
    assert plain.headers["content-type"].startswith("text/plain")
    assert opened.headers["content-type"].startswith("application/openmetrics-text")
    assert opened.body.endswith(b"# EOF\n")


def test_servers_in_one_process_count_for_themselves():
    """Each application has a registry of its own."""
    one, _ = app_of()
    other, _ = app_of()
    decide(one, {"attributes": {}})

    assert samples(one)["tidegate_decision_seconds_count",] == 1
    assert samples(other)["tidegate_decision_seconds_count",] == 0
