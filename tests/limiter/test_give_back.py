# Giving back: refunds, reservations that are settled or cancelled, and debts.

from __future__ import annotations

import asyncio
import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import pytest

from tests.limiter.faces import awaited
from tidegate import (
    AsyncLimiter,
    CostError,
    FixedWindow,
    Limiter,
    Policy,
    RateLimited,
    Rule,
    SlidingLog,
    SlidingWindow,
    TokenBucket,
)
from tidegate.testing import ManualClock

ALL = [TokenBucket(10, "0/s"), SlidingLog(10, "1h"), FixedWindow(10, "1h"), SlidingWindow(10, "1h")]


@pytest.fixture(params=ALL, ids=lambda limit: limit.algorithm)
def ten(request):
    """A limit of ten that gives nothing back by itself within the test, of every algorithm."""
    return request.param


def left(limiter, key="k"):
    return limiter.peek(key).balance


def test_what_was_taken_comes_back_once(face, clock, ten):
    """A refund returns what the decision took, in parts or whole, and never more than that in sum."""
    limiter = face(ten, clock=clock)
    limiter.hit("k", 2)
    d = limiter.hit("k", 6)
    assert [limiter.refund(d, part) for part in (1, 2, 4, 1)] == [1, 2, 3, 0]
    assert limiter.refund(d) == 0
    assert left(limiter) == 8


def test_refunds_go_no_lower_than_nothing_used(face, clock, ten):
    """C082: three used of ten: give back 5 and 5 again: usage is 0 and not below, and 10 of 11 pass."""
    limiter = face(ten, clock=clock)
    d = limiter.hit("k", 3)
    assert (limiter.refund(d, 5), limiter.refund(d, 5)) == (3, 0)
    assert sum(bool(limiter.hit("k")) for _ in range(11)) == 10


def test_a_refusal_has_nothing_to_give_back(face, clock, ten):
    """Refunding a refusal, a look, or what a bypass let through returns nothing."""
    limiter = face(ten, clock=clock)
    limiter.hit("k", 8)
    assert limiter.refund(limiter.hit("k", 5)) == 0
    assert limiter.refund(limiter.peek("k", 1)) == 0
    assert left(limiter) == 2
    free = face([Rule("free", mode="bypass")], clock=clock)
    assert free.refund(free.hit("k")) == 0


def test_a_late_refund_buys_no_second_burst(face, clock):
    """What has drained meanwhile does not come back: after 4 s of 1/s, 6 of 10; after 10 s nothing."""
    limiter = face(TokenBucket(10, "1/s"), clock=clock)
    early, late = limiter.hit("a", 10), limiter.hit("b", 10)
    clock.advance(4)
    assert limiter.refund(early) == 6
    clock.advance(6)
    assert limiter.refund(late) == 0


def test_a_full_refund_returns_all_that_is_still_there(face, clock):
    """A rule with give_back="full" returns up to the level, whoever filled it since."""
    rule = Rule("r", TokenBucket(10, "1/s"), by=("key",), give_back="full")
    limiter = face(Policy([rule]), clock=clock)
    d = limiter.hit("k", 6)
    clock.advance(5)
    limiter.hit("k", 9)
    assert limiter.refund(d) == 6


def test_a_window_that_has_ended_gives_nothing_back(face, clock):
    """C047: refunds for a window that has ended do nothing and create no key."""
    limiter = face(FixedWindow(5, "1s"), clock=clock)
    clock.set(0.9)
    spent = [limiter.hit("k") for _ in range(5)]
    clock.set(1.1)
    assert [limiter.refund(d) for d in spent] == [0] * 5
    clock.set(1.2)
    assert sum(bool(limiter.hit("k")) for _ in range(20)) == 5


def test_a_copy_of_a_decision_is_the_same_taking(face, clock):
    """A decision that travelled (pickled, copied) is a receipt too; it knows what had come back before."""
    limiter = face(TokenBucket(10, "0/s"), clock=clock)
    limiter.hit("k", 5)
    d = limiter.hit("k", 4)
    limiter.refund(d, 1)
    travelled = pickle.loads(pickle.dumps(d))
    assert travelled == d == copy.deepcopy(d) == copy.copy(d)
    assert limiter.refund(travelled) == 3
    assert left(limiter) == 5


def test_a_limit_that_changed_voids_refunds(face, clock):
    """What was taken under another limit cannot be given back."""
    limiter = face(TokenBucket(10, "0/s"), clock=clock)
    d = limiter.hit("k", 5)
    limiter.replace_policy(TokenBucket(12, "0/s"))
    limiter.hit("k", 1)
    assert limiter.refund(d) == 0


def test_a_refund_over_several_rules(face, clock):
    """Each rule gets its own back; the answer is what came back where least did; a price of its own stays."""
    rules = [
        Rule("fast", TokenBucket(10, "2/s"), by=("key",)),
        Rule("slow", TokenBucket(20, "1/s")),
        Rule("priced", TokenBucket(50, "0/s"), cost=3),
    ]
    limiter = face(Policy(rules), clock=clock)
    d = limiter.hit("k", 8)
    clock.advance(2)
    assert limiter.refund(d, 5) == 4
    assert {o.rule: o.balance for o in limiter.peek("k").outcomes} == {"fast": 10, "slow": 19, "priced": 47}


@pytest.mark.parametrize("cost", [-1, float("nan"), 0.0001, "1"], ids=repr)
def test_a_wrong_refund_is_an_error(face, clock, cost):
    """A refund that is no number of tokens is an error, and returns nothing."""
    limiter = face(TokenBucket(10, "0/s"), clock=clock)
    d = limiter.hit("k", 5)
    with pytest.raises(CostError, match="refund is"):
        limiter.refund(d, cost)
    assert left(limiter) == 5
    assert limiter.refund(d) == 5


# --- reservations ---


def test_settling(face, clock):
    """C089: reserve 30, settle 12: 88 left; reserve 30, settle 50: 38; settle 60 of 30: -22, then refused."""
    limiter = face(TokenBucket(100, "0/s"), clock=clock)
    assert limiter.reserve("k", 30).settle(12) == 18
    assert left(limiter) == 88
    assert limiter.reserve("k", 30).settle(50) == -20
    assert left(limiter) == 38

    assert limiter.reserve("k", 30).settle(60) == -30
    assert left(limiter) == -22
    assert not limiter.hit("k", 1)
    assert limiter.peek("k").remaining == 0
    assert limiter.reserve("k", 1).settle(50) == 0


def test_a_debt_is_earned_back(face, clock):
    """C080: bucket(50, 50) at -20: nothing can be taken; half a second later five."""
    limiter = face(TokenBucket(50, "50/s"), clock=clock)
    limiter.reserve("k", 1).settle(70)
    assert (left(limiter), limiter.hit("k").allowed, limiter.hit("k", 0).allowed) == (-20, False, False)
    assert limiter.hit("k").retry_after == 0.42
    clock.advance(0.5)
    assert (left(limiter), limiter.hit("k", 6).allowed, limiter.hit("k", 5).allowed) == (5, False, True)


@pytest.mark.parametrize(
    ("named", "lowest"), [({}, -10), ({"max_debt": 3}, -3), ({"max_debt": 0}, 0), ({"strict": True}, 0)]
)
def test_a_debt_has_a_bound(face, clock, named, lowest):
    """C079: settling overdraws at most by max_debt: by default the capacity, nothing for a strict rule."""
    limiter = face(Rule("r", TokenBucket(10, "0/s"), by=("key",), **named), clock=clock)
    limiter.reserve("k", 4).settle(1000)
    assert left(limiter) == lowest
    assert limiter.reserve("k", 1).settle(1000) == 0


def test_charging_after_the_fact(face, clock):
    """C079: log(10, 60) with costs known afterwards: 6 and 6 are charged, the third request is refused."""
    limiter = face(SlidingLog(10, "60s"), clock=clock)
    answers = []
    for _ in range(3):
        reservation = limiter.reserve("k", 1)
        answers.append(bool(reservation))
        reservation.settle(6)
    assert answers == [True, True, False]
    assert left(limiter) == -2


def test_only_the_first_settling_counts(face, clock, ten):
    """Settling or cancelling twice, in any order, changes nothing the second time."""
    limiter = face(ten, clock=clock)
    for first in ("settle", "cancel"):
        for second in ("settle", "cancel"):
            reservation = limiter.reserve("k", 2)
            before = left(limiter)
            (reservation.settle(1) if first == "settle" else reservation.cancel())
            after = left(limiter)
            assert after == before + (1 if first == "settle" else 2)
            assert (reservation.settle(5) if second == "settle" else reservation.cancel()) == 0
            assert left(limiter) == after


def test_a_cancelled_reservation_never_was(face, clock):
    """C117: after a cancel the balance is as if the reservation had never been made; a second one gives
    nothing.
    """
    limiter = face(TokenBucket(20, "10/s"), clock=clock)
    limiter.reserve("k", 15)
    clock.advance(0.1)
    second = limiter.reserve("k", 5)
    clock.advance(0.1)
    limiter.reserve("k", 1)
    clock.advance(0.1)
    assert second.cancel() == 5
    assert left(limiter) == 20 - 15 - 1 + 3
    assert second.cancel() == 0


def test_settling_for_nothing_gives_all_back(face, clock):
    """settle(0) gives all back, also in a rule that sets the price itself."""
    rules = [Rule("own", TokenBucket(10, "0/s"), by=("key",), cost=4), Rule("calls", TokenBucket(10, "0/s"))]
    limiter = face(Policy(rules), clock=clock)
    limiter.reserve("k", 3).settle(0)
    assert [o.balance for o in limiter.peek("k").outcomes] == [10, 10]


def test_settling_leaves_own_prices_alone(face, clock):
    """A rule with a price of its own keeps it, however much the work cost in the others."""
    rules = [Rule("own", TokenBucket(10, "0/s"), by=("key",), cost=4), Rule("calls", TokenBucket(10, "0/s"))]
    limiter = face(Policy(rules), clock=clock)
    limiter.reserve("k", 3).settle(5)
    assert [o.balance for o in limiter.peek("k").outcomes] == [6, 5]


@pytest.mark.parametrize("actual", [-1, float("nan"), "5", None, 0.00001], ids=repr)
def test_a_wrong_cost_leaves_the_reservation_open(face, clock, actual):
    """A settling that fails settles nothing: the right cost can still be told, or all given back."""
    limiter = face(TokenBucket(10, "0/s"), clock=clock)
    first, second = limiter.reserve("k", 4), limiter.reserve("k", 4)
    for reservation in (first, second):
        with pytest.raises(CostError, match="actual cost is"):
            reservation.settle(actual)
    assert first.settle(1) == 3
    assert second.cancel() == 4


def test_a_refused_reservation_is_false_and_harmless(face, clock):
    """A refused reservation is false; settling or cancelling it changes nothing."""
    limiter = face(TokenBucket(10, "0/s"), clock=clock)
    for end in (lambda r: r.settle(9), lambda r: r.cancel()):
        reservation = limiter.reserve("k", 11)
        assert not reservation
        assert end(reservation) == 0
    assert left(limiter) == 10


def test_a_reservation_as_a_context():
    """The body of a refused one does not run; an exception gives all back; else the estimate or the settled
    stays.
    """
    limiter = Limiter(TokenBucket(10, "0/s"), clock=ManualClock())
    with limiter.reserve("k", 4):
        assert limiter.peek("k").remaining == 6
    with limiter.reserve("k", 4) as reservation:
        reservation.settle(1)
    assert limiter.peek("k").remaining == 5
    with pytest.raises(KeyError), limiter.reserve("k", 4):
        raise KeyError
    with pytest.raises(KeyError), limiter.reserve("k", 4) as reservation:  # noqa: PT012  # the body is the point
        reservation.settle(2)
        raise KeyError
    assert limiter.peek("k").remaining == 3

    ran = []
    with pytest.raises(RateLimited) as refused, limiter.reserve("k", 4):
        ran.append(1)
    assert (ran, refused.value.decision.remaining, refused.value.retry_after) == ([], 3, None)
    assert limiter.peek("k").remaining == 3


def test_an_async_reservation_as_a_context():
    """The same with async with; a body that is cancelled gives all back."""
    limiter = AsyncLimiter(TokenBucket(10, "0/s"), clock=ManualClock())

    async def body(cost: int, how: str) -> None:
        async with await limiter.reserve("k", cost) as reservation:
            if how == "settle":
                await reservation.settle(1)
            elif how == "raise":
                raise KeyError
            elif how == "hang":
                await asyncio.Event().wait()

    async def story() -> list[int | None]:
        seen = []
        for how in ("stay", "settle"):
            await body(4, how)
            seen.append((await limiter.peek("k")).remaining)
        with pytest.raises(KeyError):
            await body(4, "raise")
        seen.append((await limiter.peek("k")).remaining)
        task = asyncio.create_task(body(4, "hang"))
        await asyncio.sleep(0)
        seen.append((await limiter.peek("k")).remaining)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        seen.append((await limiter.peek("k")).remaining)
        with pytest.raises(RateLimited):
            await body(6, "stay")
        return seen

    assert awaited(story()) == [6, 5, 5, 1, 5]


def test_concurrent_refunds_of_one_decision():
    """However many threads give back one decision in parts, in sum they get what it took."""
    limiter = Limiter(TokenBucket(1000, "0/s"))
    with ThreadPoolExecutor(8) as pool:
        for _ in range(30):
            limiter.hit("k", 500)
            d = limiter.hit("k", 100)
            assert sum(pool.map(lambda part, d=d: limiter.refund(d, part), [7] * 40)) == 100
            limiter.reset("k")


def test_concurrent_settlings_of_one_reservation():
    """Of many threads that settle or cancel one reservation exactly one does."""
    limiter = Limiter(TokenBucket(1000, "0/s"))
    with ThreadPoolExecutor(8) as pool:
        for _ in range(30):
            reservation = limiter.reserve("k", 10)
            ends = [lambda r=reservation: r.settle(4), lambda r=reservation: r.cancel()] * 8
            returned = sorted(pool.map(lambda end: end(), ends))
            assert returned[:-1] == [0] * 15
            assert returned[-1] in (Fraction(6), Fraction(10))
            limiter.reset("k")


def test_a_shadow_rule_has_no_say_in_what_came_back(clock):
    """What `refund` returns is what came back in the enforced rules, whatever a shadow rule still held."""
    rules = [
        Rule("enforced", TokenBucket(10, "0/s"), by=("key",)),
        Rule("trial", TokenBucket(10, "100/s"), by=("key",), mode="shadow"),
    ]
    limiter = Limiter(Policy(rules), clock=clock)
    decision = limiter.hit("k", 4)
    clock.advance(5)

    assert limiter.refund(decision) == 4
