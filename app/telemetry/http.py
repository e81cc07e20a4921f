"""Spans for every resource but `/evaluate`, from the FastAPI instrumentation."""

from __future__ import annotations

from fastapi import FastAPI
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from opentelemetry.metrics import NoOpMeterProvider

from app.telemetry.setup import Telemetry

NOT_TRACED = "/evaluate,/livez,/readyz"
"""`/evaluate` makes its own spans, after the work; probes are not worth any."""


def instrument(app: FastAPI, telemetry: Telemetry) -> None:
    """Trace the requests of `app`, without a span for each piece of a body. Metrics are the middleware's."""
    FastAPIInstrumentor.instrument_app(
        app,
        tracer_provider=telemetry.tracer_provider,
        meter_provider=NoOpMeterProvider(),
        excluded_urls=NOT_TRACED,
        exclude_spans=["receive", "send"],
    )
