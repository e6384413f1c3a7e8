"""A policy in plain words and exact figures: pure, above the core, used by pages and terminals."""
