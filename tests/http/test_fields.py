# What a decision looks like in header fields: every form, refusals and admissions, names, and the merge.

from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate import (
    FixedWindow,
    LeakyQueue,
    Limiter,
    Policy,
    Rule,
    SlidingLog,
    SlidingWindow,
    TokenBucket,
)
from tidegate.errors import PolicyError
from tidegate.http import fields as fields_module
from tidegate.http.fields import (
    NAMES,
    Draft,
    Legacy,
    field_names,
    field_writer,
    fields,
)
from tidegate.testing import ManualClock

START_S = 1_800_000_000
STRING = r'"((?:[ !#-\[\]-~]|\\["\\])*)"'
POLICY_LIST = re.compile(
    rf"{STRING};q=\d{{1,15}}(;w=[1-9]\d{{0,14}})?(, {STRING};q=\d{{1,15}}(;w=[1-9]\d{{0,14}})?)*"
)
STATE_LIST = re.compile(rf"{STRING};r=\d{{1,15}}(;t=[1-9]\d{{0,14}})?")


def told(decision, draft="draft-10", legacy="off") -> dict[str, str]:
    pairs = fields(decision, draft, legacy)
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def limited(limit, *times_s: float, cost=1, last_cost=None):
    """The last decision of calls at these instants."""
    clock = ManualClock()
    limiter = Limiter(limit, clock=clock)
    decision = None
    for number, at_s in enumerate(times_s, 1):
        clock.set(at_s)
        decision = limiter.hit("k", last_cost if last_cost and number == len(times_s) else cost)
    return decision


def test_an_admission():
    """Quota and refill time of the policy; what is left, and the time until it is whole again."""
    assert told(limited(TokenBucket(20, "5/s"), 0)) == {
        "RateLimit-Policy": '"limit";q=20;w=4',
        "RateLimit": '"limit";r=19;t=1',
    }


def test_a_client_that_spreads_what_is_left_is_not_misled():
    """With r > 0, t is the time until full: spending r evenly over t is never above the limit."""
    said = told(limited(TokenBucket(10, "1/min"), *[0] * 4))["RateLimit"]

    assert said == '"limit";r=6;t=240'


def test_a_full_limit_has_no_reset():
    """Where nothing is used, t is left out."""
    assert told(Limiter(TokenBucket(20, "5/s")).peek("k"))["RateLimit"] == '"limit";r=20'


def test_a_refusal():
    """C053: the exact wait is 2.2 s; t and Retry-After say 3, rounded up, never earlier."""
    decision = limited(TokenBucket(1, "0.4/s"), 0, 0.3)

    assert decision.retry_after == 2.2
    assert told(decision) == {
        "RateLimit-Policy": '"limit";q=1;w=3',
        "RateLimit": '"limit";r=0;t=3',
        "Retry-After": "3",
    }


@pytest.mark.parametrize(
    ("rate", "asked_at_s", "header"),
    [
        ("1/s", 0, 1),
        ("0.5/s", 0, 2),
        ("1/7s", 0, 7),
        ("1/2001ms", 0, 3),
        ("1/1999ms", 0, 2),
        ("0.5/s", 1.999999, 1),
    ],
)
def test_header_seconds_are_rounded_up_and_whole_ones_left_alone(rate: str, asked_at_s: float, header: int):
    """C054: exact waits of 1.0, 2.0, 7.0, 2.001 and 1.999 s give 1, 2, 7, 3, 2; a microsecond gives 1."""
    assert told(limited(TokenBucket(1, rate), 0, asked_at_s))["Retry-After"] == str(header)


def test_a_window_says_right_seconds_to_its_very_end():
    """C055: every refusal of the last 5 s has a whole number of at least 1; at the end the spend passes."""
    clock = ManualClock(0)
    limiter = Limiter(FixedWindow(2, "1min"), clock=clock)
    for _ in range(2):
        limiter.hit("k", caller="c")
    for tenth in range(550, 600):
        clock.set(tenth / 10)
        said = told(limiter.hit("k", caller="c"))
        assert int(said["Retry-After"]) == -(-(600 - tenth) // 10)
        assert said["RateLimit"] == f'"limit";r=0;t={said["Retry-After"]}'
    clock.set(60)

    assert "Retry-After" not in told(limiter.hit("k"))


def test_who_obeys_is_let_in():
    """C053: a lone client that waits as long as the header says passes."""
    clock = ManualClock()
    limiter = Limiter(TokenBucket(3, "0.7/s"), clock=clock)
    for _ in range(20):
        decision = limiter.hit("k", 3, caller="c")
        if not decision:
            clock.advance(int(told(decision)["Retry-After"]))
            assert limiter.hit("k", 3, caller="c")


def test_the_limit_that_frees_last_is_shown():
    """C069: refused by C (per hour, 3000 s to go): 0 left, t and Retry-After 3000; all policies listed."""
    clock = ManualClock()
    clock.set(600)
    rules = [
        Rule("A", FixedWindow(60, "1min")),
        Rule("B", TokenBucket(100, "1/s")),
        Rule("C", FixedWindow(4, "1h")),
    ]
    limiter = Limiter(Policy(rules), clock=clock)
    for _ in range(4):
        limiter.hit({})
    refused = limiter.hit({})

    assert told(refused) == {
        "RateLimit-Policy": '"A";q=60;w=60, "B";q=100;w=100, "C";q=4;w=3600',
        "RateLimit": '"C";r=0;t=3000',
        "Retry-After": "3000",
    }
    assert told(refused, "draft-07")["RateLimit"] == "limit=4, remaining=0, reset=3000"


def test_an_admission_shows_the_fewest_left():
    """The binding limit of an admission is the one with the fewest requests left."""
    rules = [Rule("wide", TokenBucket(100, "1/s")), Rule("narrow", TokenBucket(3, "1/s"))]

    assert told(Limiter(Policy(rules)).hit({}))["RateLimit"] == '"narrow";r=2;t=1'


def test_shadow_rules_are_not_shown():
    """Nobody is held to a shadow rule, so nobody is told of it."""
    rules = [Rule("real", TokenBucket(3, "1/s")), Rule("trial", TokenBucket(1, "1/s"), mode="shadow")]
    only_shadow = Limiter(Policy(rules[1:]))

    assert told(Limiter(Policy(rules)).hit({}))["RateLimit-Policy"] == '"real";q=3;w=3'
    assert told(only_shadow.hit({})) == {}


def test_many_policies_are_cut_and_the_binding_one_stays():
    """Of 48 limits sixteen are listed, among them the one that binds."""
    rules = [Rule(f"r{n}", TokenBucket(100 - n, "1/s")) for n in range(48)]
    said = told(Limiter(Policy(rules)).hit({}))

    assert said["RateLimit-Policy"].count(";q=") == 16
    assert said["RateLimit-Policy"].startswith('"r47";q=53')
    assert POLICY_LIST.fullmatch(said["RateLimit-Policy"])


def test_a_refusal_that_waiting_cannot_mend_names_no_time():
    """A cost above the capacity, and a budget that never refills, have neither t nor Retry-After."""
    above = limited(TokenBucket(2, "1/s"), 0, cost=3)
    spent = limited(TokenBucket(1, "0/s"), 0, 1)

    assert told(above) == {"RateLimit-Policy": '"limit";q=2;w=2', "RateLimit": '"limit";r=2'}
    assert told(spent) == {"RateLimit-Policy": '"limit";q=1', "RateLimit": '"limit";r=0'}
    assert told(spent, "draft-07")["RateLimit"] == "limit=1, remaining=0"


def test_where_no_limit_took_part_nothing_is_said():
    """No matching rule, bypass and deny have no limit to speak of, and no time."""
    nothing = Limiter(Policy([Rule("r", TokenBucket(1, "1/s"), match={"path": "/x"})])).hit({"path": "/y"})
    bypass = Limiter(Policy([Rule("r", mode="bypass")])).hit({})
    deny = Limiter(Policy([Rule("r", mode="deny")])).hit({})

    assert [told(decision) for decision in (nothing, bypass, deny)] == [{}, {}, {}]


def test_debt_is_shown_as_nothing_left():
    """Remaining is never negative."""
    limiter = Limiter(TokenBucket(5, "1/s"), clock=ManualClock())
    limiter.reserve("k", 1).settle(8)

    assert told(limiter.hit("k"))["RateLimit"] == '"limit";r=0;t=4'


@pytest.mark.parametrize(
    ("draft", "legacy", "expected"),
    [
        (
            "draft-07",
            "off",
            {"RateLimit": "limit=10, remaining=9, reset=6", "RateLimit-Policy": "10;w=60"},
        ),
        (
            "draft-06",
            "off",
            {
                "RateLimit-Limit": "10",
                "RateLimit-Remaining": "9",
                "RateLimit-Reset": "6",
                "RateLimit-Policy": "10;w=60",
            },
        ),
        (
            "draft-03",
            "off",
            {"X-RateLimit-Limit": "10, 10;w=60", "X-RateLimit-Remaining": "9", "X-RateLimit-Reset": "6"},
        ),
        (
            "off",
            "seconds",
            {"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "9", "X-RateLimit-Reset": "6"},
        ),
        ("off", "off", {}),
    ],
)
def test_older_forms(draft: Draft, legacy: Legacy, expected: dict[str, str]):
    """The spellings of draft 07, 06, 03 (as Envoy writes it) and of custom; each names its fields."""
    said = told(limited(TokenBucket(10, "10/min"), 0), draft, legacy)

    assert said == expected
    assert set(said) <= set(field_names(draft, legacy))


@pytest.mark.parametrize("draft", ["draft-07", "draft-06", "draft-03"])
def test_in_older_forms_reset_and_retry_after_are_one_instant(draft: str):
    """They say that both fields reference the same point in time."""
    clock = ManualClock()
    limiter = Limiter(TokenBucket(1, "1/s"), clock=clock)
    said = [told(limiter.hit("k", caller=n), draft) for n in range(6)]

    assert [one.get("Retry-After") for one in said] == [None, "1", "2", "3", "4", "5"]
    for one in said[1:]:
        reset = re.search(r"\d+$", one.get("RateLimit", "")) or re.search(
            r"\d+$", one.get("RateLimit-Reset") or one.get("X-RateLimit-Reset", "")
        )
        assert reset is not None
        assert reset[0] == one["Retry-After"]


def test_retry_after_is_the_place_in_line_and_never_before_t():
    """Refused callers are sent back one after another; t stays the earliest instant of all."""
    limiter = Limiter(TokenBucket(1, "1/s"), clock=ManualClock())
    limiter.hit("k")
    said = [told(limiter.hit("k", caller=n)) for n in range(4)]

    assert [one["Retry-After"] for one in said] == ["1", "2", "3", "4"]
    assert {one["RateLimit"] for one in said} == {'"limit";r=0;t=1'}


def test_a_reset_date_is_never_past():
    """C073, C063: seconds since 1970, rounded up, so not before now even at a window's edge."""
    clock = ManualClock(START_S)
    limiter = Limiter(FixedWindow(50, "1s"), clock=clock)
    write = field_writer("off", "date", wall_clock_s=lambda: clock.now)
    for step in range(5_000):
        clock.set(START_S + step * 0.000_999)
        left_s = int(dict(write(limiter.hit("k", caller="c")))["X-RateLimit-Reset"]) - clock.now
        assert 0 <= left_s < 2


def test_a_reset_date_is_the_end_of_the_window():
    """C063: as seconds and as a date the reset of the first spend is the same instant, at most 60 s away."""
    clock = ManualClock(START_S + 12.3)
    decision = Limiter(FixedWindow(10, "1min"), clock=clock).hit("k")
    write = field_writer("off", "date", wall_clock_s=lambda: clock.now)

    assert dict(write(decision))["X-RateLimit-Reset"] == str(START_S + 60)
    assert told(decision, "off", "seconds")["X-RateLimit-Reset"] == "48"


def test_the_renaming_is_one_line():
    """Draft issue 166 (r becomes a, t becomes w) needs one row of the table and nothing else."""
    renamed = dataclasses.replace(NAMES["draft-10"], remaining="a", reset="w")
    brief = (decision := limited(TokenBucket(20, "5/s"), 0)).brief
    assert brief is not None

    assert dict(fields_module._form(renamed)(decision, brief))["RateLimit"] == '"limit";a=19;w=1'


LIMITS = st.one_of(
    st.builds(TokenBucket, st.integers(1, 1000), st.sampled_from(["0/s", "1/s", "7/min", "1/30 days"])),
    st.builds(LeakyQueue, st.integers(1, 1000), st.sampled_from(["1/s", "100/s"])),
    st.builds(FixedWindow, st.integers(1, 1000), st.sampled_from(["1s", "day", "month"])),
    st.builds(SlidingWindow, st.integers(1, 1000), st.sampled_from(["1s", "1h"])),
    st.builds(SlidingLog, st.integers(1, 50), st.sampled_from(["1s", "10min"])),
)


@given(
    st.lists(
        st.tuples(st.text(min_size=1, max_size=8), LIMITS), min_size=1, max_size=4, unique_by=lambda p: p[0]
    ),
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 60)), min_size=1, max_size=12),
)
def test_fields_are_always_well_formed(named, calls):
    """Whatever the limits and calls: fields by the grammar, Retry-After iff refused for a while."""
    rules = [Rule(name, limit) for name, limit in named if name.strip()]
    clock = ManualClock(START_S)
    limiter = Limiter(Policy(rules), clock=clock)
    for step_us, cost in calls:
        clock.advance(step_us / 1e6)
        decision = limiter.hit({}, cost)
        if not rules:
            continue
        said = told(decision)
        assert POLICY_LIST.fullmatch(said["RateLimit-Policy"])
        assert STATE_LIST.fullmatch(said["RateLimit"])
        assert ("Retry-After" in said) == (not decision and decision.retry_after is not None)
        if "Retry-After" in said:
            t = int(said["RateLimit"].rpartition(";t=")[2])
            assert 1 <= t <= int(said["Retry-After"])
            assert t >= (decision.retry_after or 0)


def test_limits_made_for_each_call_do_not_pile_up():
    """Overrides may build a new limit every time; what is kept of their texts has a bound."""

    def made_anew(attributes) -> TokenBucket:
        return TokenBucket(attributes["n"], "1/s")

    write = field_writer()
    limiter = Limiter(
        Policy(
            [
                Rule(
                    "r",
                    TokenBucket(5, "1/s"),
                    overrides=made_anew,
                )
            ]
        )
    )
    said = [dict(write(limiter.hit({"n": n})))["RateLimit-Policy"] for n in range(1, 3000)]

    assert said == [f'"r";q={n};w={n}' for n in range(1, 3000)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("draft-99", "off"), 'choose one of "draft-10"'),
        (("draft-10", "yes"), 'choose one of "off"'),
        (("draft-03", "seconds"), "leave legacy off"),
    ],
)
def test_an_unknown_form_is_an_error(arguments: tuple, message: str):
    """Each names the value and the way out."""
    with pytest.raises(PolicyError, match=message):
        field_writer(*arguments)
