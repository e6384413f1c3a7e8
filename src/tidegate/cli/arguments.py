"""What can be written behind `tidegate`: each command with its options, its words and its examples.

Whatever is wrong is said in one line that names the value and the way out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from tidegate import __version__
from tidegate.cli import on_limits, on_policies, on_stores, operating, readers
from tidegate.cli.layout import layout, wrapped
from tidegate.simulate.trial import TIMES_MOST
from tidegate.testing.hammer import WORKERS_MOST
from tidegate.units import Rate

_SEED_MOST = 2**63


class _Parser(argparse.ArgumentParser):
    """A parser that complains in one line and says where help is."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (help: {self.prog} --help)\n")


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments of one call; `run` is what to do with them. SystemExit after help or an error."""
    parser, commands = _parser()
    if not argv:
        parser.print_help(sys.stderr)
        parser.exit(2)
    arguments, rest = parser.parse_known_args(argv)
    if rest:  # `decide CONFIG a=b --times 3 c=d`: argparse takes the words of one place only
        command = commands[arguments.command]
        if arguments.command != "decide" or any(word.startswith("-") for word in rest):
            command.error(f"{rest[0]} is not understood here")
        try:
            arguments.attributes += [readers.attribute(word) for word in rest]
        except argparse.ArgumentTypeError as error:
            command.error(str(error))
    return arguments


def _parser() -> tuple[_Parser, dict[str, _Parser]]:
    parser = _Parser(
        prog="tidegate",
        description="Decides whether work may run now, must wait, or must be refused.",
        epilog="exit codes:\n  0  done\n  1  the answer is no: refused, differences, out of bounds\n"
        "  2  the arguments, a file or a store cannot be used\n\n"
        "'tidegate COMMAND --help' says more about each command.",
        formatter_class=layout,
    )
    parser.add_argument("--version", action="version", version=f"tidegate {__version__}")
    parser.set_defaults(command="")
    group = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)

    def command(
        name: str, run: Callable[[argparse.Namespace], int], short: str, more: str, *examples: str
    ) -> Any:
        made = group.add_parser(
            name,
            help=short,
            description=wrapped(f"{short[:1].upper()}{short[1:]}. {more}".rstrip()),
            epilog="examples:\n" + "\n".join(f"  tidegate {name} {example}".rstrip() for example in examples),
            formatter_class=layout,
        )
        made.set_defaults(run=run)
        return made

    _serve(command)
    _about_a_policy(command)
    _decide(command)
    _compare(command)
    _conformance(command)
    _hammer(command)
    operating.keys(group)
    operating.store(group)
    return parser, group.choices


def _serve(command: Callable[..., Any]) -> None:
    made = command(
        "serve",
        on_policies.serve,
        "run the decision server",
        "It answers on POST /v1/decide and on /auth, and shows the policy on a page at /. SIGHUP takes over "
        "a changed file, whole or not at all. It listens on loopback unless told otherwise.",
        "policy.yaml",
        "policy.yaml --port 9000",
    )
    made.add_argument(
        "config", nargs="?", metavar="CONFIG", help="the policy's file (default: a built-in example)"
    )
    made.add_argument("--host", help="the address to listen on, before that of the file")
    made.add_argument(
        "--port",
        type=readers.whole(0, 65_535),
        help="the port to listen on, before that of the file; 0 takes a free one",
    )


def _about_a_policy(command: Callable[..., Any]) -> None:
    made = command(
        "check",
        on_policies.check,
        "tell whether a file can be served, and if not, why",
        "All that is wrong is told at once: file, line, what stands there and what to write instead.",
        "policy.yaml",
    )
    made.add_argument("config", metavar="CONFIG", help="the policy's file")
    made.add_argument("--json", action="store_true", help="print the problems as JSON")

    command(
        "schema",
        on_policies.schema,
        "print the JSON Schema of the file, for editors",
        "",
        "> tidegate.schema.json",
    )

    made = command(
        "explain",
        on_policies.explain,
        "say in plain words what a policy does, with its numbers worked out",
        "For each rule: who shares a budget, what passes at most in any second, minute, hour and day, what "
        "callers experience, where state lives, and what it means for the backend behind it.",
        "policy.yaml",
        "policy.yaml --clients 10000 --duration 300ms --target 200ms",
    )
    made.add_argument("config", metavar="CONFIG", help="the policy's file")
    made.add_argument("--rule", metavar="NAME", help="explain this rule only")
    made.add_argument(
        "--clients",
        type=readers.whole(1, 10**12),
        default=1_000,
        metavar="N",
        help="what so many clients bursting together do to the backend (default: 1000)",
    )
    made.add_argument(
        "--duration",
        type=readers.duration,
        metavar="TIME",
        help="how long a request takes, such as 300ms: work in flight",
    )
    made.add_argument(
        "--target",
        type=readers.duration,
        metavar="TIME",
        help="the longest wait, such as 200ms: the largest queue within it",
    )
    made.add_argument("--json", action="store_true", help="print all of it as JSON")


def _decide(command: Callable[..., Any]) -> None:
    made = command(
        "decide",
        on_policies.decide,
        "say what a policy would answer to a request, with nothing spent before",
        "Attributes are what rules look at: key, address, method, path, route, or your own. Exit code 1 if "
        "any request was refused.",
        "policy.yaml address=203.0.113.7 --times 21",
        "policy.yaml org=acme route='POST /exports' --json",
    )
    made.add_argument("config", metavar="CONFIG", help="the policy's file")
    made.add_argument(
        "attributes", nargs="*", type=readers.attribute, metavar="name=value", help="the request's attributes"
    )
    made.add_argument(
        "--cost", type=readers.cost, default=1, metavar="N", help="what the call says it costs (default: 1)"
    )
    made.add_argument(
        "--times",
        type=readers.whole(1, TIMES_MOST),
        default=1,
        metavar="N",
        help="ask so many times at one instant",
    )
    made.add_argument(
        "--at",
        type=readers.instant,
        metavar="SECONDS",
        help="the instant, in seconds since 1970 (default: now)",
    )
    made.add_argument("--json", action="store_true", help="print the answers as JSON")


def _compare(command: Callable[..., Any]) -> None:
    made = command(
        "compare",
        on_limits.compare,
        "run the same traffic through every algorithm, in virtual time",
        "An app that starts, a script at full speed, and bursts at windows' boundaries: what each algorithm "
        "admits, what the backend sees at worst, who waits, what a key weighs, and which is for whom.",
        "",
        "--capacity 50 --rate 10/s",
    )
    made.add_argument(
        "--capacity", type=readers.whole(1, 10**9), default=20, metavar="N", help="tokens (default: 20)"
    )
    made.add_argument(
        "--rate", type=readers.rate, default=Rate(5), help="such as 5/s or 300/min (default: 5/s)"
    )
    made.add_argument(
        "--servers",
        type=readers.whole(1, 1_000),
        default=4,
        metavar="N",
        help="servers that share a client (default: 4)",
    )
    made.add_argument("--json", action="store_true", help="print the figures as JSON")


def _conformance(command: Callable[..., Any]) -> None:
    made = command(
        "conformance",
        on_stores.conformance,
        "tell whether a store answers exactly as it must",
        "Plays the conformance tables, and random traces beside the reference. The last line counts both; a "
        "difference is made small and shown with the command that repeats it.",
        "",
        "--store memory:// --seed 7 --traces 1000",
    )
    made.add_argument("--store", default="memory://", metavar="URL", help="the store (default: memory://)")
    made.add_argument(
        "--seed",
        type=readers.whole(0, _SEED_MOST),
        default=0,
        metavar="N",
        help="what the traces are drawn from (default: 0)",
    )
    made.add_argument(
        "--traces",
        type=readers.whole(0, 10**6),
        default=200,
        metavar="N",
        help="how many traces (default: 200)",
    )
    made.add_argument(
        "--trace",
        type=readers.whole(0, 10**6),
        metavar="N",
        help="play this one trace of the seed, and no tables",
    )
    made.add_argument(
        "--tables", metavar="NAME", help="play this file of tables, such as token_bucket, and no traces"
    )
    made.add_argument("--case", metavar="NAME", help="play this case of the tables, and no traces")
    made.add_argument("--json", action="store_true", help="print the result as JSON")


def _hammer(command: Callable[..., Any]) -> None:
    made = command(
        "hammer",
        on_stores.hammer,
        "ask a store for one key from many processes and threads at once",
        "What was admitted must lie between two bounds that follow from the limit and a stopwatch. State in "
        "memory:// lives in one process, so it is hammered with threads.",
        "--threads 8 --seconds 2",
        "--store URL --processes 8 --seconds 5 --json",
    )
    made.add_argument("--store", default="memory://", metavar="URL", help="the store (default: memory://)")
    made.add_argument(
        "--processes",
        type=readers.whole(1, WORKERS_MOST),
        metavar="N",
        help="default: 1 on memory://, else 4",
    )
    made.add_argument(
        "--threads",
        type=readers.whole(1, WORKERS_MOST),
        metavar="N",
        help="in each process (default: 8 on memory://, else 1)",
    )
    made.add_argument(
        "--seconds", type=readers.seconds, default=5.0, metavar="N", help="for how long (default: 5)"
    )
    made.add_argument(
        "--capacity", type=readers.tokens, default=100, metavar="N", help="tokens (default: 100)"
    )
    made.add_argument("--rate", type=readers.rate, default=Rate(50), help="such as 50/s (default: 50/s)")
    made.add_argument("--cost", type=readers.tokens, default=1, metavar="N", help="of each call (default: 1)")
    made.add_argument("--json", action="store_true", help="print the figures as JSON")
