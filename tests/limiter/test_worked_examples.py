# The worked examples of the project, on every face of the limiter.

from __future__ import annotations

from fractions import Fraction

import pytest

from tidegate import FixedWindow, LeakyBucket, LeakyQueue, Policy, Rule, SlidingLog, TokenBucket


def count(limiter, times, key="k", cost=1):
    return sum(bool(limiter.hit(key, cost)) for _ in range(times))


def test_a_bucket_of_twenty_at_five_a_second(face, clock):
    """Twenty pass at once and the next is refused; 0.4 s earns exactly two, 2 s exactly ten."""
    limiter = face(TokenBucket(20, "5/s"), clock=clock)
    assert count(limiter, 21) == 20
    assert limiter.hit("k").retry_after == 0.2

    clock.advance(0.4)
    assert count(limiter, 5) == 2
    clock.advance(2)
    assert count(limiter, 20) == 10


def test_an_export_spends_as_five_reads(face, clock):
    """A cost of 5 takes what five reads take."""
    limiter = face(TokenBucket(20, "5/s"), clock=clock)
    limiter.hit("k", 5)
    assert count(limiter, 20) == 15


def test_ten_servers_with_one_store(face, clock):
    """Ten limiters over one store admit 20 + 5 T together, not ten times that."""
    first = face(TokenBucket(20, "5/s"), clock=clock)
    servers = [first] + [face(TokenBucket(20, "5/s"), store=first.store) for _ in range(9)]
    admitted = sum(count(server, 10) for server in servers)
    assert admitted == 20

    for _ in range(10):
        clock.advance(1)
        admitted += sum(count(server, 2) for server in servers)
    assert admitted == 20 + 5 * 10


def test_a_bucket_of_fifty_at_five_a_second(face, clock):
    """12 at once, ten idle seconds, then 4: 46 left. Fifty at once, then exactly five a second."""
    limiter = face(TokenBucket(50, "5/s"), clock=clock)
    assert count(limiter, 12) == 12
    clock.advance(10)
    assert count(limiter, 4) == 4
    assert limiter.peek("k").remaining == 46

    assert count(limiter, 60) == 46
    for _ in range(3):
        clock.advance(1)
        assert count(limiter, 9) == 5


@pytest.mark.parametrize(("seconds", "most"), [(1, 55), (60, 350)])
def test_the_most_in_an_interval(face, clock, seconds, most):
    """A bucket of 50 at 5/s admits at most 55 in one second and 350 in a minute."""
    limiter = face(TokenBucket(50, "5/s"), clock=clock)
    admitted = count(limiter, 60)
    for _ in range(seconds * 5):
        clock.advance(0.2)
        admitted += count(limiter, 2)
    assert admitted == most


def test_a_fraction_of_a_token(face, clock):
    """0.3 s earns 1.5 tokens at 5/s; with 0.4 left the next comes after 0.12 s."""
    limiter = face(TokenBucket(50, "5/s"), clock=clock)
    limiter.hit("k", 50)
    clock.advance(0.3)
    assert limiter.peek("k").balance == Fraction(3, 2)

    limiter.hit("k", 1.1)
    refused = limiter.hit("k")
    assert (refused.balance, refused.retry_after) == (Fraction(2, 5), 0.12)
    clock.advance(0.119999)
    assert not limiter.hit("k")
    clock.advance(0.000001)
    assert limiter.hit("k")


@pytest.mark.parametrize(("first_release", "first_us"), [("immediate", 0), ("interval", 200_000)])
def test_a_queue_of_twenty(face, clock, first_release, first_us):
    """Twenty at once leave 0.2 s apart, the first at 0 or at 0.2 s; the twenty-first is refused."""
    limiter = face(LeakyQueue(20, "5/s", first_release), clock=clock)
    waits = [limiter.hit("k").wait_us for _ in range(20)]
    assert waits == [first_us + 200_000 * place for place in range(20)]
    assert not limiter.hit("k")


@pytest.mark.parametrize(
    ("limit", "waits"),
    [
        (TokenBucket(21, "10/s"), [0] * 21),
        (LeakyQueue(21, "10/s"), [100_000 * place for place in range(21)]),
        (LeakyQueue(21, "10/s", delay_after=8), [0] * 9 + [100_000 * place for place in range(1, 13)]),
    ],
    ids=["nodelay", "burst", "delay=8"],
)
def test_nginx(face, clock, limit, waits):
    """Of nginx: rate=10r/s burst=20 admits 21 at once, delayed as nginx delays them."""
    limiter = face(limit, clock=clock)
    decisions = [limiter.hit("k") for _ in range(22)]
    assert [d.wait_us for d in decisions if d] == waits
    assert [bool(d) for d in decisions] == [True] * 21 + [False]


def test_one_time_codes(face, clock):
    """A log of five in ten minutes lets exactly five through; a fixed window up to twice that over a
    boundary.
    """
    exact, window = face(SlidingLog(5, "10min"), clock=clock), face(FixedWindow(5, "10min"), clock=clock)
    clock.set(599)
    assert count(exact, 10) == count(window, 10) == 5
    clock.set(601)
    assert (count(exact, 10), count(window, 10)) == (0, 5)
    clock.set(1199)
    assert count(exact, 10) == 5


def test_a_shared_rule_bounds_many_clients(face, clock):
    """Many clients at once are bounded by a rule with by=() beside the rule of each."""
    policy = Policy(
        [Rule("client", TokenBucket(100, "5/s"), by=("client",)), Rule("all", TokenBucket(150, "50/s"))]
    )
    limiter = face(policy, clock=clock)
    decisions = [limiter.hit({"client": f"c{number % 3}"}) for number in range(300)]
    assert sum(map(bool, decisions)) == 150
    assert decisions[-1].rule == "all"


def test_bucket_meter_and_queue_agree(face, clock):
    """Bucket, meter and queue of the same numbers give the same verdicts, and water + tokens = capacity."""
    bucket, meter, queue = (
        face(kind(7, "3/s"), clock=clock) for kind in (TokenBucket, LeakyBucket, LeakyQueue)
    )
    for step in range(120):
        clock.advance((step * 37 % 11) / 100)
        answers = {bool(limiter.hit("k", 1 + step % 2)) for limiter in (bucket, meter, queue)}
        assert len(answers) == 1
        assert meter.explain("k")["limit"].level + bucket.peek("k").balance == 7
