"""Who asks for a span of every request gets one from the FastAPI instrumentation, and no second one from us."""

from pathlib import Path

import httpx
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from app.settings import Settings
from app.telemetry.setup import Telemetry
from app.wiring import service_app

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("requests", "spans"), [("all", ["GET /systems"]), ("kept", [])])
async def test_a_cheap_request_has_a_span_only_where_all_are_asked_for(
    tmp_path: Path, requests: str, spans: list[str]
) -> None:
    settings = Settings.model_validate(
        {
            "telemetry": {"enabled": False, "requests": requests, "trace_ratio": 0.0},
            "store": {"url": f"sqlite:///{tmp_path / 'a.db'}"},
        }
    )
    exporter = InMemorySpanExporter()
    telemetry = Telemetry(settings.telemetry, span_exporter=exporter)
    app = service_app(settings, execute=False, telemetry=telemetry)
    async with app.router.lifespan_context(app) as state:

        async def with_state(scope, receive, send) -> None:
            await app({**scope, "state": dict(state or {})}, receive, send)

        transport = httpx.ASGITransport(app=with_state)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            assert (await client.get("/systems")).status_code == 200
            assert (await client.get("/livez")).status_code == 200
        telemetry.tracer_provider.force_flush()
        assert [span.name for span in exporter.get_finished_spans()] == spans
