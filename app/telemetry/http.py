"""A span for every request, by OpenTelemetry's own FastAPI instrumentation, for those who ask for it."""

from __future__ import annotations

from fastapi import FastAPI
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from opentelemetry.metrics import NoOpMeterProvider

from app.telemetry.setup import Telemetry

NOT_INSTRUMENTED = "/evaluate,/livez,/readyz"
"""`/evaluate` makes its own spans after the work, probes are not worth any."""


def trace_every_request(app: FastAPI, telemetry: Telemetry) -> None:
    """Instrument `app` before it serves, without a span for each piece of a body. Metrics stay the middleware's.

    It costs about as much again as a cheap request does, which is why `ARBITER_TRACE_REQUESTS=all` has to be asked for.
    """
    FastAPIInstrumentor.instrument_app(
        app,
        tracer_provider=telemetry.tracer_provider,
        meter_provider=NoOpMeterProvider(),
        excluded_urls=NOT_INSTRUMENTED,
        exclude_spans=["receive", "send"],
    )
