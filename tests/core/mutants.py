"""Loads the package with one line of it changed, beside the real one, to see who notices.

A mutant names a file, a piece of its source, and what stands there instead. A piece that is no longer there
is an error: whoever changes the law changes its mutants.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any, NamedTuple

PACKAGE = "tidegate"
NEEDED = ("testing", "drive", "limiter")


class Mutant(NamedTuple):
    """`old` stands in the file once, or `nth` (from 0) of several is meant."""

    file: str
    old: str
    new: str
    why: str
    nth: int | None = None

    def changed(self, source: str) -> str:
        """The source with the change."""
        pieces = source.split(self.old)
        assert len(pieces) == 2 or self.nth is not None, f"{self.file}: {len(pieces) - 1} times {self.old!r}"
        place = (self.nth or 0) + 1
        assert place < len(pieces), f"{self.file} no longer says {self.old!r}"
        return self.old.join(pieces[:place]) + self.new + self.old.join(pieces[place:])


class _ChangedSource(SourceFileLoader):
    """Reads the source with the change, and neither reads nor writes what was compiled of it."""

    mutant: Mutant

    def get_data(self, path: str) -> bytes:
        return self.mutant.changed(super().get_data(path).decode()).encode()

    def path_stats(self, path: Any) -> Any:
        raise OSError("never from a cache")


class _Finder(MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        self._module = f"{PACKAGE}." + mutant.file.removesuffix(".py").replace("/", ".")

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._module:
            return None
        spec = PathFinder.find_spec(fullname, path)
        assert spec is not None
        assert spec.origin is not None
        loader = _ChangedSource(fullname, spec.origin)
        loader.mutant = self._mutant
        spec.loader = loader
        return spec


@contextmanager
def loaded(mutant: Mutant) -> Iterator[ModuleType]:
    """A copy of the package with the change; the real one is back afterwards."""
    real = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == PACKAGE}
    finder = _Finder(mutant)
    for name in real:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
    try:
        copy = importlib.import_module(PACKAGE)
        for name in NEEDED:
            importlib.import_module(f"{PACKAGE}.{name}")
        yield copy
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            del sys.modules[name]
        sys.modules.update(real)
