# Reads the imports of modules and says which of them break the layering.
#
# The one table to edit is LEVELS. A module belongs to the entry with the longest name that begins its own, so
# `tidegate.stores.base` has a level of its own below the other stores. Rules:
#   1. an import goes to a lower level, or stays inside one group (a tuple below) of its own level;
#   2. two groups of one level do not know each other;
#   3. no module imports itself in a circle (imports for type checkers alone do not count here, but do above);
#   4. PURE packages read no clock, no chance, no threads and no loop;
#   5. a library that is not Python's own is imported by exactly one file.
# Imports inside functions count like all others, and so do import_module("...") and __import__("...").

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

# From the bottom up. Each level is a tuple of groups; each group is a tuple of modules or packages.
LEVELS: tuple[tuple[tuple[str, ...], ...], ...] = (
    (("tidegate.errors", "tidegate.units"), ("tidegate.nearest",)),
    (("tidegate.core",),),
    (
        ("tidegate.clock",),
        ("tidegate.drive",),
        ("tidegate.stores.base", "tidegate.stores.health"),
        ("tidegate.words",),
    ),
    (("tidegate.flows",), ("tidegate.stores",)),
    (
        (
            *("tidegate.limiter", "tidegate.reservation", "tidegate.decorate", "tidegate.config"),
            *("tidegate.manner", "tidegate.own", "tidegate.ports"),
        ),
    ),
    (("tidegate",),),  # the public names: whatever stands above may use them, whatever stands below may not
    (("tidegate.http", "tidegate.integrations", "tidegate.server", "tidegate.simulate", "tidegate.testing"),),
    (("tidegate.tune",),),
    (("tidegate.cli", "tidegate.__main__"),),
)

# Upward imports for type checkers alone that are kept on purpose; each stands in docs/violations.md too.
EXCUSED = frozenset({("tidegate.errors", "tidegate.core.decision")})

PURE = ("tidegate.core", "tidegate.flows", "tidegate.words")
IMPURE_MODULES = frozenset(
    "_thread asyncio concurrent contextvars multiprocessing os queue random sched secrets select selectors "
    "signal socket ssl subprocess threading time uuid".split()
)
CLOCK_READS = frozenset({"now", "utcnow", "today"})


class Import(NamedTuple):
    """One module named by another: where, and whether only a type checker follows it."""

    target: str
    line: int
    for_types: bool


def modules_below(package: Path) -> dict[str, str]:
    """Every module of the package by its dotted name, with its source."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = path.read_text(encoding="utf-8")
    return found


def problems(modules: Mapping[str, str]) -> list[str]:
    """What breaks the rules above, a sentence each; empty if nothing does."""
    imports = {name: list(_imports(name, source, modules)) for name, source in modules.items()}
    return [
        *_misplaced(modules),
        *_upward(imports),
        *_circles(imports, modules),
        *_impure(imports, modules),
        *_shared_libraries(modules),
    ]


def libraries(modules: Mapping[str, str]) -> dict[str, set[str]]:
    """The libraries that are neither Python's nor ours, each with the modules that import it."""
    users: dict[str, set[str]] = defaultdict(set)
    for name, source in modules.items():
        for found in _imports(name, source, modules):
            top = found.target.partition(".")[0]
            if top != "tidegate" and top not in sys.stdlib_module_names:
                users[top].add(name)
    return dict(users)


def place(module: str) -> tuple[int, int] | None:
    """The level and the group of a module; None if the table does not know it."""
    best: tuple[int, tuple[int, int]] | None = None
    for height, level in enumerate(LEVELS):
        for number, group in enumerate(level):
            for entry in group:
                belongs = module == entry or (entry != "tidegate" and module.startswith(entry + "."))
                if belongs and (best is None or len(entry) > best[0]):
                    best = (len(entry), (height, number))
    return best and best[1]


def _misplaced(modules: Mapping[str, str]) -> Iterator[str]:
    for name in modules:
        if place(name) is None:
            yield f"{name} has no level: add it, or its package, to LEVELS in tests/structure/layers.py"


def _upward(imports: Mapping[str, list[Import]]) -> Iterator[str]:
    for name, found in imports.items():
        here = place(name)
        for target, line, for_types in found:
            there = place(target)
            if here is None or there is None or there == here or there[0] < here[0]:
                continue
            if for_types and (name, target) in EXCUSED:
                continue
            how = "upwards" if there[0] > here[0] else "sideways"
            yield f"{name}:{line} imports {target}, {how}; pass a function or an object in instead"


def _circles(imports: Mapping[str, list[Import]], modules: Mapping[str, str]) -> Iterator[str]:
    graph = {
        name: {found.target for found in targets if not found.for_types and found.target in modules} - {name}
        for name, targets in imports.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        yield "modules import one another in a circle: " + " > ".join(reversed(error.args[1]))


def _impure(imports: Mapping[str, list[Import]], modules: Mapping[str, str]) -> Iterator[str]:
    for name, found in imports.items():
        if not name.startswith(PURE):
            continue
        for target, line, _ in found:
            if target.partition(".")[0] in IMPURE_MODULES:
                yield f"{name}:{line} imports {target}; instants, chance and threads come in as arguments"
        for node in ast.walk(ast.parse(modules[name])):
            if isinstance(node, ast.Attribute) and node.attr in CLOCK_READS:
                owner = ast.unparse(node.value).rpartition(".")[2]
                if owner in {"datetime", "date"}:
                    yield f"{name}:{node.lineno} reads a clock by {owner}.{node.attr}"


def _shared_libraries(modules: Mapping[str, str]) -> Iterator[str]:
    for library, names in sorted(libraries(modules).items()):
        if len(names) > 1:
            yield f"{library} is imported by {', '.join(sorted(names))}; let one wrap it for the others"


def _imports(name: str, source: str, modules: Mapping[str, str]) -> Iterator[Import]:
    tree = ast.parse(source)
    is_package = any(other.startswith(name + ".") for other in modules)
    typed = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        for target in _targets(node, name, is_package, modules):
            yield Import(target, getattr(node, "lineno", 0), id(node) in typed)


def _targets(node: ast.AST, name: str, is_package: bool, modules: Mapping[str, str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            parts = name.split(".")
            kept = parts[: len(parts) - node.level + is_package]
            base = ".".join([*kept, *([node.module] if node.module else [])])
        for alias in node.names:
            whole = f"{base}.{alias.name}"
            yield whole if whole in modules else base
    elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        called = ast.unparse(node.func).rpartition(".")[2]
        if called in {"import_module", "__import__"} and isinstance(node.args[0].value, str):
            yield node.args[0].value
