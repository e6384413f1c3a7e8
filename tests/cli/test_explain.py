# `tidegate explain`: a policy in plain words, with its numbers worked out.

from __future__ import annotations

import json

import pytest

from tests.cli.running import Run, assert_golden

ALL = ("policy.yaml", "--clients", "10000", "--duration", "300ms", "--target", "200ms")


def bucket(capacity: int = 50, rate: str = "5/s", by: str = "[org]", more: str = "") -> str:
    return (
        f"  - {{name: own, by: {by}, {more}"
        f"limit: {{algorithm: token_bucket, capacity: {capacity}, rate: {rate}}}}}"
    )


def test_every_kind_of_rule_is_explained(run: Run):
    """Each algorithm, mode and way to give back has its words; nothing is wider than 80 columns."""
    ran = run("explain", *ALL)

    assert (ran.code, ran.err) == (0, "")
    assert max(map(len, ran.out.splitlines())) <= 80
    assert_golden("explain_80", ran.out)


def test_a_wider_terminal_is_used(run: Run):
    """At 120 columns the same words stand in fewer lines, none of them wider."""
    wide, narrow = run("explain", *ALL, columns=120), run("explain", *ALL)

    assert wide.words == narrow.words
    assert 80 < max(map(len, wide.out.splitlines())) <= 120
    assert len(wide.out.splitlines()) < len(narrow.out.splitlines())


def test_the_most_that_passes(run: Run, write):
    """TokenBucket(50, "5/s"): at most 55 a second, 350 a minute, 18,050 an hour, 432,050 a day."""
    ran = run("explain", write(bucket()))

    assert "  burst  sustained  most in 1 s  1 min     1 h    1 day  fresh in\n" in ran.out
    assert "     50        5/s           55    350  18,050  432,050      10 s\n" in ran.out


def test_an_abuser_at_the_limit(run: Run, write):
    """Whoever stays exactly at the limit gets capacity + rate x 1 h in the first hour, the rate after it."""
    ran = run("explain", write(bucket()))
    assert (
        "gets 18,050 in the first hour and 18,000 in each one after it, 432,050 in the first day" in ran.words
    )


def test_a_crowd_that_bursts_together(run: Run, write):
    """10,000 clients with capacity 100 may send 1,000,000 at one instant; only a shared rule bounds that."""
    alone = run("explain", write(bucket(100)), "--clients", "10,000")
    shared = run(
        "explain",
        write(f"{bucket(100)}\n{bucket(1_000, '500/s', by='[]').replace('own', 'everyone')}"),
        "--clients",
        "10000",
    )

    assert (
        "10,000 clients that burst together send 1,000,000 at one instant. Nothing bounds that" in alone.words
    )
    assert "send 1,000,000 at one instant. The shared rule everyone bounds that to 1,000 " in shared.words
    assert (
        "10,000 clients share this one budget: together they send at most 1,000 at one instant"
        in shared.words
    )


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("match: {method: POST}, ", "No shared rule speaks of all of them (everyone: only of what matches)"),
        ("mode: shadow, ", "Nothing bounds that"),
    ],
)
def test_a_rule_that_does_not_bound_a_crowd(run: Run, write, more: str, said: str):
    """A shared rule that speaks of some requests only, or only reports, is not said to bound all of them."""
    shared = bucket(1_000, "500/s", by="[]", more=more).replace("own", "everyone")
    ran = run("explain", write(f"{bucket(100)}\n{shared}"), "--rule", "own")
    assert said in ran.words


def test_a_shared_rule_that_is_too_wide(run: Run, write):
    """A shared rule above what the crowd can send at once is not said to bound it."""
    shared = bucket(5_000, "500/s", by="[]").replace("own", "everyone")
    ran = run("explain", write(f"{bucket(100)}\n{shared}"), "--clients", "10")
    assert "The shared rule everyone would allow 5,000, so it does not bound that" in ran.words


@pytest.mark.parametrize(
    ("target", "at_once", "interval"),
    [
        ("200ms", "2 places", "1 place"),
        ("199ms", "1 place", "no place"),
        ("3800ms", "20 places", "19 places"),
        ("4s", "21 places", "20 places"),
    ],
)
def test_the_largest_queue_within_a_wait(run: Run, write, target: str, at_once: str, interval: str):
    """For 5/s and 200 ms: two places where the first job leaves at once, one with first_release interval."""
    ran = run("explain", write(bucket()), "--target", target)
    assert (
        f"has {at_once} if the first job leaves at once, {interval} with first_release interval" in ran.words
    )


def test_a_queue_is_held_against_the_target(run: Run):
    """A queue that is there is told to be within the target, or too long for it."""
    longer = run("explain", "policy.yaml", "--rule", "reports", "--target", "3799ms")
    within = run("explain", "policy.yaml", "--rule", "reports", "--target", "3800ms")

    assert "This one waits up to 3.8 s: too long for it" in longer.words
    assert "This one waits up to 3.8 s: within it" in within.words


def test_work_in_flight(run: Run, write):
    """By Little's law 5/s of 300 ms are 1.5 in flight on average, and 51 at most after a burst of 50."""
    ran = run("explain", write(bucket()), "--duration", "300ms")
    assert "has 1.5 in flight on average (rate x duration) and at most 51 just after a burst" in ran.words


def test_a_fixed_window_confesses(run: Run, write):
    """FixedWindow says that up to twice its limit passes across a boundary, SlidingLog that it is exact."""
    window = "  - {name: own, by: [phone], limit: {algorithm: fixed_window, limit: 5, window: 10min}}"
    fixed = run("explain", write(window))
    log = run("explain", write(window.replace("fixed_window", "sliding_log")))

    assert "up to twice the limit across a boundary: 10 within a moment" in fixed.words
    assert "at most 5 in any stretch of 10 min, wherever it begins; exact" in log.words


@pytest.mark.parametrize(
    ("by", "warns"),
    [
        ("[address]", True),
        ("[address, route]", True),
        ("[address, org]", False),
        ("[org]", False),
        ("[]", False),
    ],
)
def test_a_rule_by_address_alone_warns(run: Run, write, by: str, warns: bool):
    """A rule that tells people apart by address alone says that carriers put many behind one."""
    ran = run("explain", write(bucket(by=by)))
    assert ("! By address alone: carriers, offices and schools" in ran.words) is warns


def test_a_rate_of_zero_warns(run: Run, write):
    """A budget that nothing refills says so, and is never forgotten."""
    ran = run("explain", write(bucket(rate="0/s")))

    assert "! The rate is 0: what is spent comes back only by a reset or a refund." in ran.words
    assert "expiry never: a rate of 0 gives nothing back" in ran.words
    assert "a waiting line needs a rate" in run("explain", "own.yaml", "--target", "1s").words


def test_everything_for_programs(run: Run):
    """--json holds the same figures as numbers, and the facts by what they are about."""
    ran = run("explain", *ALL, "--json")
    told = {rule["name"]: rule for rule in json.loads(ran.out)["rules"]}

    assert ran.code == 0
    assert told["address"]["figures"]["most"] == {"1 s": 55, "1 min": 350, "1 h": 18_050, "1 day": 432_050}
    assert told["reports"]["figures"]["longest_wait_us"] == 3_800_000
    assert told["reports"]["figures"]["most_leaving"]["1 s"] == 6
    assert told["month"]["figures"]["fresh_us"] is not None
    assert told["internal"]["figures"] is None
    assert told["address"]["warnings"]
    assert told["codes"]["facts"]["key"] == "one budget for each phone; requests without it share a budget"
    assert set(told["codes"]["load"]) == {"an abuser", "10,000 clients", "in flight", "queue"}


def test_one_rule_of_many(run: Run):
    """--rule explains that rule alone; a name that is not there is an error that lists those that are."""
    ran = run("explain", "policy.yaml", "--rule", "codes")
    wrong = run("explain", "policy.yaml", "--rule", "code")

    assert "\ncodes\n" in ran.out
    assert "\naddress\n" not in ran.out
    assert (wrong.code, wrong.out) == (2, "")
    assert "there is no rule 'code' in policy.yaml; its rules are internal, address," in wrong.err


def test_the_store_of_the_file_is_told(run: Run, write):
    """How many keys are kept, and what happens beyond them, is said as the file says it."""
    ran = run("explain", write(f"{bucket()}\nstore: {{url: 'memory://', max_keys: 5000, when_full: forget}}"))
    assert "at most 5,000 keys over all rules; beyond that the key nearest to full is forgotten" in ran.words


def test_what_happens_when_the_store_is_away_is_told(run: Run, write):
    """Each rule's outage is told with its bound; the address of the store, and its password, are not."""
    rules = f"{bucket()}\n{bucket(more='on_outage: open, ').replace('own', 'other')}"
    ran = run(
        "explain", write(f"{rules}\nstore: {{url: 'postgresql://me:hush@host/limits', schema: limits}}")
    )

    assert "State lives in PostgreSQL, and everybody who asks it shares one budget." in ran.words
    assert "A decision ends within 50ms, whatever the network does." in ran.words
    assert "closed: while the store gives no answer nothing passes" in ran.words
    assert "open: while the store gives no answer everything passes uncounted" in ran.words
    assert "hush" not in ran.out
