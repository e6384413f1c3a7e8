"""The store in PostgreSQL, with its two faces.

    PostgresStore.init("postgresql://owner@host/app")     once, by whoever may create a schema
    store = PostgresStore("postgresql://app@host/app")
    Limiter(..., store=store)     AsyncLimiter(..., store=store)

A decision is one function call, one statement and one round trip, exact at READ COMMITTED, and ended by the
deadline even if the server is frozen. By default the tables are UNLOGGED: a crash of the server forgets
everything, so each key may pass one capacity more, and strict rules begin empty. Tables made by
`init(logged=True)` forget nothing.

Now and then a process deletes what has been fresh for a minute: at most 1,000 rows a second, by a thread or
a task beside the callers, with a deadline of its own.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from tidegate.core.compose import Adjustment
from tidegate.core.keys import Key
from tidegate.core.outcome import Charge, Outcome
from tidegate.drive import run_blocking
from tidegate.errors import StoreError
from tidegate.stores.health import Health
from tidegate.stores.postgres import driver
from tidegate.stores.postgres.address import Address, Options, options_of, read_target
from tidegate.stores.postgres.asking import Asking, Shared
from tidegate.stores.postgres.attending import Attendant
from tidegate.stores.postgres.making import Made, make
from tidegate.stores.postgres.pool import LentPool, OwnPool
from tidegate.stores.postgres.ports import LoopPort, Port, ThreadPort
from tidegate.stores.postgres.wire import Ask
from tidegate.units import Duration

T = TypeVar("T")
