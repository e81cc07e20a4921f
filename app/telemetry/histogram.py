"""Histograms that cost a microsecond: on every request the SDK's own would take as long as the checks they measure."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from opentelemetry.sdk.metrics import Exemplar
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    HistogramDataPoint,
    Metric,
    MetricReader,
    MetricsData,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.metrics.export import Histogram as HistogramData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from app.telemetry.place import SpanRef


class Series:
    """One histogram under one set of labels. Recorded on the event loop's thread, read by the exporter's."""

    __slots__ = ("_bounds", "_exemplars", "_largest", "_smallest", "_sum", "counts", "labels")

    def __init__(self, labels: dict[str, Any], bounds: Sequence[float]) -> None:
        self.labels = labels
        self.counts = [0] * (len(bounds) + 1)
        self._bounds = bounds
        self._sum = 0.0
        self._smallest = float("inf")
        self._largest = float("-inf")
        self._exemplars: dict[int, Exemplar] = {}

    def record(self, value: float, span: SpanRef | None = None) -> None:
        """Count a value. `span`, where it is kept, is remembered as the latest example of its bucket."""
        bucket = bisect_left(self._bounds, value)  # a bucket holds its upper bound
        self.counts[bucket] += 1
        self._sum += value
        self._smallest = min(self._smallest, value)
        self._largest = max(self._largest, value)
        if span is not None:
            self._exemplars[bucket] = Exemplar({}, value, time.time_ns(), span.span_id, span.trace_id)

    def point(self, started_ns: int, now_ns: int) -> HistogramDataPoint:
        """What was counted so far; examples are handed out once."""
        counts = self.counts.copy()
        examples, self._exemplars = self._exemplars, {}
        return HistogramDataPoint(
            attributes=self.labels,
            start_time_unix_nano=started_ns,
            time_unix_nano=now_ns,
            count=sum(counts),
            sum=self._sum,
            bucket_counts=counts,
            explicit_bounds=self._bounds,
            min=self._smallest,
            max=self._largest,
            exemplars=list(examples.values()),
        )


class Histogram:
    """A histogram of a fixed set of buckets. Labels are bounded by whoever records."""

    def __init__(
        self, name: str, unit: str, description: str, bounds: Sequence[float], labels: tuple[str, ...]
    ) -> None:
        self.name = name
        self._unit = unit
        self._description = description
        self._bounds = tuple(bounds)
        self._labels = labels
        self._series: dict[tuple[Any, ...], Series] = {}

    def at(self, *values: Any) -> Series:
        """The series under these label values, in the labels' order."""
        series = self._series.get(values)
        if series is None:
            labels = dict(zip(self._labels, values, strict=True))
            series = self._series[values] = Series(labels, self._bounds)
        return series

    def metric(self, started_ns: int, now_ns: int) -> Metric:
        """As the SDK exports it."""
        points = [series.point(started_ns, now_ns) for series in self._series.copy().values() if any(series.counts)]
        data = HistogramData(data_points=points, aggregation_temporality=AggregationTemporality.CUMULATIVE)
        return Metric(name=self.name, description=self._description, unit=self._unit, data=data)


class Histograms:
    """All histograms of one service, which join what the SDK collects on its way to the exporter."""

    def __init__(self, resource: Resource, scope: InstrumentationScope) -> None:
        self._resource = resource
        self._scope = scope
        self._made: list[Histogram] = []
        self._started_ns = time.time_ns()

    def make(self, name: str, unit: str, description: str, bounds: Sequence[float], *labels: str) -> Histogram:
        """A new histogram with labels of these names."""
        made = Histogram(name, unit, description, bounds, labels)
        self._made.append(made)
        return made

    def join(self, reader: MetricReader) -> MetricReader:
        """Let `reader` receive these beside what the SDK collects for it."""
        receive = reader._receive_metrics  # the SDK's documented hook for what is done with a collection

        def receive_all(data: MetricsData, *args: Any, **options: Any) -> None:
            receive(self._added_to(data), *args, **options)

        reader._receive_metrics = receive_all  # type: ignore[method-assign, assignment]
        return reader

    def _added_to(self, data: MetricsData) -> MetricsData:
        now_ns = time.time_ns()
        metrics = [metric for made in self._made if (metric := made.metric(self._started_ns, now_ns)).data.data_points]
        if not metrics:
            return data
        first, *others = data.resource_metrics or (self._nothing(),)
        scopes = [_joined(scope, metrics) if scope.scope == self._scope else scope for scope in first.scope_metrics]
        if self._scope not in [scope.scope for scope in scopes]:
            scopes.append(_joined(self._nothing().scope_metrics[0], metrics))
        return MetricsData(resource_metrics=[replace(first, scope_metrics=scopes), *others])

    def _nothing(self) -> ResourceMetrics:
        scope = ScopeMetrics(scope=self._scope, metrics=[], schema_url=self._scope.schema_url or "")
        return ResourceMetrics(self._resource, [scope], self._resource.schema_url)


def _joined(scope: ScopeMetrics, metrics: list[Metric]) -> ScopeMetrics:
    """One resource and one scope hold all: a receiver need not put together what belongs together."""
    return replace(scope, metrics=[*scope.metrics, *metrics])
