"""Providers, exporters and their bounded end of life."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from contextvars import ContextVar

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from app.settings import TelemetrySettings
from app.telemetry.histogram import Histograms
from app.telemetry.redact import Redactor
from app.version import service_version

EXPORT_TIMEOUT_S = 2.0
METRIC_INTERVAL_MS = 15_000
_log = logging.getLogger("arbiter.telemetry")


class PresetIds(RandomIdGenerator):
    """Random ids, unless the next ones were chosen beforehand.

    Spans are created after the work is done, but a remote must be told the ids while it is asked. `preset` holds the
    (trace id, span id) that the next span of this context takes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.preset: ContextVar[tuple[int, int] | None] = ContextVar("preset_span_ids", default=None)

    def generate_trace_id(self) -> int:
        """The preset trace id, or a random one."""
        chosen = self.preset.get()
        return chosen[0] if chosen else super().generate_trace_id()

    def generate_span_id(self) -> int:
        """The preset span id, or a random one."""
        chosen = self.preset.get()
        return chosen[1] if chosen else super().generate_span_id()


class Telemetry:
    """The tracer and the meter of one service. Never global, so that two services can live in one process."""

    def __init__(
        self,
        settings: TelemetrySettings,
        *,
        span_exporter: SpanExporter | None = None,
        metric_reader: MetricReader | None = None,
    ) -> None:
        quiet_exporters()
        self.settings = settings
        self.redact = Redactor()
        resource = Resource.create(
            {
                "service.name": settings.service_name,
                "service.version": service_version(),
                # Two processes that count the same thing must not write into one time series.
                "service.instance.id": uuid.uuid4().hex,
            }
        )
        self.ids = PresetIds()
        self.tracer_provider = TracerProvider(
            sampler=ALWAYS_ON, resource=resource, id_generator=self.ids, shutdown_on_exit=False
        )
        if exporter := span_exporter or self._otlp_spans():
            self.tracer_provider.add_span_processor(
                BatchSpanProcessor(exporter, schedule_delay_millis=1_000, max_queue_size=4_096)
            )
        scope = InstrumentationScope("arbiter-l8", service_version())
        self.histograms = Histograms(resource, scope)
        reader = metric_reader or self._otlp_metrics()
        self.meter_provider = MeterProvider(
            [self.histograms.join(reader)] if reader else [], resource=resource, shutdown_on_exit=False
        )
        self.tracer = self.tracer_provider.get_tracer("arbiter-l8", service_version())
        self.meter = self.meter_provider.get_meter("arbiter-l8", service_version())

    def hide(self, secrets: Iterable[str]) -> None:
        """Let none of these values out with the texts that spans carry."""
        self.redact = Redactor(secrets)

    def _otlp_spans(self) -> SpanExporter | None:
        if not self.settings.enabled:
            return None
        return OTLPSpanExporter(self._url("v1/traces"), timeout=EXPORT_TIMEOUT_S)

    def _otlp_metrics(self) -> MetricReader | None:
        if not self.settings.enabled:
            return None
        exporter = OTLPMetricExporter(self._url("v1/metrics"), timeout=EXPORT_TIMEOUT_S)
        return PeriodicExportingMetricReader(
            exporter, export_interval_millis=METRIC_INTERVAL_MS, export_timeout_millis=EXPORT_TIMEOUT_S * 1_000
        )

    def _url(self, path: str) -> str:
        return f"{self.settings.endpoint.rstrip('/')}/{path}"

    def shutdown(self) -> None:
        """Send what is left, for at most `shutdown_timeout` seconds; what a dead collector did not take is dropped."""
        deadline = time.monotonic() + self.settings.shutdown_timeout
        jobs = [_in_background(self.tracer_provider.shutdown), _in_background(self.meter_provider.shutdown)]
        for job in jobs:
            job.join(max(0.0, deadline - time.monotonic()))


def _in_background(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, name="telemetry-shutdown", daemon=True)
    thread.start()
    return thread


class _Seldom(logging.Handler):
    """Turns a flood of exporter complaints into one warning in ten minutes that says how many there were."""

    def __init__(self, period: float = 600.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(logging.WARNING)
        self._period = period
        self._clock = clock
        self._next = 0.0
        self._held_back = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Pass on the first complaint of each period."""
        if self._clock() < self._next:
            self._held_back += 1
            return
        more = f" ({self._held_back} more since the last warning)" if self._held_back else ""
        self._next, self._held_back = self._clock() + self._period, 0
        _log.warning(
            "the telemetry collector takes nothing; nothing waits for it (ARBITER_TELEMETRY=false switches it off)%s",
            more,
            extra={"cause": record.getMessage().split("\n")[0][:300]},
        )


def quiet_exporters() -> None:
    """Route the SDK's own log records through few warnings."""
    sdk = logging.getLogger("opentelemetry")
    if not any(isinstance(handler, _Seldom) for handler in sdk.handlers):
        sdk.addHandler(_Seldom())
        sdk.propagate = False
