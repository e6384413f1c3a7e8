# A policy that is replaced while the limiter is in use.

from __future__ import annotations

import threading

import pytest

from tests.stores.racing import racing
from tidegate import (
    FixedWindow,
    LeakyQueue,
    Limiter,
    Policy,
    PolicyError,
    Rule,
    SlidingLog,
    SlidingWindow,
    TokenBucket,
)

KINDS = [  # none gives anything back within a test
    lambda size: TokenBucket(size, "0/s"),
    lambda size: LeakyQueue(size, "1/day"),
    lambda size: SlidingLog(size, "30 days"),
    lambda size: FixedWindow(size, "30 days"),
    lambda size: SlidingWindow(size, "30 days"),
]


@pytest.mark.parametrize("before", KINDS)
@pytest.mark.parametrize("after", KINDS)
def test_use_is_carried_over(face, clock, before, after):
    """C067: 10 of 12 used, then the limit is 5, of any algorithm: 0 remain, and hits are refused."""
    limiter = face(before(12), clock=clock)
    limiter.hit("k", 10)
    limiter.replace_policy(after(5))
    assert limiter.peek("k").remaining == 0
    assert not limiter.hit("k")
    assert limiter.hit("other", 5)


@pytest.mark.parametrize("after", KINDS)
def test_a_change_refills_nothing(face, clock, after):
    """C165: after 10 of 12, a limit of 50 leaves 2 and not 40; and back again it leaves no more."""
    limiter = face(TokenBucket(12, "0/s"), clock=clock)
    limiter.hit("k", 10)
    limiter.replace_policy(after(50))
    assert limiter.peek("k").remaining == 2
    limiter.replace_policy(TokenBucket(12, "0/s"))
    assert limiter.peek("k").remaining <= 2


def test_a_new_rate_is_in_force_at_once(face, clock):
    """C165: 1 a second, from 5 s on 10 a second, from 6 s on 1 a second again."""
    limiter = face(TokenBucket(1, "1/s"), clock=clock)
    admitted = []
    for tenth in range(90):
        clock.set(tenth / 10)
        if tenth == 50:
            limiter.replace_policy(TokenBucket(1, "10/s"))
        if tenth == 60:
            limiter.replace_policy(TokenBucket(1, "1/s"))
        admitted.append(bool(limiter.hit("k")))
    assert sum(admitted[:50]) == 5
    assert sum(admitted[50:60]) in (9, 10)
    assert sum(admitted[60:]) in (2, 3)


def test_a_hit_that_somebody_kept(face, clock):
    """`hit = limiter.hit`, kept from before a change, decides by the new policy too."""
    limiter = face(TokenBucket(4, "0/s"), clock=clock)
    kept = limiter.hit
    kept("k", 2)
    limiter.replace_policy(TokenBucket(3, "0/s"))
    assert [bool(kept("k")) for _ in range(3)] == [True, False, False]
    assert kept("k").limit.capacity == 3
    limiter.replace_policy(Policy([Rule("org", TokenBucket(1, "0/s"), by=("org",))]))
    assert kept({"org": "a"}).rule == "org"
    limiter.replace_policy([Rule("shut", mode="deny")])
    assert kept("k").rule == "shut"


def test_a_kept_hit_never_sees_an_old_limit(clock):
    """The compiled hit of an older policy decides no key any more, also one that was not touched since."""
    limiter = Limiter(TokenBucket(10, "0/s"), clock=clock)
    kept = limiter.hit
    kept("k", 1)
    limiter.replace_policy(TokenBucket(3, "0/s"))
    assert kept("k", 3).limit == TokenBucket(3, "0/s")
    assert kept("k", 3).limit == TokenBucket(3, "0/s")


def test_a_bad_policy_changes_nothing(face, clock):
    """A policy that is none is an error, and the one in force stays."""
    limiter = face(TokenBucket(1, "0/s"), clock=clock)
    with pytest.raises(PolicyError):
        limiter.replace_policy("5/s")
    assert limiter.policy == Policy.of(TokenBucket(1, "0/s"))
    assert [bool(limiter.hit("k")) for _ in range(2)] == [True, False]


def test_a_rule_by_its_name_keeps_its_state(face, clock):
    """State belongs to the rule's name: a new name starts afresh, and the old one finds what it had."""
    first = Policy([Rule("a", TokenBucket(2, "0/s"), by=("key",))])
    limiter = face(first, clock=clock)
    limiter.hit("k", 2)
    limiter.replace_policy([Rule("b", TokenBucket(2, "0/s"), by=("key",))])
    assert limiter.hit("k", 2)
    limiter.replace_policy(first)
    assert not limiter.hit("k")


@pytest.mark.real_time
@pytest.mark.parametrize("sizes", [(100, 100), (100, 60), (40, 100)])
def test_a_policy_replaced_under_load(sizes):
    """C165: while threads hit, the policy changes again and again: never more than the larger capacity
    passes.
    """
    limiter = Limiter(TokenBucket(sizes[0], "0/s"))
    done = threading.Event()

    def reload():
        while not done.is_set():
            for size in sizes:
                limiter.replace_policy(TokenBucket(size, "0/s"))

    reloader = threading.Thread(target=reload)
    with racing():
        reloader.start()
        admitted = []

        def work():
            admitted.append(sum(bool(limiter.hit("k")) for _ in range(300)))

        workers = [threading.Thread(target=work) for _ in range(6)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        done.set()
        reloader.join()
    if sizes[0] == sizes[1]:
        assert sum(admitted) == sizes[0]
    assert 0 < sum(admitted) <= max(sizes)  # a larger limit keeps only what was left, each time anew


def test_a_batch_goes_on_under_the_new_policy(clock):
    """C165: a policy replaced while many are decided is in force for the rest of them, so that old and new
    limit never take turns.
    """
    limiter = Limiter(Policy([Rule("r", FixedWindow(3, "30 days"), by=("key",))]), clock=clock)

    def keys():
        yield from ["k"] * 3
        limiter.replace_policy(Policy([Rule("r", FixedWindow(5, "30 days"), by=("key",), cost=lambda _: 1)]))
        yield from ["k"] * 4

    answers = limiter.hit_many(keys())
    assert sum(answers.allowed) <= 5
    assert answers[6].limit == FixedWindow(5, "30 days")
