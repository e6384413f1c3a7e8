# The application that `uvicorn --workers 4` runs in the tests: one budget over a shared store.

from __future__ import annotations

import os

from fastapi import FastAPI

from tidegate import AsyncLimiter, Policy, Rule, TokenBucket
from tidegate.http.asgi import RateLimitMiddleware

app = FastAPI()


@app.get("/")
async def hello() -> dict[str, int]:
    return {"worker": os.getpid()}


limiter = AsyncLimiter(
    Policy([Rule("client", TokenBucket(20, "5/s"), by=("address",), on_outage=os.environ["ON_OUTAGE"])]),  # type: ignore[arg-type]  # the test writes one
    store=os.environ["STORE"],
    deadline="250ms",
)
app.add_middleware(RateLimitMiddleware, limiter=limiter)
