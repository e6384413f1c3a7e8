# keys and store: what operators see of real servers, and what is said where something is wrong.

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.running import Run
from tests.servers.redis_like import RedisLike
from tests.shared.stores import ADDRESSES, at_ease
from tidegate import FixedWindow, Limiter, Policy, Rule, SlidingLog, TokenBucket, open_store

ROOT = Path(__file__).resolve().parents[2]
POLICY = Policy(
    [
        Rule("organization", TokenBucket(20, "1 per 1 h"), by=("org",)),
        Rule("user", SlidingLog(5, "1h"), by=("org", "user")),
        Rule("everyone", FixedWindow(1_000, "day", "Europe/Berlin")),
    ]
)


@pytest.fixture(params=["valkey-9", "redis-6.2", "cluster", "postgres"])
def address(request: pytest.FixtureRequest) -> str:
    """A store in which three organizations have spent."""
    url = at_ease(ADDRESSES[request.param](request))
    with Limiter(POLICY, store=url) as limiter:
        for org in ("acme", "ac\x07me", "globex"):
            assert limiter.hit({"org": org, "user": "ann"}, 3)
    return url


def test_keys_are_listed(run: Run, address: str):
    """Each key with what is used of it, whatever the algorithm; what cannot be printed is an escape."""
    ran = run("keys", "list", "--store", address, columns=120)

    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0].split() == ["rule", "key", "used", "fresh", "in", "kept", "for"]
    begins = [
        "organization  acme ",
        "organization  'text:ac\\x07me' ",
        "organization  globex ",
        "user          acme ann ",
        "user          'text:ac\\x07me' ann ",
        "user          globex ann ",
        "everyone      all: ",
    ]
    assert len(lines) == 1 + len(begins)
    assert all(any(line.startswith(begin) for line in lines) for begin in begins)
    assert "of 1,000" in ran.out


def test_some_keys_are_listed(run: Run, address: str):
    """By rule and by the beginning of the first value, for programs too."""
    ran = run("keys", "list", "--store", address, "--rule", "user", "--prefix", "ac", "--json")
    told = json.loads(ran.out)

    assert sorted(key["key"] for key in told["keys"]) == [["ac\x07me", "ann"], ["acme", "ann"]]
    assert {(key["used"], key["capacity"], key["rule"]) for key in told["keys"]} == {(3.0, 5.0, "user")}


def test_a_long_list_goes_on_where_it_ended(run: Run, address: str):
    """With a small --most a cursor leads on, until all keys have been seen."""
    seen: set[str] = set()
    cursor: list[str] = []
    for _ in range(20):
        told = json.loads(run("keys", "list", "--store", address, "--most", "1", "--json", *cursor).out)
        seen |= {json.dumps([key["rule"], key["key"]]) for key in told["keys"]}
        if told["cursor"] is None:
            break
        cursor = ["--cursor", told["cursor"]]

    assert len(seen) == 7


def test_a_slow_rate_is_shown(run: Run, address: str):
    """One an hour is one an hour, and not 0 a second; a rate of 0 is told as it is."""
    shown = run("keys", "show", "--store", address, "organization", "acme")
    with Limiter(Policy([Rule("once", TokenBucket(5, "0/s"))]), store=address) as limiter:
        limiter.hit({})
    never = run("keys", "show", "--store", address, "once", "all:")

    assert "a level: capacity 20, drained at 1 an hour" in shown.words
    assert "a level: capacity 5, never drained" in never.words


def test_what_is_listed_can_be_pasted_back(run: Run, address: str):
    """Numbers, bytes, absent values, tuples, odd texts: as printed they are shown, and made fresh."""
    odd = [42, "42", b"\x00\xff", None, "-x", "a  b", "int:7", "é'", ("t", ("u", 1)), "long " * 50]
    with Limiter(POLICY, store=address) as limiter:
        for org in odd:
            limiter.hit({"org": org, "user": "bob"})
    told = json.loads(run("keys", "list", "--store", address, "--json").out)["keys"]
    printed = run("keys", "list", "--store", address, columns=120)

    assert "--json has them whole" in printed.err
    assert len(told) == 7 + 2 * len(odd)
    for key in told:
        named = [key["rule"], *key["words"]]
        shown = run("keys", "show", "--store", address, *named, columns=60)
        assert shown.code == 0
        line = next(line for line in shown.out.splitlines() if line.startswith("key"))
        assert shlex.split(line)[1:] == key["words"]
        pasted = shlex.join(key["words"])
        assert pasted in printed.out or len(pasted) > 60
        assert run("keys", "reset", "--store", address, *named).out.startswith("1 key ")
    assert run("keys", "list", "--store", address).words.startswith("no keys")


def test_a_key_that_cannot_be_named(run: Run):
    """A word that says it is a number and is none ends in a line, before any server is asked."""
    ran = run("keys", "show", "--store", "redis://127.0.0.1:1", "organization", "int:acme")

    assert ran.code == 2
    assert "write int: and a whole number" in ran.err


def test_never_more_than_most(run: Run, address: str):
    """--most is what is printed at most, whatever steps the server is read in."""
    for most in (1, 2, 3, 5):
        ran = run("keys", "list", "--store", address, "--most", str(most), columns=120)
        assert len(ran.out.splitlines()) == 1 + most
        assert "there are more; go on with --cursor" in ran.err


def test_what_others_wrote_there_is_named(run: Run, valkey: RedisLike):
    """A key of another type below our names is listed as not ours; the others are listed as ever."""
    with Limiter(POLICY, store=at_ease(valkey.url)) as limiter:
        limiter.hit({"org": "acme", "user": "ann"})
    valkey.command("LPUSH", "tidegate:{globex}:organization", "theirs")
    listed = run("keys", "list", "--store", valkey.url, "--rule", "organization")
    told = json.loads(run("keys", "list", "--store", valkey.url, "--json").out)
    shown = run("keys", "show", "--store", valkey.url, "organization", "globex")

    assert listed.code == 0
    assert len(listed.out.splitlines()) == 3
    assert "not tidegate's: a list" in listed.out
    assert "of 20" in listed.out
    assert [key["key"] for key in told["keys"] if key["foreign"] == "list"] == ["globex"]
    assert "a reset removes it" in shown.words
    assert run("keys", "reset", "--store", valkey.url, "organization", "globex").code == 0
    assert "not tidegate's" not in run("keys", "list", "--store", valkey.url).out


def test_a_key_is_shown(run: Run, address: str):
    """Its limit, what is used, and when it is fresh; 1 for a key that is not held."""
    ran = run("keys", "show", "--store", address, "user", "acme", "ann")

    assert ran.code == 0
    assert "a sliding log: at most 5" in ran.words
    assert "used 3 of 5" in ran.words
    nobody = run("keys", "show", "--store", address, "user", "acme", "bob")
    assert nobody.code == 1
    assert nobody.out.startswith("nothing is held of acme bob in user: it is as good as never used")


def test_keys_are_reset(run: Run, address: str):
    """One by its values, some by a prefix, all of a rule; the others stay."""
    assert run("keys", "reset", "--store", address, "user", "globex", "ann").out == "1 key of user reset\n"
    assert run("keys", "reset", "--store", address, "organization", "--prefix", "ac").words.startswith(
        "2 keys"
    )
    assert run("keys", "reset", "--store", address, "user", "--all", "--json").out.split() == [
        *("{", '"reset":', "3", "}"),
    ]

    assert "user" not in run("keys", "list", "--store", address).out
    with Limiter(POLICY, store=address) as limiter:
        left = limiter.peek({"org": "globex", "user": "ann"})
        assert [outcome.remaining for outcome in left.outcomes] == [17, 5, 991]


def test_a_misspelt_rule_resets_nothing(run: Run, address: str):
    """It is said that there is no such rule, and which was meant; with --json on standard error alone."""
    for words in (["acme"], ["--all"], ["--prefix", "a"]):
        ran = run("keys", "reset", "--store", address, "organisation", *words)
        assert (ran.code, ran.out) == (1, "")
        assert "no key of a rule organisation; did you mean organization?" in ran.err
    told = run("keys", "reset", "--store", address, "zzz", "--all", "--json")

    assert (told.code, json.loads(told.out)) == (1, {"reset": 0})
    assert "the rules that are known are everyone, organization and user" in told.err
    assert run("keys", "reset", "--store", address, "organization", "nobody").out.startswith("nothing was")


def test_an_empty_store_has_no_rules(run: Run, valkey: RedisLike):
    """Where nothing is held at all, that is what is said."""
    for words in (["list", "--rule", "user"], ["show", "user", "ann"]):
        ran = run("keys", words[0], "--store", valkey.url, *words[1:])
        assert (ran.code, ran.out) == (1, "")
        assert "it holds no keys at all" in ran.err
    assert "it holds no keys at all" in run("keys", "reset", "--store", valkey.url, "user", "--all").err


def test_rules_of_a_file_are_known(run: Run, address: str, write: Callable[[str], str]):
    """A rule of the file of which nothing is held is reset to no effect; others are told its names."""
    rule = "  - {name: tenant, by: [org], limit: {algorithm: token_bucket, capacity: 5, rate: 1/s}}"
    file = write(f"{rule}\nstore: '{address}'")
    known = run("keys", "reset", "--config", file, "tenant", "--all")
    misspelt = run("keys", "reset", "--config", file, "tennant", "--all")
    many = run("keys", "reset", "--config", file, "tenant", "acme", "ann")

    assert (known.code, known.out) == (0, "no key of tenant is held: nothing was reset\n")
    assert misspelt.code == 1
    assert "did you mean tenant?" in misspelt.err
    assert (many.code, many.out) == (2, "")
    assert "a key of the rule tenant has 1 value, org; 2 are given" in many.err


def test_what_to_reset_must_be_said(run: Run):
    """Neither values, nor a prefix, nor --all is an error, and so are two of them; no server is asked."""
    for words in ([], ["acme", "--all"], ["acme", "--prefix", "a"]):
        ran = run("keys", "reset", "--store", "redis://127.0.0.1:1", "organization", *words)
        assert ran.code == 2
        assert "say what to reset" in ran.err


def test_a_server_is_prepared_and_checked(run: Run, address: str):
    """Preparing says what it did, and that it was done already; check finds the server usable."""
    how = [] if address.startswith("postgresql") else ["--full"]
    first, again = run("store", "init", address, *how), run("store", "init", address, *how)
    checked = run("store", "check", address)
    told = json.loads(run("store", "check", address, "--json").out)

    assert (first.code, again.code, checked.code) == (0, 0, 0)
    assert "already" in again.words
    assert told["usable"]
    assert {finding["grade"] for finding in told["findings"]} <= {"ok", "warning"}
    assert {"version", "clock"} <= {finding["what"] for finding in told["findings"]}


def test_only_a_person_knows_that_a_server_is_new(run: Run, valkey: RedisLike):
    """Strict budgets begin empty on a server that nothing is known of, and full where it was said before."""
    policy = Policy([Rule("cap", TokenBucket(5, "1 per 1 h"), by=("org",), strict=True)])
    address = f"{at_ease(valkey.url)}&may_forget=yes"
    assert "nothing to prepare" in run("store", "init", address).words
    with Limiter(policy, store=address) as limiter:
        assert not limiter.hit({"org": "a"})
    assert "lost nothing" in run("store", "init", address).words
    too_late = run("store", "init", address, "--full")
    assert (too_late.code, too_late.out) == (1, "")
    assert "already" in too_late.err

    valkey.flush()
    assert run("store", "init", address, "--full").out == "strict budgets begin full\n"
    with Limiter(policy, store=address) as limiter:
        assert limiter.hit({"org": "a"}, 5)


def test_a_server_that_is_away(run: Run):
    """Checking says so and answers 1; the others end in a line; no password is repeated."""
    gone = "redis://:sesame@127.0.0.1:1/0"
    checked = run("store", "check", gone)
    listed = run("keys", "list", "--store", gone)

    assert (checked.code, listed.code) == (1, 2)
    assert "ERROR connection Error 111 " in checked.words
    assert listed.err.startswith("tidegate keys: ")
    assert "sesame" not in checked.out + checked.err + listed.out + listed.err


@pytest.mark.parametrize(
    "words",
    [
        *(["keys", "list"], ["keys", "show", "user", "acme"], ["keys", "reset", "user", "acme"]),
        *(["conformance", "--tables", "token_bucket"], ["store", "init", "--full"], ["store", "init"]),
    ],
)
def test_what_is_wrong_is_said_once(words: list[str]):
    """One line on standard error names the store and the reason, and the log is silent; the code is 2."""
    gone = "redis://:sesame@127.0.0.1:1/0"
    named = [gone] if words[0] == "store" else ["--store", gone]
    ran = subprocess.run(
        [sys.executable, "-m", "tidegate", *words, *named],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )

    assert (ran.returncode, ran.stdout) == (2, "")
    (line,) = ran.stderr.splitlines()
    assert line.startswith(
        f"tidegate {words[0]}: redis://***@127.0.0.1:1/0 gives no usable answer (connection)"
    )


def test_a_store_in_a_process_has_nothing_to_show(run: Run):
    """The embedded store cannot be looked into from another process, and says so."""
    for words in (["keys", "list", "--store"], ["store", "check"], ["store", "init"]):
        ran = run(*words, "memory://")
        assert ran.code == 2
        assert "lives inside one process" in ran.err


def test_logged_is_for_postgres(run: Run, valkey: RedisLike):
    """Redis has no logged tables."""
    ran = run("store", "init", valkey.url, "--logged")

    assert ran.code == 2
    assert "only PostgreSQL has logged tables" in ran.err


def test_the_checked_store_is_the_one_that_decides():
    """What `store check` opens is what a limiter opens: the options of an address are the same."""
    store = open_store("redis://127.0.0.1:1/0?deadline=20ms&prefix=shop")
    assert store.name == "redis"
    store.close()
