"""The same core in virtual time: no waiting, no chance that is not seeded, the same answers on every run."""
