"""For tests of code that uses tidegate, and for authors of stores: a clock to move, a store that can be away,
tables to pass.
"""

from __future__ import annotations

from tidegate.testing.clock import ManualClock
from tidegate.testing.conformance import run_vectors
from tidegate.testing.distant import DistantStore
from tidegate.testing.report import Difference, Report
from tidegate.testing.traces import run_traces

__all__ = ["Difference", "DistantStore", "ManualClock", "Report", "run_traces", "run_vectors"]
