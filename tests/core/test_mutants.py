"""The tables notice every one of these mistakes in the law, on the path that has it."""

from __future__ import annotations

import pytest

import tidegate
from tests.core.engine import Case, cases, differences
from tests.core.mutants import Mutant, loaded

LAW, LEVEL, WINDOWS, LOG = "core/law.py", "core/level.py", "core/windows.py", "core/log.py"
COMPOSE, CARRY, HOT, TOGETHER = "core/compose.py", "core/carry.py", "stores/hot.py", "stores/together.py"
LAYERED = [
    Mutant(LEVEL, "cost * self.grain <= room", "cost * self.grain < room", "<="),
    Mutant(LEVEL, "cost * self.grain > self.room:", "cost * self.grain >= self.room:", "<= of the line"),
    Mutant(
        LEVEL, "max(0, level - p * elapsed_us) if elapsed_us <", "level - p * elapsed_us if 0 <", "no clamp"
    ),
    Mutant(LEVEL, "max(0, level - p * elapsed_us)", "max(0, level + p * elapsed_us)", "time fills"),
    Mutant(LEVEL, "level - p * elapsed_us)", "level - p * elapsed_us + 1)", "a unit stays"),
    Mutant(LEVEL, "div_ceil(units, self.p) if", "units // self.p if", "waits rounded down"),
    Mutant(
        LEVEL, "div_ceil(units, self.p) if", "div_ceil(units, self.p) + 1 if", "waits a microsecond too long"
    ),
    Mutant(
        LEVEL,
        "LevelState(level, now_us, busy_since_us, gi",
        "LevelState(level, at_us, busy_since_us, gi",
        "at stays",
    ),
    Mutant(
        LEVEL,
        "LevelState(level + cost * self.grain, at_us,",
        "LevelState(level, at_us,",
        "nothing is charged",
    ),
    Mutant(LEVEL, "patience_us and cost <= self.capacity:", "patience_us:", "patience beyond the capacity"),
    Mutant(LEVEL, "self.p, elapsed_us) - own)", "self.p, elapsed_us))", "own refunds forgotten"),
    Mutant(LEVEL, "receipt.mark - by_others)", "receipt.mark)", "others' refunds forgotten"),
    Mutant(LEVEL, "        if not full:", "        if full:", "refunds in full"),
    Mutant(LEVEL, " or state.busy_since_us != receipt.since_us:", ":", "busy periods mixed up"),
    Mutant(LEVEL, "most = max(state.level, min", "most = max(0, min", "a debt is lowered"),
    Mutant(
        LEVEL, "div_ceil(state.level, self.grain)", "state.level // self.grain", "carried over rounded down"
    ),
    Mutant(
        LEVEL,
        "level, now_us, busy_since_us + 1,",
        "0, now_us, busy_since_us + 1,",
        "a long step back forgives",
    ),
    Mutant(LEVEL, "self.grain - self.free)", "self.grain)", "delay_after forgotten"),
    Mutant(LAW, "at_us - now_us > STEP_US", "at_us - now_us >= STEP_US", "60 s move already"),
    Mutant(LAW, "return us + max(0, at_us - now_us) if us else 0", "return us", "the step back is not told"),
    Mutant(COMPOSE, "    if not passes:", "    if not take:", "all-or-nothing"),
    Mutant(COMPOSE, "    if outcome.charged:", "    if True:", "a refusal writes"),
    Mutant(
        COMPOSE, "if stored is None or outcome.charge.cost == 0:", "if stored is None:", "a cost of 0 writes"
    ),
    Mutant(CARRY, "return max(used, after - max(0, before - used))", "return used", "a change refills"),
    Mutant(CARRY, "before.p * law.q <= law.p", "before.p * law.q >= law.p", "the larger rate counts"),
    Mutant(
        "core/decision.py", "return max((o for o in", "return min((o for o in", "who frees first is named"
    ),
    Mutant(WINDOWS, "state.counted + cost <= self.c", "state.counted + cost < self.c", "<= of a window"),
    Mutant(WINDOWS, "if at_us < state.end_us:", "if at_us <= state.end_us:", "a window too long"),
    Mutant(
        WINDOWS, "self.used(state) + cost <= self.c", "self.used(state) + cost < self.c", "<= of two counters"
    ),
    Mutant(
        WINDOWS,
        "div_ceil(state.before * (self.parts - gone), self.parts)",
        "0",
        "the last window weighs nothing",
    ),
    Mutant(
        WINDOWS,
        "return div_ceil(state.before * (self.parts - gone),",
        "return int.__floordiv__(state.before * (self.parts - gone),",
        "rounded down",
    ),
    Mutant(WINDOWS, "* self.parts // before", "* self.parts // before - 1", "an estimate's hint too early"),
    Mutant(LOG, "self.used(state) + cost <= self.c", "self.used(state) + cost < self.c", "<= of a log"),
    Mutant(LOG, "start = bisect_right(", "start = bisect_left(", "a spend counts a microsecond too long"),
    Mutant(
        LOG,
        "[last] + self.window_us - now_us",
        "[last] + self.window_us - now_us - 1",
        "a log's hint too early",
    ),
]
ONE_OR_MANY = [
    Mutant(HOT, "allowed = after <= room", "allowed = after < room", "<="),
    Mutant(HOT, "level -= p * gone_us", "level += p * gone_us", "time fills"),
    Mutant(HOT, "level -= p * gone_us", "level -= p * gone_us + 1", "a unit too much drains"),
    Mutant(HOT, "at_ns += gone_us * 1_000", "at_ns += 0", "at stays"),
    Mutant(HOT, "if level < 0:", "if level < -room:", "no clamp"),
    Mutant(HOT, "if allowed:\n", "if True:\n", "a refusal is charged"),
    Mutant(HOT, "busy_since_ns + 1_000", "busy_since_ns", "two busy periods of one name"),
    Mutant(HOT, "< -STEP_US", "< -STEP_US * 2", "two minutes back freeze"),
]
SEVERAL = [
    Mutant(TOGETHER, "fits = after[0] <= law.room", "fits = after[0] < law.room", "<="),
    Mutant(TOGETHER, "level -= law.p * gone_us", "level += law.p * gone_us", "time fills"),
    Mutant(TOGETHER, "at_ns += gone_us * 1_000", "at_ns += 0", "at stays"),
    Mutant(TOGETHER, "            passes = False", "            pass", "nothing is refused"),
    Mutant(TOGETHER, "gone_us < -STEP_US", "gone_us < -STEP_US * 2", "two minutes back freeze"),
]
ALL = [("layered", mutant) for mutant in LAYERED]
ALL += [("compiled", mutant._replace(nth=0)) for mutant in ONE_OR_MANY]
ALL += [("many", mutant._replace(nth=1)) for mutant in ONE_OR_MANY]
ALL += [("together", mutant) for mutant in SEVERAL]

SHORT = sorted(
    (case for _, case in cases() if sum(step.get("times", 1) for step in case["steps"]) <= 200),
    key=lambda case: len(case["steps"]),
)


def noticed(case: Case, path: str, lib: object) -> bool:
    """Whether the case fails on this copy of the package."""
    try:
        return next(differences(case, path, lib), None) is not None  # type: ignore[arg-type]  # a module
    except Exception:  # noqa: BLE001  # whatever a mistake makes it raise, it is noticed
        return True


@pytest.mark.parametrize(
    ("path", "mutant"),
    [pytest.param(path, mutant, id=f"{path}: {mutant.file}: {mutant.why}") for path, mutant in ALL],
)
def test_the_tables_notice(path: str, mutant: Mutant):
    """With this one mistake in the package at least one case fails."""
    with loaded(mutant) as lib:
        assert lib is not tidegate
        assert any(noticed(case, path, lib) for case in SHORT)


def test_nothing_is_noticed_where_nothing_is_wrong():
    """A change that changes nothing passes all the tables: it is the mistakes that fail, not the copying."""
    harmless = Mutant(
        LEVEL, "state.level + cost * self.grain <= room", "room >= state.level + cost * self.grain", ""
    )
    with loaded(harmless) as lib:
        assert [case["name"] for case in SHORT if noticed(case, "layered", lib)] == []


def test_a_mutant_that_lost_its_place_is_told():
    """Where the source no longer says what a mutant changes, it is an error and no silent pass."""
    with pytest.raises(AssertionError, match=r"no longer says|0 times"):
        Mutant(LEVEL, "a line that is not there", "", "").changed("the source")
