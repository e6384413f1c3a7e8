# What holds for the whole suite: the real servers, how long Hypothesis searches, and that a failure can be
# repeated.
# Profiles, chosen by HYPOTHESIS_PROFILE:
#   ci    the same examples on every machine and every run; prints the blob that repeats a failure
#   dev   new random examples on every run (the default outside CI)
#   soak  the same as dev, a hundred times longer (make soak)

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.servers.fixtures"]

settings.register_profile(
    "ci",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=100,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("dev", deadline=None, max_examples=100, print_blob=True)
settings.register_profile("soak", parent=settings.get_profile("dev"), max_examples=10_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))
