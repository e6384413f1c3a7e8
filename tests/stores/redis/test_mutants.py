# The comparison with the reference sees a script that is a little wrong: each of these changes is noticed.

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import redis

from tests.servers.redis_like import RedisLike
from tests.stores.redis import test_calls, test_exact, test_expiry, test_foreign, test_rows
from tests.stores.redis.plain import PlainStore
from tests.stores.redis.test_agreement import BUSY, POOLS, play
from tidegate import SlidingWindow, TokenBucket
from tidegate.errors import StoreError
from tidegate.stores.redis import scripts

SEEDS = 30
BUCKET, WINDOW = TokenBucket(10, "7/s"), SlidingWindow(10, "1min")
FIVE = TokenBucket(10, "5/s")


class Mutant(NamedTuple):
    """`old` stands in the file once, or `nth` (from 0) of several is meant."""

    part: str
    old: str
    new: str
    why: str
    nth: int | None = None

    def changed(self, part: str) -> str:
        """The source of a part, changed if it is the one that is meant."""
        text = scripts.source(part)
        if part != self.part:
            return text
        pieces = text.split(self.old)
        assert len(pieces) == 2 or self.nth is not None, f"{part}: {len(pieces) - 1} times {self.old!r}"
        place = (self.nth or 0) + 1
        assert place < len(pieces), f"{part} no longer says {self.old!r}"
        return self.old.join(pieces[:place]) + self.new + self.old.join(pieces[place:])


MUTANTS = [
    Mutant("decide", "fits = level <= (most", "fits = level < (most", "a last token refused"),
    Mutant("decide", "room - cost)", "room - cost + 1)", "one unit too many"),
    Mutant("decide", ") + allowance_ms)", "))", "no allowance for clocks", 0),
    Mutant("decide", "at - now > STEP_US", "at - now > 2 * STEP_US", "a long step freezes the state"),
    Mutant("decide", "at, given = now, '0'", "given = '0'", "a fresh state stays in the future"),
    Mutant("decide", "if not fits and not is_shadow", "if not fits", "a shadow rule blocks"),
    Mutant("decide", "passes, failure = take, nil", "passes, failure = true, nil", "looking charges"),
    Mutant("decide", "level, at, given = 0, now, '0'", "level, at = 0, now", "drained, refunds kept"),
    Mutant("decide", "since < at and at or since + 1", "at", "two busy periods of one name"),
    Mutant("decide", "if drain > 0 then", "if true then", "rate 0 expires"),
    Mutant("decide", "way or 'strict'", "'strict'", "always carried over strictly"),
    Mutant("decide", "(most or room - cost)", "room - cost", "no patience"),
    Mutant("decide", "if text ~= law then", "if not law then", "the first law for all"),
    Mutant("level", "gone < state.level and state.level - gone or 0, now", "state.level, now", "no drain"),
    Mutant("level", "state.since + 1, '0'", "state.since, '0'", "a refund over a step back"),
    Mutant("level", "most = max(state.level, most)", "most = max(0, most)", "a debt is lowered"),
    Mutant("level", "max(receipt.cost, receipt.mark - by_others)", "receipt.cost", "too little given back"),
    Mutant("level", "receipt.mark - by_others", "receipt.mark", "others' refunds forgotten"),
    Mutant("level", "if not receipt.is_full", "if receipt.is_full", "refunds in full"),
    Mutant("level", "or state.since ~= receipt.since", "", "busy periods mixed up"),
    Mutant("level", "undrained - receipt.own)", "undrained)", "own refunds twice"),
    Mutant("level", "sum(state.given, returned)", "state.given", "what is given back is not counted"),
    Mutant("level", "div_ceil(state.level, law.grain)", "div_floor(state.level, law.grain)", "rounded down"),
    Mutant("level", "+ max(0, state.at - now) or nil", "or nil", "the expiry forgets a clock that went back"),
    Mutant("level", "amount * law.grain or MOST", "amount * law.grain or 2 * EXACT", "no cap"),
    Mutant("fixed", "at < state.past", "at <= state.past", "a window ends too late"),
    Mutant("fixed", "aligned(at, law.length)", "at", "windows that are not aligned"),
    Mutant("fixed", "state.since + 1", "state.since", "a refund over a step back"),
    Mutant("fixed", "min(receipt.units, state.counted)", "receipt.units", "more than was counted"),
    Mutant("fixed", "cost <= law.capacity", "cost < law.capacity", "a last token refused"),
    Mutant("sliding", "div_ceil(state.before", "div_floor(state.before", "the weight rounded down"),
    Mutant("sliding", "(state.counted > 0 and 2 or 1)", "1", "forgotten before it has no weight"),
    Mutant("sliding", "== law.length and state.counted or 0", "== law.length and 0 or 0", "no window before"),
    Mutant("sliding", "min(most, law.most)", "most", "counts beyond what can be weighed"),
    Mutant("log", "{ state.at, state.total }", "{ now, state.total }", "entries at an earlier instant"),
    Mutant("log", "high, 1, until_us, true)", "high, 1, until_us)", "an entry counts too long"),
    Mutant("log", "returned = returned - returned % 1000", "", "parts of a token given back"),
    Mutant("log", "rows(key, high, past, -returned)", "rows(key, high, past, 0)", "later totals stay"),
    Mutant("log", "rows(key, first, low, returned)", "rows(key, first, low, 0)", "earlier totals stay"),
    Mutant("log", "rows(key, first, past, -base)", "rows(key, first, past, 0)", "compacted without its base"),
    Mutant("log", "shifted(added, -base)", "added", "the last entry without its base"),
    Mutant("log", "rest > 0 and receipt.at or", "", "the newest entry forgotten"),
    Mutant("carry", "max(0, before - used)", "(before - used)", "a debt counts as room"),
    Mutant("carry", "a, b, c, d = d, c, b, a", "a, b, c, d = b, a, d, c", "rates compared the wrong way"),
    Mutant("carry", "(rest > 0 and 1 or 0)", "0", "in proportion, rounded down"),
    Mutant("carry", "state.since + 1", "state.since", "refunds over a changed limit"),
    Mutant("carry", "not is_at_most(before.p", "false and not is_at_most(before.p", "drained too fast"),
    Mutant("current", "is_changed or state.at < at", "is_changed", "not moved back"),
    Mutant("current", "is_changed or state.at < at", "state.at < at", "what is carried over is not kept"),
    Mutant("current", "epoch < kind.window(law, now)", "false", "windows of long ago"),
    Mutant("current", "epochs[key], unset[key] = max(1, now), true", "epochs[key] = now", "no epoch is set"),
    Mutant("current", "law.capacity, epoch, epoch)", "0, epoch, epoch)", "what was lost begins full"),
    Mutant("current", "not state.is_carried and", "", "another law's expiry"),
    Mutant("charge", "take and cost > 0 and state.must", "cost > 0 and state.must", "looking writes"),
    Mutant("charge", "take and cost > 0 and state.must", "take and state.must", "cost 0 writes"),
    Mutant(
        "entry", "if own.text == law.text then", "if own.kind == law.kind then", "another limit's refunds"
    ),
    Mutant("entry", "format('%.0f', -more)", "format('%.0f', more)", "a debt with the wrong sign"),
    Mutant("freshened", "state.at, state.since)", "state.at, 0)", "a reset keeps refunds"),
    Mutant("freshened", "(value == '' or value == 'N1')", "false", "a reset key counts as lost"),
    Mutant("freshened", "or value == 'N1'", "", "a second reset counts as lost"),
    Mutant("exact", "return rest < 0 and", "return false and", "instants before 1970"),
    Mutant("exact", "STEP_US) and now or at", "STEP_US) and at or at", "never moved back"),
    Mutant(
        "exact", "return quotient * b > a and quotient - 1 or quotient", "return ceil(a / b)", "rounded up"
    ),
]


SEEN_ALONE: list[tuple[Mutant, Callable[[PlainStore], object]]] = [
    (
        Mutant("decide", "ceil((level / drain", "math.floor((level / drain", "an expiry rounded down", 0),
        lambda store: test_expiry.test_a_key_lives_until_it_is_fresh_and_a_minute(store, BUCKET),
    ),
    (
        Mutant(
            "exact", "ceil(fresh_in_us / 1000)", "floor(fresh_in_us / 1000)", "another expiry rounded down"
        ),
        lambda store: test_expiry.test_a_key_lives_until_it_is_fresh_and_a_minute(store, WINDOW),
    ),
    (
        Mutant("decide", "ask('PTTL', keys[i]) == -1", "false", "a missing expiry stays missing"),
        lambda store: test_expiry.test_a_missing_expiry_is_put_right(store, BUCKET, "refused"),
    ),
    (
        Mutant("decide", "level > MOST or ", "", "a level beyond the exact ones"),
        lambda store: test_foreign.test_samples(store, FIVE),
    ),
    (
        Mutant("decide", "at < -MOST or ", "", "an instant beyond the exact ones"),
        lambda store: test_foreign.check(store, b"L1 2000000 200000 1 1000 -99999999999999999 0 0", FIVE),
    ),
    (
        Mutant("current", "law.capacity, now, now), true", "0, now, now), true", "unreadable is free"),
        lambda store: test_foreign.test_samples(store, BUCKET),
    ),
    (
        Mutant("log", "and sum == total", "", "rows that do not add up"),
        lambda store: test_foreign.test_samples(store, BUCKET),
    ),
    (
        Mutant("exact", " and not find(text, '\\0', 1, true)", "", "numbers with a zero byte"),
        lambda store: test_foreign.check(store, b"L1 2000000 200000 1 10\x0000 1700000000000000 0 0", FIVE),
    ),
    (
        Mutant("level", "high, low = high + 1, low - 1e15", "low = low - 1e15", "refunds beyond 2^53"),
        test_exact.test_refunds_are_counted_beyond_the_exact_integers,
    ),
    (
        Mutant("log", "first > stays and first >= FEW", "false", "dead rows are kept for ever"),
        test_rows.test_dead_rows_are_left_out,
    ),
    (
        Mutant("log", "or base > EXACT / 2", "", "totals that grow for ever"),
        test_rows.test_totals_do_not_grow_for_ever,
    ),
    (
        Mutant("fixed", "law.is_missed = true", "", "windows that were not sent"),
        test_calls.test_windows_that_were_missed_charge_nothing,
    ),
    (
        Mutant("decide", "if value.err then", "if false then", "a key of another type"),
        test_calls.test_a_wrong_key_disturbs_nobody_else,
    ),
]


def is_noticed(store: PlainStore) -> bool:
    """Whether the comparison finds a difference within so many seeds of each pool."""
    for seed in range(SEEDS):
        for name, pool in POOLS.items():
            for strict in (False, True):
                if is_apart(store, f"{name}/{seed}", pool, strict=strict):
                    return True
        if is_apart(store, f"busy/{seed}", BUSY, steps=250, calm=True):
            return True
    return False


def is_apart(store: PlainStore, *trace: Any, **options: Any) -> bool:
    """Whether one random trace finds a difference, or an error."""
    try:
        play(store, *trace, **options)
    except (AssertionError, StoreError, redis.ResponseError):
        return True
    return False


@pytest.mark.timeout(180)
def test_the_right_scripts_are_not_noticed(shared_redis: Callable[[str], RedisLike]):
    """Without a change there is no difference, so what is noticed below is the change."""
    assert not is_noticed(PlainStore(shared_redis("redis-8")))


@pytest.mark.timeout(180)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.part}: {mutant.why}")
def test_a_wrong_script_is_noticed(shared_redis: Callable[[str], RedisLike], mutant: Mutant):
    """A script with this change answers differently from the reference."""
    changed = [scripts.assembled(name, mutant.changed) for name in ("decide", "adjust", "forget")]

    assert is_noticed(PlainStore(shared_redis("redis-8"), *changed))


@pytest.mark.parametrize(("mutant", "fails"), SEEN_ALONE, ids=[mutant.why for mutant, _ in SEEN_ALONE])
def test_a_wrong_script_fails_a_test(
    shared_redis: Callable[[str], RedisLike], mutant: Mutant, fails: Callable[[PlainStore], object]
):
    """What random charges do not meet is noticed by the test that is about it."""
    fails(PlainStore(shared_redis("redis-8")))
    changed = [scripts.assembled(name, mutant.changed) for name in ("decide", "adjust", "forget")]

    with pytest.raises((AssertionError, StoreError, redis.ResponseError, ValueError)):
        fails(PlainStore(shared_redis("redis-8"), *changed))
