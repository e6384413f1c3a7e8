"""What the server counts, for Prometheus. Labels are rules, verdicts and sources: never keys, never callers.

Every set of label values is bounded: the names of the first 100 rules are kept, later ones count as "other".
A decision only adds to plain numbers, in the one event loop that decides; they become metrics when they are
asked for. Each `Metrics` has a registry of its own, so that several servers can live in one process.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from tidegate.errors import MissingDependency, StoreUnavailable

try:
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.registry import Collector
except ImportError as error:
    raise MissingDependency(
        "the server counts with prometheus-client; install it with: pip install 'tidegate[server]'"
    ) from error

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from tidegate.core.decision import Decision
    from tidegate.core.policy import Policy
    from tidegate.stores.base import Store
    from tidegate.stores.health import HealthStats

RULES_NAMED_MOST: Final = 100
OTHER: Final = "other"
CAUSES: Final = ("request", "policy", "store")
_BUCKETS_US = (10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 250_000, 1_000_000)
BUCKETS_S: Final = tuple(us / 1_000_000 for us in _BUCKETS_US)


class Metrics(Collector):
    """The counters of one server, and the text that shows them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.held = 0
        """Requests that are held until their turn in a queue."""
        self._decisions: Counter[tuple[bool, str]] = Counter()
        self._refusals: Counter[str] = Counter()
        self._shadow_refusals: Counter[str] = Counter()
        self._durations = [0] * (len(BUCKETS_S) + 1)
        self._duration_s = 0.0
        self._failures: Counter[str] = Counter()
        self._reloads: Counter[str] = Counter()
        self._rules = 0
        self._has_shadows = False
        self._named: set[str] = set()
        self._without_store: Counter[tuple[str, bool]] = Counter()
        self._store_stats: Callable[[], tuple[int, int, int, int]] | None = None
        self._store_health: Callable[[], HealthStats] | None = None
        self.registry.register(self)

    def decided(self, decision: Decision, took_s: float) -> None:
        """Count one decision, which took so long."""
        allowed = decision.allowed
        self._decisions[allowed, decision.source] += 1
        self._durations[bisect_left(BUCKETS_S, took_s)] += 1
        self._duration_s += took_s
        if not allowed:
            self._refusals[self._bounded(decision.rule)] += 1
        if decision.source == "outage":
            for outcome in decision.outcomes:
                if outcome.outage and outcome.mode == "enforce":
                    self._without_store[self._bounded(outcome.rule), outcome.allowed] += 1
        if self._has_shadows:
            for outcome in decision.outcomes:
                if outcome.mode == "shadow" and not outcome.allowed:
                    self._shadow_refusals[self._bounded(outcome.rule)] += 1

    def failed(self, cause: str) -> None:
        """Count a request that ended without a decision."""
        self._failures[cause] += 1

    def reloaded(self, *, ok: bool) -> None:
        """Count a reload."""
        self._reloads["ok" if ok else "failed"] += 1

    def in_force(self, policy: Policy) -> None:
        """Show every rule from the beginning with what it has refused: a rate needs the 0 before the 1."""
        self._rules = len(policy)
        self._has_shadows = any(rule.mode == "shadow" for rule in policy)
        for rule in policy:
            if rule.mode == "shadow":
                self._shadow_refusals[self._bounded(rule.name)] += 0
            elif rule.mode != "bypass":
                self._refusals[self._bounded(rule.name)] += 0

    def watch(self, store: Store) -> None:
        """Show how full the store is, and how often it gave no answer, if it can tell."""
        health = getattr(store, "health", None)
        self._store_stats = getattr(store, "stats", None) if health is None else None
        self._store_health = None if health is None else health.stats

    def page(self, accept: str) -> tuple[str, bytes]:
        """The content type and the body for a scraper that accepts this."""
        encoder, content_type = choose_encoder(accept)
        return content_type, encoder(self.registry)

    def collect(self) -> Iterator[Metric]:
        """The numbers as metrics; the registry asks for them."""
        decisions = CounterMetricFamily(
            "tidegate_decisions",
            "Decisions, by verdict and by who decided: a store, the policy where no limit was asked, this "
            "node's own shares (reserve), or outage rules where the store gave no answer (outage).",
            labels=("verdict", "source"),
        )
        for (allowed, source), count in self._decisions.items():
            decisions.add_metric(("allowed" if allowed else "refused", source), count)
        yield decisions
        yield _counter(
            "tidegate_refusals", "Refused requests, by the rule that binds.", "rule", self._refusals
        )
        yield _counter(
            "tidegate_shadow_refusals",
            "Requests that a shadow rule would have refused.",
            "rule",
            self._shadow_refusals,
        )
        counts = zip([*map(str, BUCKETS_S), "+Inf"], accumulate(self._durations), strict=True)
        yield HistogramMetricFamily(
            "tidegate_decision_seconds",
            "How long a decision took, without reading the request and writing the answer.",
            buckets=list(counts),
            sum_value=self._duration_s,
        )
        yield _counter(
            "tidegate_failures",
            "Requests without a decision: malformed (request), a failing function of the policy (policy), "
            "or a store that did not answer (store).",
            "cause",
            {cause: self._failures[cause] for cause in CAUSES},
        )
        yield _counter(
            "tidegate_reloads",
            "Reloads of the configuration, by result.",
            "result",
            {result: self._reloads[result] for result in ("ok", "failed")},
        )
        yield GaugeMetricFamily(
            "tidegate_held_requests", "Requests held until their turn in a queue.", self.held
        )
        yield GaugeMetricFamily("tidegate_rules", "Rules in force.", self._rules)
        built = GaugeMetricFamily(
            "tidegate_build_info", "1, with the version that runs.", labels=("version",)
        )
        built.add_metric((_version(),), 1)
        yield built
        if self._store_stats is not None:
            yield from _store(*self._store_stats())
        if self._store_health is not None:
            yield from self._outages(self._store_health())

    def _outages(self, health: HealthStats) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "tidegate_store_up",
            "0 while the store gives no answer and is only probed, else 1.",
            not health.open,
        )
        yield CounterMetricFamily(
            "tidegate_store_outages", "Times that the store began to give no answer.", health.outages
        )
        yield _counter(
            "tidegate_store_unavailable",
            "Calls to the store without a usable answer, by cause; breaker are those that were not sent.",
            "cause",
            {cause: health.unavailable.get(cause, 0) for cause in StoreUnavailable.CAUSES},
        )
        decided = CounterMetricFamily(
            "tidegate_outage_verdicts",
            "Verdicts of a rule by its outage rule, because the store gave no answer.",
            labels=("rule", "verdict"),
        )
        for (rule, allowed), count in self._without_store.items():
            decided.add_metric((rule, "allowed" if allowed else "refused"), count)
        yield decided

    def _bounded(self, rule: str) -> str:
        if rule in self._named:
            return rule
        if len(self._named) >= RULES_NAMED_MOST:
            return OTHER
        self._named.add(rule)
        return rule


def _counter(name: str, says: str, label: str, counts: dict[str, int]) -> Metric:
    family = CounterMetricFamily(name, says, labels=(label,))
    for value, count in counts.items():
        family.add_metric((value,), count)
    return family


def _store(keys: int, keys_most: int, refused: int, forgotten: int) -> Iterator[Metric]:
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
