# What a rule in a file may say, and what is said about one that cannot be used.

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.config.written import GOOD, fits, loaded, said, with_rule
from tidegate import Limiter, Rule, SlidingLog, TokenBucket
from tidegate.core.outage import Reserve
from tidegate.testing import ManualClock

if TYPE_CHECKING:
    from pathlib import Path

BUCKET = TokenBucket(20, "5/s")


@pytest.mark.parametrize(
    ("lines", "rule"),
    [
        ((), Rule("organization", BUCKET, by=("org",))),
        (("cost: 2.5",), Rule("organization", BUCKET, by=("org",), cost=2.5)),
        (
            ('cost: {"POST /exports": 5, "/free": 0}',),
            Rule("organization", BUCKET, by=("org",), cost={"POST /exports": 5, "/free": 0}),
        ),
        (
            (
                "match:",
                "  route: POST /users/{id}",
                "  method: [GET, HEAD]",
                "  plan: [free, null]",
                "  tier: 2",
            ),
            Rule(
                "organization",
                BUCKET,
                by=("org",),
                match={
                    "route": "POST /users/{id}",
                    "method": ("GET", "HEAD"),
                    "plan": ("free", None),
                    "tier": 2,
                },
            ),
        ),
        (("mode: shadow",), Rule("organization", BUCKET, by=("org",), mode="shadow")),
        (("strict: true",), Rule("organization", BUCKET, by=("org",), strict=True)),
        (
            ("max_debt: 7", "give_back: full", "carry: proportional"),
            Rule("organization", BUCKET, by=("org",), max_debt=7, give_back="full", carry="proportional"),
        ),
        (
            ("overrides:", '  "42": {algorithm: sliding_log, limit: 5, window: 10min}'),
            Rule("organization", BUCKET, by=("org",), overrides={"42": SlidingLog(5, "10min")}),
        ),
        (("on_outage: open",), Rule("organization", BUCKET, by=("org",), on_outage="open")),
        (
            ("on_outage: open", "outage_limit: {algorithm: token_bucket, capacity: 5, rate: 1/s}"),
            Rule(
                "organization",
                BUCKET,
                by=("org",),
                on_outage="open",
                outage_limit=TokenBucket(5, "1/s"),
            ),
        ),
        (
            ("on_outage: reserve", "reserve: {share: 40%, nodes: 8, index: 7}"),
            Rule("organization", BUCKET, by=("org",), on_outage="reserve", reserve=Reserve(0.4, 8, 7)),
        ),
        (
            ("on_outage: reserve", "reserve: {share: 0.4, nodes: 8}"),
            Rule("organization", BUCKET, by=("org",), on_outage="reserve", reserve=Reserve("40%", 8)),
        ),
    ],
)
def test_a_rule_is_what_its_table_says(tmp_path: Path, lines: tuple[str, ...], rule: Rule):
    """Every key of a rule means what the parameter of the same name means in the library."""
    assert list(loaded(tmp_path, with_rule(*lines)).policy) == [rule]


def test_one_attribute_may_stand_without_a_list(tmp_path: Path):
    """C160: one name where several are possible is taken as one."""
    one = loaded(tmp_path, GOOD.replace("by: [org]", "by: org")).policy

    assert one == loaded(tmp_path, GOOD).policy


def test_deny_and_bypass_need_no_limit(tmp_path: Path):
    """C085, C086: blocked and unlimited are modes, and each is written differently from a number."""
    text = (
        "version: 1\nrules:\n"
        "  - {name: friends, mode: bypass, match: {org: acme}}\n"
        "  - {name: enemies, mode: deny, match: {org: evil}}\n"
    )
    limiter = Limiter(loaded(tmp_path, text).policy, clock=ManualClock())

    assert all(limiter.hit({"org": "acme"}) for _ in range(1000))
    refusal = limiter.hit({"org": "evil"})
    assert (refusal.allowed, refusal.retry_after, refusal.rule) == (False, None, "enemies")


def test_a_loaded_policy_decides(tmp_path: Path):
    """The worked example of the library holds for a policy from a file: twenty pass, an export costs five."""
    limiter = Limiter(loaded(tmp_path, with_rule('cost: {"POST /exports": 5}')).policy, clock=ManualClock())

    exports = [limiter.hit({"org": "acme", "route": "POST /exports"}).allowed for _ in range(5)]
    assert exports == [True] * 4 + [False]
    assert [limiter.hit({"org": "other"}).allowed for _ in range(21)] == [True] * 20 + [False]


RULE_PROBLEMS = [
    (
        "cost: 25",
        ".cost: cost 25 is above the capacity 20…",
    ),
    ("cost: -1", ".cost: cost is -1; it must not be negative"),
    (
        "cost: 0.0001",
        ".cost: cost is 0.0001; tokens are counted in thousandths…",
    ),
    ("cost: free", '.cost: cost is "free"; write one number, or one for each route: {"POST /exports": 5}'),
    ("cost: [1]", '.cost: cost is a list; write one number, or one for each route: {"POST /exports": 5}'),
    (
        "cost: {}",
        '.cost: cost is an empty table; write a cost for each route, for instance cost: {"POST /exports": 5}',
    ),
    ('cost: {"/a": -1}', '.cost["/a"]: /a is -1; it must not be negative'),
    (
        'cost: {"/a": 5, "/b": 25}',
        '.cost["/b"]: cost 25 is above the capacity 20…',
    ),
    ("mode: shadwo", '.mode: mode is "shadwo"; did you mean shadow?'),
    ("mode: block", '.mode: mode is "block"; write enforce, shadow, deny or bypass'),
    ("mode: deny", ".mode: mode 'deny' asks no limit…"),
    ('strict: "true"', '.strict: strict is "true"; write true or false'),
    ("strict: 1", ".strict: strict is 1; write true or false"),
    ("max_debt: -1", ".max_debt: max_debt is -1; it must not be negative"),
    ("give_back: all", '.give_back: give_back is "all"; write bounded or full'),
    (
        "carry: keep",
        '.carry: carry is "keep"; write strict, keep_level, keep_tokens, proportional or reset',
    ),
    ("match: {method: get}", '.match.method: method is "get"; methods are written in capitals: GET'),
    (
        "match: {method: []}",
        (
            ".match.method: method is an empty list; nothing would match; write the values that "
            "match, or remove the key"
        ),
    ),
    (
        "match: {plan: }",
        ".match.plan: plan is empty; write the value to match; [null] matches requests without the attribute",
    ),
    ("match: {plan: true}", '.match.plan: plan is true; text is wanted, so put it in quotes: "true"'),
    (
        "match: {plan: [free, 2.5]}",
        '.match.plan[1]: an entry of plan is 2.5; text is wanted, so put it in quotes: "2.5"',
    ),
    (
        "match: POST /x",
        (
            '.match: match is "POST /x"; write the attributes that a request must have, for instance '
            "match: {method: POST}"
        ),
    ),
    (
        'match: {route: "POST /x{"}',
        ".match.route: route '/x{' has a brace that is no placeholder…",
    ),
    (
        "overrides: {acme: 5/s}",
        (
            '.overrides.acme: acme is "5/s"; write a table, for instance {algorithm: token_bucket, '
            "capacity: 20, rate: 5/s}"
        ),
    ),
    (
        "overrides: {acme: {algorithm: token_bucket, capacity: 0, rate: 5/s}}",
        (
            ".overrides.acme.capacity: capacity is 0; a limit must allow something. "
            "To block, give the rule mode: deny; to allow all, mode: bypass"
        ),
    ),
    (
        "overrides: {42: {algorithm: token_bucket, capacity: 1, rate: 5/s}}",
        '.overrides: the key 42 is a number; a key is text, so write "42" in quotes',
    ),
    (
        "overrides: [acme]",
        (
            ".overrides: overrides is a list; write a limit for each value, for instance overrides: "
            "{acme: {algorithm: ...}}"
        ),
    ),
    (
        "capacity: 20",
        ": unknown key 'capacity' in a rule; it belongs to a token_bucket limit or a leaky_bucket limit",
    ),
    ("key: org", ": unknown key 'key'; did you mean 'by'?"),
    ("Cost: 5", ": unknown key 'Cost'; did you mean 'cost'?"),
    ("shadow: true", ": unknown key 'shadow'; did you mean 'mode'?"),
    (
        "colour: blue",
        (
            ": unknown key 'colour'; the keys of a rule are name, limit, by, match, cost, mode, overrides, "
            "strict, max_debt, give_back, carry, on_outage, reserve, outage_limit"
        ),
    ),
]


@pytest.mark.parametrize(("line", "problem"), RULE_PROBLEMS)
def test_a_bad_line_of_a_rule_says_what_to_write(tmp_path: Path, line: str, problem: str):
    """C160, C163: file, line, the rule by its name, what stands there, and the way out."""
    (message,) = said(tmp_path, with_rule(line))

    assert fits(message, f"policy.yaml:6: rules.organization{problem}")


def test_the_parts_of_a_rule_that_contradict_each_other_are_placed_at_the_first_of_them(tmp_path: Path):
    """A strict rule has no debt: the message stands at the line of `strict`."""
    (line,) = said(tmp_path, with_rule("max_debt: 5", "strict: true"))

    assert fits(line, "policy.yaml:7: rules.organization.strict: a strict rule …")


def test_overrides_go_by_one_attribute(tmp_path: Path):
    """With no attribute or several there is no value that an override could name."""
    override = "overrides: {acme: {algorithm: token_bucket, capacity: 1, rate: 1/s}}"
    text = with_rule(override).replace("by: [org]", "by: [org, user]")

    assert said(tmp_path, text) == [
        (
            "policy.yaml:6: rules.organization.overrides: "
            "overrides go by one attribute, and by has 2; name one, for instance by: [org]"
        )
    ]


def test_every_bad_entry_of_a_table_is_listed(tmp_path: Path):
    """Two costs that could never pass are two problems, each at its own line."""
    text = with_rule("cost:", '  "POST /a": 25', '  "POST /b": 5', '  "POST /c": 30')

    assert [line.partition(": cost")[0] for line in said(tmp_path, text)] == [
        'policy.yaml:7: rules.organization.cost["POST /a"]',
        'policy.yaml:9: rules.organization.cost["POST /c"]',
    ]


def test_a_policy_has_a_thousand_rules_at_most(tmp_path: Path):
    """More rules than a policy can hold are one problem of the list."""
    rules = "".join(f"  - {{name: r{number}, mode: bypass}}\n" for number in range(1001))

    assert said(tmp_path, f"version: 1\nrules:\n{rules}") == [
        "policy.yaml:2: rules: there are 1001 rules; the most is 1000"
    ]


def test_clashing_names_are_told_with_both_lines(tmp_path: Path):
    """Two rules of one name are an error that names the lines of both, even beside other errors."""
    second = "  - name: organization\n    limit: {algorithm: token_bucket, capacity: 0, rate: 5/s}\n"

    assert said(tmp_path, GOOD + second) == [
        'policy.yaml:6: rules[1]: the rule of line 3 is called "organization" too; rename one of them',
        (
            "policy.yaml:7: rules[1].limit.capacity: capacity is 0; a limit must allow something. "
            "To block, give the rule mode: deny; to allow all, mode: bypass"
        ),
    ]


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        ("", "1: rules is missing; write for instance rules: "),
        ("rules:\n", "2: rules: rules is empty; write for instance rules: "),
        ("rules: []\n", "2: rules: rules is an empty list, which would mean no limits; if so, say it: "),
        ("rules: {organization: 5/s}\n", "2: rules: rules is a table; write for instance rules: "),
        (
            "rules:\n  - organization\n",
            '3: rules[0]: an entry of rules is "organization"; write for instance {name: ',
        ),
        ("rules:\n  -\n", "3: rules[0]: an entry of rules is empty; write for instance {name: "),
        ("rules:\n  - mode: bypass\n", "3: rules[0]: name is missing; write for instance name: organization"),
        (
            "rules:\n  - name: 5\n    mode: deny\n",
            "3: rules[0].name: name is 5; text is wanted, so put it in quotes: ",
        ),
        ('rules:\n  - name: " "\n    mode: deny\n', '3: rules[0].name: name is " "; it must not be empty'),
    ],
)
def test_rules_are_a_list_of_named_tables(tmp_path: Path, rules: str, problem: str):
    """C163: no rules, and rules of another shape, are errors and never "no limits"."""
    (line,) = said(tmp_path, f"version: 1\n{rules}")

    assert line.startswith(f"policy.yaml:{problem}")
