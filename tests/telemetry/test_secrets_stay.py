"""What the service itself holds as a secret leaves in no span, whatever shape it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import SecretStr

from app.settings import EvaluationSettings, GeminiSettings, ServerSettings, Settings, StoreSettings, TelemetrySettings
from app.settings import VectorSettings as Vectors
from app.telemetry.setup import Telemetry
from app.telemetry.values import MAX_TEXT
from app.wiring import service_app
from tests.fakes import client_of

pytestmark = pytest.mark.anyio
KEY = "ci.secret-0123456789@abcdef"
SECRETS: dict[str, tuple[str, dict[str, Any]]] = {
    "token": ("plain words as a token", {"vectors": Vectors(token=SecretStr("plain words as a token"))}),
    "model": ("odd/key:shape", {"gemini": GeminiSettings(api_key=SecretStr("odd/key:shape"))}),
    "api": (KEY, {"server": ServerSettings(api_keys=(SecretStr(f"ci:submit:{KEY}"),))}),
    "audit": ("the audit's key", {"evaluation": EvaluationSettings(audit_key=SecretStr("the audit's key"))}),
}


@pytest.mark.parametrize("before", [9, MAX_TEXT - 5])
@pytest.mark.parametrize("kind", SECRETS)
async def test_none_of_the_services_own_secrets_leaves(tmp_path: Path, kind: str, before: int) -> None:
    """Not in half either: where a text is cut, it has been gone already."""
    secret, given = SECRETS[kind]
    settings = Settings(
        store=StoreSettings(url=f"sqlite:///{tmp_path}/s.db"),
        telemetry=TelemetrySettings(enabled=False, content=True, trace_ratio=1),
        **given,
    )
    exporter = InMemorySpanExporter()
    telemetry = Telemetry(settings.telemetry, span_exporter=exporter)
    raw = {"confidence": 0.2, "risk_level": "low", "narrative": f"{'. ' * (before // 2)}{secret} was said"}
    async with client_of(service_app(settings, execute=False, telemetry=telemetry)) as http:
        body = {"id": "1", "system": "sentinel-l7", "raw_output": raw, "input": {}, "label": f"low {secret}"}
        answer = await http.post("/evaluate", json=body, headers={"authorization": f"Bearer {KEY}"})
        assert answer.status_code == 200, answer.text
        telemetry.tracer_provider.force_flush()
    said = [text for span in exporter.get_finished_spans() for text in (span.attributes or {}).values()]
    assert any(". . ." in str(text) for text in said)
    assert not [text for text in said if secret[:5] in str(text) or secret[-5:] in str(text)]
