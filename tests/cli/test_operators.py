# keys and store as an operator meets them: the store of a file, strict rules, long searches, ways out.

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.running import Ran, Run
from tests.servers.redis_like import RedisLike
from tests.shared.stores import ADDRESSES, at_ease
from tests.structure.markdown import blocks
from tidegate import FixedWindow, Limiter, Policy, Rule, SlidingLog, TokenBucket

ROOT = Path(__file__).resolve().parents[2]
Write = Callable[[str], str]

RULES = """\
  - {name: paid, by: [org], strict: true, limit: {algorithm: token_bucket, capacity: 5, rate: 1/h}}
  - {name: free, by: [org, user], limit: {algorithm: token_bucket, capacity: 5, rate: 1/h}}
store:
  url: {env: LIMITS}
  deadline: 10s
  may_forget: true
"""
STRICT = Policy([Rule("paid", TokenBucket(5, "1/h"), by=("org",), strict=True)])
LOOSE = Policy([Rule("free", TokenBucket(5, "1/h"), by=("org", "user"))])


@pytest.fixture(params=["valkey-9", "cluster", "postgres"])
def file(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, write: Write) -> str:
    """A policy's file whose store is a server's, below a name of its own, by way of the environment."""
    url = ADDRESSES[request.param](request)
    option = "schema: tidegate" if request.param == "postgres" else "prefix: shop"
    monkeypatch.setenv("LIMITS", url)
    return write(RULES + f"  {option}\n")


@pytest.fixture
def redis_file(valkey: RedisLike, monkeypatch: pytest.MonkeyPatch, write: Write) -> str:
    """The same on one server of which nothing is known."""
    monkeypatch.setenv("LIMITS", valkey.url)
    return write(RULES + "  prefix: shop\n")


def asked(run: Run, text: str) -> Ran:
    """What a command gives that is written as in a shell."""
    return run(*shlex.split(text), columns=120)


def limiter(file: str, policy: Policy) -> Limiter:
    """What decides by the store of the file."""
    from tidegate.config import load

    return Limiter(policy, store=load(file).store_url)


def test_the_store_of_a_file_is_that_of_the_service(run: Run, file: str):
    """All commands take the file in place of the address, and look where `serve` would."""
    with limiter(file, LOOSE) as service:
        assert service.hit({"org": "acme", "user": "ann"}, 2)

    assert "free acme ann 2 of 5" in asked(run, f"keys list --config {file}").words
    assert "used 2 of 5" in asked(run, f"keys show --config {file} free acme ann").words
    assert asked(run, f"store init --config {file}").code == 0
    assert asked(run, f"store check --config {file}").code == 0
    assert asked(run, f"keys reset --config {file} free acme ann").out == "1 key of free reset\n"
    with limiter(file, LOOSE) as service:
        assert service.peek({"org": "acme", "user": "ann"}).remaining == 5


def test_a_file_or_an_address(run: Run, redis_file: str, monkeypatch: pytest.MonkeyPatch):
    """One of the two is given; what the file wants of the environment is wanted here too."""
    for words in ("keys list", "store check", "store init", "keys show free a", "keys reset free a"):
        assert "is required" in asked(run, words).err
    for words in (
        f"keys list --store redis://a --config {redis_file}",
        f"store check redis://a --config {redis_file}",
    ):
        ran = asked(run, words)
        assert ran.code == 2
        assert "not allowed with" in ran.err
    monkeypatch.delenv("LIMITS")
    ran = asked(run, f"store check --config {redis_file}")

    assert ran.code == 2
    assert "LIMITS" in ran.err


def test_full_after_the_first_request_names_ways_out(run: Run, redis_file: str, valkey: RedisLike):
    """The code is 1, and both ways that are named are ways: one key, or all after removing the epoch."""
    with limiter(redis_file, STRICT) as service:
        assert not service.hit({"org": "acme"})
        late = asked(run, f"store init --config {redis_file} --full")
        words = " ".join(late.err.split())
        one = re.search("`tidegate (keys reset [^`]*)`", words)
        epoch = re.search(r"is the key (\S+) \(DEL\)", words)

        assert (late.code, late.out) == (1, "")
        assert one is not None
        assert epoch is not None
        named = one[1].replace("FILE", redis_file).replace("RULE", "paid").replace("VALUE", "acme")
        assert asked(run, named).code == 0
        assert service.hit({"org": "acme"}, 5)
        assert not service.hit({"org": "other"})

        assert valkey.command("DEL", epoch[1]) == 1
        again = asked(run, f"store init --config {redis_file} --full")
        assert (again.code, again.out) == (0, "strict budgets begin full\n")
        assert service.hit({"org": "other"}, 5)
        assert not service.hit({"org": "acme"})


def test_check_names_the_command_that_lets_budgets_begin_full(run: Run, valkey: RedisLike):
    """It is `store init --full`, not `store init` alone."""
    assert "`tidegate store init --full` has them begin full" in asked(run, f"store check {valkey.url}").words


def test_part_of_a_cluster_is_told(run: Run, request: pytest.FixtureRequest):
    """Where some slots have an epoch already, it is said how many, and the code is 1."""
    address = f"{at_ease(ADDRESSES['cluster'](request))}&may_forget=yes"
    with Limiter(STRICT, store=address) as service:
        assert not service.hit({"org": "acme"})
    late = run("store", "init", address, "--full", columns=120)

    assert late.code == 1
    assert "already in 1 of 16,384 slots" in " ".join(late.err.split())
    with Limiter(STRICT, store=address) as service:
        assert service.hit({"org": "globex"}, 5)
        assert not service.hit({"org": "acme"})


def test_what_is_not_held_of_a_strict_rule(run: Run, redis_file: str, valkey: RedisLike):
    """It is said when it begins empty, and that a reset makes it full; of other rules it is fresh."""
    show, by_url = f"keys show --config {redis_file}", f"keys show --store {valkey.url}?prefix=shop paid acme"
    fresh = "it is as good as never used\n"
    with limiter(redis_file, LOOSE) as service:
        service.hit({"org": "x", "user": "y"})
    assert asked(run, f"{show} paid acme").out.endswith(
        "the rule is strict, so it begins empty, at its first request\n"
    )
    assert asked(run, f"{show} free a b").out.endswith(fresh)
    assert "no key of a rule paid" in asked(run, by_url).err
    assert "begins empty, at its" in asked(run, f"keys reset --config {redis_file} paid acme").out

    with limiter(redis_file, STRICT) as service:
        assert not service.hit({"org": "acme"})
        assert "the rule is strict, so it counts as used up at 2" in asked(run, f"{show} paid acme").out
        assert "now it is full" in asked(run, f"keys reset --config {redis_file} paid acme").out
        assert asked(run, f"{show} paid acme").out.endswith(fresh)
        assert "it was fresh, and is" in asked(run, f"keys reset --config {redis_file} paid acme").out
        assert service.hit({"org": "acme"}, 5)
    with_doubt = asked(run, by_url.replace("acme", "globex")).out
    assert (
        "it is as good as never used, unless its rule is strict: then it counts as used up at 2" in with_doubt
    )


def test_an_empty_list_says_what_that_means(run: Run, redis_file: str, valkey: RedisLike):
    """Strict rules may begin empty; where the file shows that none is meant, nothing is said of them."""
    never = "no keys: whatever is not listed is as good as never used"
    by_url = asked(run, f"keys list --store {valkey.url}").words
    by_file = asked(run, f"keys list --config {redis_file}").words
    of_one = asked(run, f"keys list --config {redis_file} --rule free").words

    assert by_url.startswith(f"{never}; of a strict rule it may begin empty")
    assert by_file.startswith(f"{never}, but of paid it may begin empty")
    assert of_one == never


def test_a_misspelt_rule_leaves_no_note(run: Run, redis_file: str, valkey: RedisLike):
    """Of a rule that there is not, no key is made fresh: it would be listed as a rule from then on."""
    with limiter(redis_file, STRICT) as service:
        service.hit({"org": "acme"})
    before = valkey.command("DBSIZE")
    ran = asked(run, f"keys reset --config {redis_file} payd acme")

    assert ran.code == 1
    assert "did you mean paid?" in ran.err
    assert valkey.command("DBSIZE") == before


def test_a_misspelt_rule_has_no_list(run: Run, file: str):
    """It is said which was meant, as by reset; a rule of the file of which nothing is held has no keys."""
    for words in ("keys list --config {} --rule pade", "keys show --config {} pade acme"):
        ran = asked(run, words.format(file))
        assert (ran.code, ran.out) == (1, "")
        assert "did you mean paid?" in ran.err
    assert asked(run, f"keys list --config {file} --rule free").code == 0


def test_a_key_has_as_many_values_as_its_rule(run: Run, file: str):
    """With the file the number is known, and one that is wrong is told before the store is asked."""
    for words in ("show --config {} free acme", "reset --config {} free acme", "show --config {} free all:"):
        ran = asked(run, f"keys {words.format(file)}")
        assert (ran.code, ran.out) == (2, "")
        assert "a key of the rule free has 2 values, org and user; " in ran.err


def test_a_list_goes_on_until_it_has_as_many_as_wanted(run: Run, file: str):
    """Keys that are fresh are not shown, and do not count: ten are shown where ten are live."""
    with limiter(file, LOOSE) as service:
        people = [{"org": f"org {number}", "user": "ann"} for number in range(60)]
        service.hit_many(people)
        for one in people[10:]:
            service.reset(one)
    ten = asked(run, f"keys list --config {file} --most 10")
    single = asked(run, f"keys list --config {file} --most 1")
    told = json.loads(asked(run, f"keys list --config {file} --most 10 --json").out)

    assert len(ten.out.splitlines()) == 11
    assert len(single.out.splitlines()) == 2
    assert len(told["keys"]) == 10


def test_a_long_search_says_where_to_go_on(run: Run, redis_file: str, monkeypatch: pytest.MonkeyPatch):
    """Where too many keys do not count, it ends with a cursor, which leads to the rest."""
    monkeypatch.setattr("tidegate.cli.on_keys._IN_VAIN_MOST", 20)
    with limiter(redis_file, LOOSE) as service:
        people = [{"org": f"org {number}", "user": "ann"} for number in range(100)]
        service.hit_many(people)
        for one in people:
            service.reset(one)
    ran = asked(run, f"keys list --config {redis_file} --most 5")
    cursor = ran.err.rpartition("--cursor ")[2].strip()

    assert ran.code == 0
    assert ran.out.startswith("no keys among those looked at so far")
    assert "there may be more; go on with --cursor" in ran.err
    assert asked(run, f"keys list --config {redis_file} --most 100 --cursor {cursor}").code == 0


def test_the_table_of_the_documentation_is_what_is_printed(run: Run, valkey: RedisLike):
    """The sample in docs/cli.md, but for the times and for the order, which is the server's."""
    policy = Policy(
        [
            Rule("organization", TokenBucket(20, "1/h"), by=("org",)),
            Rule("user", SlidingLog(5, "1h"), by=("org", "user")),
            Rule("everyone", FixedWindow(1_000, "day")),
        ]
    )
    with Limiter(policy, store=at_ease(valkey.url)) as service:
        assert service.hit({"org": "acme", "user": "ann"}, 3)
        assert service.hit({"org": "ac me", "user": "bob"}, 2)
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    (sample,) = (
        block.text.partition("\n") for block in blocks(page) if block.text.startswith("$ tidegate keys list")
    )
    listed = asked(run, sample[0].removeprefix("$ tidegate ").replace("redis://localhost:6379/0", valkey.url))

    assert sorted(map(without_times, listed.out.splitlines())) == sorted(
        map(without_times, sample[2].splitlines())
    )


def without_times(line: str) -> str:
    """The line of a table, with T for every time and one space for several."""
    return " ".join(re.sub(r"( ?\b\d+ (ms|s|min|h|days?|d)\b)+", " T", line).split())


def test_many_are_fresh_after_a_reset(run: Run, file: str):
    """What is said of all keys of a rule is true whether they were fresh before or not."""
    with limiter(file, LOOSE) as service:
        for org in ("a", "b"):
            service.hit({"org": org, "user": "ann"})

    for _ in range(2):
        assert asked(run, f"keys reset --config {file} free --all").out == "2 keys of free are fresh now\n"
