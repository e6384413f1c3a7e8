"""The command line. It parses arguments and prints; what is printed is made elsewhere."""

from __future__ import annotations

from tidegate.cli.program import main

__all__ = ["main"]
