"""The store in PostgreSQL: one function call, one statement, one round trip for each decision."""

from __future__ import annotations

from tidegate.stores.postgres.store import AwaitedPostgresStore, PostgresStore

__all__ = ["AwaitedPostgresStore", "PostgresStore"]
