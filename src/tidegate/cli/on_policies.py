"""The commands about a policy's file: serve, check, schema, explain, decide."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tidegate.cli.terminal import complain, say, say_json, width
from tidegate.clock import SystemClock
from tidegate.errors import ConfigError, MissingDependency, PolicyError, Problem, StoreError
from tidegate.simulate import trial
from tidegate.stores.opening import kind_of, open_store
from tidegate.words.describe import Figures, RuleInWords, describe, text
from tidegate.words.homes import Home, embedded, on_network
from tidegate.words.typeset import listed, paragraph

if TYPE_CHECKING:
    from tidegate.config import Config

_NAMES_SHOWN = 10


def serve(arguments: Namespace) -> int:
    """Run the server until it is stopped."""
    from tidegate.server.serve import run

    return run(arguments.config, host=arguments.host, port=arguments.port)


def check(arguments: Namespace) -> int:
    """Say that a file can be served, or list all that is wrong with it."""
    problems: Sequence[Problem] = ()
    config = None
    try:
        config = _usable(arguments.config)
        warnings = config.warnings
    except ConfigError as error:
        problems, warnings = error.problems, ()
    if arguments.json:
        told = {"valid": not problems, "problems": _told(problems), "warnings": _told(warnings)}
        say_json({"file": arguments.config, **told})
        return 2 if problems else 0
    for warning in warnings:
        complain(f"{warning} (a warning)")
    for problem in problems:
        complain(str(problem))
    if config is None:
        return 2
    names = [rule.name for rule in config.policy]
    shown = names[:_NAMES_SHOWN] + [f"{len(names) - _NAMES_SHOWN:,} more"] * (len(names) > _NAMES_SHOWN)
    say("\n".join(paragraph(f"{arguments.config} is valid: {_count(names)}, {listed(shown)}.", width())))
    return 0


def schema(_: Namespace) -> int:
    """Print the JSON Schema of the file."""
    from tidegate.config import json_schema

    say_json(json_schema())
    return 0


def explain(arguments: Namespace) -> int:
    """Say in plain words what the policy does."""
    config = _loaded(arguments.config)
    home = _home(config)
    described = describe(
        config.policy,
        home=home,
        clients=arguments.clients,
        duration_us=arguments.duration,
        target_us=arguments.target,
    )
    names = [rule.name for rule in described]
    if arguments.rule is not None:
        described = [rule for rule in described if rule.name == arguments.rule]
        if not described:
            raise PolicyError(
                f"there is no rule {arguments.rule!r} in {arguments.config}; its rules are {listed(names)}"
            )
    if arguments.json:
        say_json(
            {"file": arguments.config, "store": home.where, "rules": [_rule_told(rule) for rule in described]}
        )
        return 0
    lead = f"{arguments.config}: {_count(names)}. {_MEETS if len(names) > 1 else ''}{home.where}"
    say("\n".join([*paragraph(lead, width()), "", text(described, width=width())]))
    return 0


_MEETS = "A request must pass every one that matches it; if one refuses, none is charged. "


def decide(arguments: Namespace) -> int:
    """Say what the policy would answer, with nothing spent before; 1 if anything was refused."""
    config = _loaded(arguments.config)
    attributes: dict[str, str] = {}
    for name, value in arguments.attributes:
        if name in attributes:
            raise PolicyError(f"the attribute {name!r} is given twice; give it once")
        attributes[name] = value
    now_us = SystemClock().now_us() if arguments.at is None else arguments.at
    asked = trial.attempt(
        config.policy, attributes, cost=arguments.cost, times=arguments.times, now_us=now_us
    )
    if arguments.json:
        say_json(_trial_told(asked))
    else:
        unseen = sorted(attributes.keys() - _looked_at(config))
        if unseen:
            complain(f"no rule looks at {listed(unseen)}")
        say(trial.text(asked, width=width()))
    return 0 if asked.admitted == len(asked.decisions) else 1


def _loaded(path: str) -> Config:
    from tidegate.config import load

    return load(path)


def _usable(path: str) -> Config:
    """The configuration, if the server would take it as well."""
    from tidegate.server.settings import Settings

    config = _loaded(path)
    try:
        Settings.of(config)
        open_store(config.store_url).close()  # which connects to nothing
    except PolicyError as error:
        raise ConfigError([Problem(path, None, "", str(error))]) from None
    except (StoreError, MissingDependency) as error:
        raise ConfigError([Problem(path, None, "store", str(error))]) from None
    return config


def _looked_at(config: Config) -> set[str]:
    """The attributes that some rule looks at; a route may be given by its method and path."""
    names = {name for rule in config.policy for name in (*rule.by, *(rule.match or ()))}
    if "route" in names or any(isinstance(rule.cost, dict) for rule in config.policy):
        names |= {"route", "method", "path"}
    return names


def _home(config: Config) -> Home:
    """Where the state of the file's policy lives, in words."""
    store = config.store
    kind = kind_of(store.address)
    if kind is None or kind.maker is None:
        return embedded(store.option("max_keys"), store.option("when_full"))
    return on_network(kind.name, store.on_outage, store.option("deadline"))


def _count(names: Sequence[str]) -> str:
    return f"{len(names):,} rule{'' if len(names) == 1 else 's'}"


def _told(problems: Sequence[Problem]) -> list[dict[str, Any]]:
    return [
        {"file": one.file, "line": one.line, "path": one.path, "message": one.message} for one in problems
    ]


def _rule_told(rule: RuleInWords) -> dict[str, Any]:
    return {
        "name": rule.name,
        "mode": rule.mode,
        "limit": None if rule.limit is None else repr(rule.limit),
        "summary": rule.summary,
        "warnings": list(rule.warnings),
        "facts": {fact.about: fact.text for fact in rule.facts},
        "load": {fact.about: fact.text for fact in rule.load},
        "figures": None if rule.figures is None else _figures_told(rule.figures),
    }


def _figures_told(shown: Figures) -> dict[str, Any]:
    return {
        "burst": _number(shown.burst),
        "sustained": shown.sustained,
        "most": {most.period: _number(most.admitted) for most in shown.most},
        "most_leaving": {most.period: _number(most.leaving) for most in shown.most},
        "fresh_us": shown.refill_us,
        "longest_wait_us": shown.wait_us_most,
        "abuser_first_hour": _number(shown.abuser_first_hour),
        "abuser_next_hours": _number(shown.abuser_next_hours),
    }


def _trial_told(asked: trial.Trial) -> dict[str, Any]:
    from tidegate.server.verdict import verdict

    stretches = [
        {"first": each.first, "last": each.last, "decision": verdict(each.decision)}
        for each in asked.stretches
    ]
    return {
        "attributes": dict(asked.attributes),
        "times": len(asked.decisions),
        "admitted": asked.admitted,
        "allowed": asked.decisions[-1].allowed,
        "answers": stretches,
    }


def _number(value: Fraction) -> int | float:
    return value.numerator if value.denominator == 1 else float(value)
