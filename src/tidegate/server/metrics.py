"""What the server counts, for Prometheus. Labels are rules, verdicts and sources: never keys, never callers.

Every set of label values is bounded: the names of the first 100 rules are kept, later ones count as "other".
Each `Metrics` has a registry of its own, so that several servers can live in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final

from tidegate.errors import MissingDependency

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.registry import Collector
except ImportError as error:
    raise MissingDependency(
        "the server counts with prometheus-client; install it with: pip install 'tidegate[server]'"
    ) from error

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from tidegate.core.decision import Decision
    from tidegate.stores.base import Store

RULES_NAMED_MOST: Final = 100
OTHER: Final = "other"
_BUCKETS_S = (
    0.000_01,
    0.000_025,
    0.000_05,
    0.000_1,
    0.000_25,
    0.000_5,
    0.001,
    0.002_5,
    0.005,
    0.01,
    0.05,
    0.25,
    1.0,
)


class Metrics:
    """The counters of one server, and the text that shows them."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._decisions = Counter(
            "tidegate_decisions",
            "Decisions, by verdict and by who decided: a store, or the policy where no limit was asked.",
            ("verdict", "source"),
            registry=registry,
        )
        self._refusals = Counter(
            "tidegate_refusals", "Refused requests, by the rule that binds.", ("rule",), registry=registry
        )
        self._shadow_refusals = Counter(
            "tidegate_shadow_refusals",
            "Requests that a shadow rule would have refused.",
            ("rule",),
            registry=registry,
        )
        self.decision_seconds = Histogram(
            "tidegate_decision_seconds",
            "How long a decision took, without reading the request and writing the answer.",
            buckets=_BUCKETS_S,
            registry=registry,
        )
        self._failures = Counter(
            "tidegate_failures",
            "Requests without a decision: refused as malformed (request), by a failing function of the "
            "policy (policy), or by a store that did not answer (store).",
            ("cause",),
            registry=registry,
        )
        self._reloads = Counter(
            "tidegate_reloads", "Reloads of the configuration, by result.", ("result",), registry=registry
        )
        self.held = Gauge(
            "tidegate_held_requests", "Requests that are held until their turn in a queue.", registry=registry
        )
        self._rules = Gauge("tidegate_rules", "Rules in force.", registry=registry)
        Gauge(
            "tidegate_build_info", "1, with the version that runs.", ("version",), registry=registry
        ).labels(_version()).set(1)
        for cause in ("request", "policy", "store"):
            self._failures.labels(cause)
        for result in ("ok", "failed"):
            self._reloads.labels(result)
        self._by_verdict: dict[tuple[bool, str], Counter] = {}
        self._named: set[str] = set()

    def decided(self, decision: Decision) -> None:
        """Count one decision."""
        place = (decision.allowed, decision.source)
        counter = self._by_verdict.get(place)
        if counter is None:
            verdict = "allowed" if decision.allowed else "refused"
            counter = self._by_verdict[place] = self._decisions.labels(verdict, decision.source)
        counter.inc()
        if not decision.allowed:
            self._refusals.labels(self._bounded(decision.rule)).inc()
        for outcome in decision.outcomes:
            if outcome.mode == "shadow" and not outcome.allowed:
                self._shadow_refusals.labels(self._bounded(outcome.rule)).inc()

    def failed(self, cause: str) -> None:
        """Count a request that ended without a decision."""
        self._failures.labels(cause).inc()

    def reloaded(self, *, ok: bool) -> None:
        """Count a reload."""
        self._reloads.labels("ok" if ok else "failed").inc()

    def rules_in_force(self, names: list[str]) -> None:
        """Show every rule from the beginning with what it has refused: a rate needs the 0 before the 1."""
        self._rules.set(len(names))
        for name in names:
            self._refusals.labels(self._bounded(name))

    def watch(self, store: Store) -> None:
        """Show how full the store is, if it can tell."""
        stats = getattr(store, "stats", None)
        if stats is not None:
            self.registry.register(_StoreCollector(stats))

    def page(self, accept: str) -> tuple[str, bytes]:
        """The content type and the body for a scraper that accepts this."""
        encoder, content_type = choose_encoder(accept)
        return content_type, encoder(self.registry)

    def _bounded(self, rule: str) -> str:
        if rule in self._named:
            return rule
        if len(self._named) >= RULES_NAMED_MOST:
            return OTHER
        self._named.add(rule)
        return rule


class _StoreCollector(Collector):
    """Reads a memory store when it is asked, so that counting costs a decision nothing."""

    def __init__(self, stats: Callable[[], tuple[int, int, int, int]]) -> None:
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        keys, keys_most, refused, forgotten = self._stats()
        yield GaugeMetricFamily("tidegate_store_keys", "Keys that the store holds.", keys)
        yield GaugeMetricFamily("tidegate_store_keys_limit", "Keys that the store may hold.", keys_most)
        yield CounterMetricFamily(
            "tidegate_store_refused_for_room",
            "Requests refused because the store was full of live keys.",
            refused,
        )
        yield CounterMetricFamily(
            "tidegate_store_forgotten_alive", "Live keys that were forgotten for lack of room.", forgotten
        )


def _version() -> str:
    try:
        return version("tidegate")
    except PackageNotFoundError:
        return "unknown"  # a checkout that is not installed
