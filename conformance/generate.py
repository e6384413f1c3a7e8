"""Writes the tables of this folder from the stories, and checks them.

    python conformance/generate.py           # write conformance/*.json
    python conformance/generate.py --check   # fail if a file differs from what would be written

The stories (`conformance/stories/`) hold cases with expectations written by hand. The oracle
(`tests/oracle/`) is asked every case: where it answers anything else than the hand-written expectation,
nothing is written and the difference is named; what the story leaves out is filled in from its answer.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from conformance.stories import STORIES  # noqa: E402  (after the path is known)
from tests.oracle.play import EXPECTED, compared  # noqa: E402  # the path has to be set first

ORDER = (
    *("op", "at_us", "at", "times", "step", "cost", "costs", "keys", "patience_us", "limit"),
    *("error", "allowed", "admitted", "rule", "remaining", "balance", "wait_us", "retry_after_us"),
    *("reset_after_us", "returned", "outcomes"),
)


def main(arguments: list[str]) -> int:
    """Write or check all tables; 1 if a file differs or the oracle contradicts a story."""
    wrong = 0
    for name in STORIES:
        about, cases = _story(name)
        played = [(case, *compared(case)) for case in cases]
        contradictions = [line for _, lines, _ in played for line in lines]
        path = HERE / f"{name}.json"
        if contradictions:
            wrong = 1
            sys.stderr.write(
                "\n".join([f"{path.name}: the oracle contradicts the story", *contradictions, ""])
            )
            continue
        text = _table(name, about, [_filled(case, answers) for case, _, answers in played])
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            wrong = 1
            sys.stderr.write(f"{path.name} differs; run python conformance/generate.py\n")
    return wrong


def _story(name: str) -> tuple[str, list[dict[str, Any]]]:
    module = importlib.import_module(f"conformance.stories.{name}")
    return module.ABOUT, module.cases()


def _filled(case: dict[str, Any], answers: list[dict[str, Any]]) -> dict[str, Any]:
    """The case with everything that the oracle answers, not only what the story expects."""
    steps = []
    for step, answer in zip(case["steps"], answers, strict=True):
        wanted = EXPECTED - ({"admitted"} if "times" not in step else set())
        merged = step | {field: answer[field] for field in wanted & set(answer)}
        steps.append({field: merged[field] for field in ORDER if field in merged})
    return case | {"steps": steps}


def _table(name: str, about: str, cases: list[dict[str, Any]]) -> str:
    """JSON with one step on a line."""
    lines = [
        "{",
        '  "format": 1,',
        f'  "story": {_one_line(name)},',
        f'  "about": {_one_line(about)},',
        '  "cases": [',
    ]
    for case in cases:
        lines.append("    {")
        lines += [f'      "{field}": {_one_line(case[field])},' for field in case if field != "steps"]
        lines.append('      "steps": [')
        lines += [f"        {_one_line(step)}," for step in case["steps"]]
        if case["steps"]:
            lines[-1] = lines[-1][:-1]
        lines += ["      ]", "    },"]
    lines[-1] = "    }"
    return "\n".join([*lines, "  ]", "}", ""])


def _one_line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
