# `tidegate decide`: what a policy would answer, with nothing spent before.

from __future__ import annotations

import json

import pytest

from tests.cli.running import Run, assert_golden

AT = ("--at", "1000000000")
QUEUE = "  - {{name: line, by: [key], limit: {{algorithm: leaky_queue, capacity: {}, rate: {}}}}}"
OTHER = "  - {{name: own, by: [key], limit: {{algorithm: {}, capacity: {}, rate: {}}}}}"


def test_a_burst_and_a_refusal(run: Run):
    """Requests with one verdict in a row are told together; then each rule, as the last request met it."""
    ran = run("decide", "policy.yaml", "address=203.0.113.7", "org=acme", "--times", "51", *AT)

    assert ran.code == 1
    assert ran.out.startswith("1 to 50  allowed\n51       refused by rule address: retry after 200 ms\n")
    assert_golden("decide_80", ran.out)


def test_a_request_that_passes(run: Run):
    """One request that passes is told without a number, and the exit code is 0."""
    ran = run("decide", "policy.yaml", "address=203.0.113.7", *AT)

    assert ran.code == 0
    assert ran.out.startswith("allowed\n")


def test_the_cost_of_a_route(run: Run):
    """An export of cost 5 spends as five reads, where the rule's table says so."""
    ran = run("decide", "policy.yaml", "org=umbrella", "route=POST /exports", "--times", "21", *AT)
    assert "1 to 20  allowed\n21       refused by rule organization: retry after 100 ms" in ran.out


@pytest.mark.parametrize(
    ("capacity", "rate", "times", "last"), [(100, "100/min", 50, "29.4 s"), (20, "5/s", 20, "3.8 s")]
)
def test_a_waiting_line(run: Run, write, capacity: int, rate: str, times: int, last: str):
    """C098: fifty at once in a line of 100 per minute: the last goes at 29.4 s; twenty at 5/s: at 3.8 s."""
    ran = run("decide", write(QUEUE.format(capacity, rate)), "key=a", "--times", str(times))

    assert ran.code == 0
    assert ran.out.startswith(f"1 to {times}  allowed, to be held for 0 s to {last}\n")


def test_a_bucket_does_not_wait(run: Run, write):
    """C098: the same fifty in a token bucket of the same numbers all go at once."""
    ran = run("decide", write(OTHER.format("token_bucket", 100, "100/min")), "key=a", "--times", "50")
    assert ran.out.startswith("1 to 50  allowed\n")


def test_three_ways_to_read_ten_a_second(run: Run, write):
    """C101: of 22, a meter of 1 passes one, a capacity of 21 passes 21, a line holds twenty up to 2 s."""
    meter = run("decide", write(OTHER.format("leaky_bucket", 1, "10/s")), "key=a", "--times", "22")
    bucket = run("decide", write(OTHER.format("token_bucket", 21, "10/s")), "key=a", "--times", "22")
    line = run("decide", write(QUEUE.format(21, "10/s")), "key=a", "--times", "22")

    assert meter.out.startswith("1        allowed\n2 to 22  refused")
    assert bucket.out.startswith("1 to 21  allowed\n22       refused")
    assert line.out.startswith("1 to 21  allowed, to be held for 0 s to 2 s\n22       refused")


def test_a_cost_that_can_never_pass(run: Run):
    """Never is told from not now, with the numbers that make it so."""
    ran = run("decide", "policy.yaml", "address=203.0.113.7", "--cost", "51", *AT)

    assert ran.code == 1
    assert "refused by rule address: a cost of 51 is above the capacity 50 and can never pass" in ran.words


def test_rules_that_ask_no_limit(run: Run, write):
    """A bypass and a denial name their rule; a request that no rule speaks of is told to be so."""
    passed = run("decide", "policy.yaml", "network=internal")
    denied = run("decide", write("  - {name: blocked, mode: deny, match: {plan: none}}"), "plan=none")
    unnamed = run("decide", "own.yaml", "plan=free")

    assert (passed.code, passed.out) == (0, "allowed: it bypasses all limits, by rule internal\n")
    assert (denied.code, denied.out) == (1, "refused: it is denied, for good, by rule blocked\n")
    assert (unnamed.code, unnamed.out) == (0, "allowed: no rule speaks of it\n")


def test_a_shadow_reports(run: Run, write):
    """A shadow rule that would refuse is shown to, and refuses nothing."""
    rule = OTHER.format("token_bucket", 1, "1/s").replace("name: own", "name: own, mode: shadow")
    ran = run("decide", write(rule), "key=a", "--times", "2")

    assert (ran.code, ran.out.splitlines()[0]) == (0, "1 to 2  allowed")
    assert "refuses (shadow)" in ran.out


def test_attributes_anywhere(run: Run):
    """Attributes may stand before and behind the options; what no rule looks at is mentioned aside."""
    ran = run("decide", "policy.yaml", "--times", "2", "org=acme", "--cost", "2", "colour=blue", *AT)

    assert ran.code == 0
    assert "98 of 100" not in ran.out  # acme has 500
    assert "496 of 500" in ran.out
    assert ran.err == "no rule looks at colour\n"


def test_the_instant_matters_to_windows(run: Run, write):
    """--at sets the instant: a window of ten minutes from 300 s on is fresh in 300 s."""
    write("  - {name: own, by: [key], limit: {algorithm: fixed_window, limit: 1, window: 10min}}")
    ran = run("decide", "own.yaml", "key=a", "--times", "2", "--at", "300")
    assert "refused by rule own: retry after 300 s" in ran.out.replace("5 min", "300 s")


def test_answers_for_programs(run: Run):
    """--json tells each stretch of equal answers, with the decision in the form of the server."""
    ran = run("decide", "policy.yaml", "address=203.0.113.7", "--times", "52", "--json", *AT)
    told = json.loads(ran.out)

    assert ran.code == 1
    assert (told["times"], told["admitted"], told["allowed"]) == (52, 50, False)
    assert [(each["first"], each["last"]) for each in told["answers"]] == [(1, 50), (51, 52)]
    assert told["answers"][-1]["decision"]["rule"] == "address"
    assert told["answers"][-1]["decision"]["retry_after"] == 0.2


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["org"], "'org' must be an attribute, name=value, such as org=acme"),
        (["=x"], "'=x' must be an attribute"),
        (["a=1", "a=2"], "the attribute 'a' is given twice"),
        (["--times", "0"], "'0' must be a whole number from 1 to 100,000"),
        (["--times", "1e3"], "'1e3' must be a whole number"),
        (["--cost", "-1"], "cost is -1; it must not be negative"),
        (["--cost", "0.0001"], "tokens are counted in thousandths"),
        (["--cost", "nan"], "'nan' must be a number such as 5 or 0.5"),
        (["--at", "soon"], "'soon' must be a number"),
        (["--at", "0.0000001"], "clocks here count whole microseconds"),
        (["--times", "2", "stray"], "'stray' must be an attribute"),
        (["--bogus"], "--bogus is not understood here"),
        ([f"org={'x' * 5000}"], "key has 5000 bytes; the most is 4096"),
    ],
)
def test_bad_input_is_told_in_a_line(run: Run, argv: list[str], said: str):
    """Whatever is wrong with a request is said in one line that names the value; the exit code is 2."""
    ran = run("decide", "policy.yaml", *argv)

    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert ran.err.startswith("tidegate decide: ")
    assert ran.err.count("\n") == 1
