"""A service at work beside stand-ins, and everything it said about itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import anyio
import httpx
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.demo.hosting import hosted
from app.demo.sentinel import build_sentinel
from app.settings import Settings, TelemetrySettings
from app.telemetry.setup import Telemetry
from app.wiring import service_app
from tests.critics import accept, challenge, labels
from tests.fakes import client_of
from tests.unit.test_critic_config import written

VERDICT = {
    "reasoning": "seen",
    "claims": [{"text": "high", "evidence_ids": ["E1"]}],
    "verdict": "high",
    "confidence": 0.8,
}
CRITIC = {
    "signals": lambda case: {"signals": {"mentions_fee": case % 2 == 1}},
    "decision": lambda case: json.loads(challenge(rule="C2") if case == 1 else accept()),
    "category": lambda case: json.loads(labels()),
}
"""What the model answers in a critic's run, by a field that it is asked for; of the cases the first is challenged."""
POLICY = '[[floors]]\nmetric = "accuracy"\nmin = 0.1\n\n[[regressions]]\ntolerated = 0.2\n'


@dataclass
class Sample:
    """One series as Prometheus would see it."""

    name: str
    labels: dict[str, str]
    value: float


@dataclass
class Observed:
    """All series that were seen, the type of each metric, all spans that were kept, and what the judge was told of
    traces."""

    samples: list[Sample] = field(default_factory=list)
    types: dict[str, str] = field(default_factory=dict)
    spans: tuple[ReadableSpan, ...] = ()
    told: list[str] = field(default_factory=list)

    def labels_of(self, name: str) -> dict[str, set[str]]:
        """The values of each label of a metric; `job` and `instance` are those that the collector adds."""
        found: dict[str, set[str]] = {}
        for sample in self.samples:
            if sample.name == name:
                for label, value in {"job": "arbiter-l8", "instance": "i", **sample.labels}.items():
                    found.setdefault(label, set()).add(value)
        return found


def model(script: dict[str, bool], told: list[str]) -> Starlette:
    """An Ollama server; while `script["down"]` it answers 500. `told` gets every `traceparent` that it was sent."""

    async def chat(request: Request) -> Response:
        told.append(request.headers.get("traceparent", ""))
        if script["down"]:
            return JSONResponse({"error": "out of memory"}, 500)
        asked = await request.json()
        content = "maybe" if script["babbles"] else json.dumps(_answer(asked))
        return JSONResponse(
            {"message": {"content": content}, "done_reason": "stop", "prompt_eval_count": 90, "eval_count": 7}
        )

    return Starlette(routes=[Route("/api/chat", chat, methods=["POST"])])


def _answer(asked: dict[str, Any]) -> dict[str, Any]:
    fields = asked["format"]["properties"]
    for field_, say in CRITIC.items():
        if field_ in fields:
            found = re.findall(r'"case":(\d)', asked["messages"][0]["content"])
            return dict(say(int(found[-1]) if found else 0))
    return VERDICT


@contextmanager
def settings_of(
    folder: Path, script: dict[str, bool], told: list[str] | None = None, **telemetry: Any
) -> Iterator[Settings]:
    """Settings of a service that asks a Sentinel, of whose providers one fails, an Ollama and a Gemini that is down."""
    told = [] if told is None else told
    slow = build_sentinel(latency=0.02, per_minute=None, failing=frozenset({"vertexai"}))
    with hosted(slow) as sentinel, hosted(model(script, told)) as ollama:
        yield Settings.model_validate(
            {
                "sentinel": {"url": f"{sentinel}/mcp", "rate_per_minute": None},
                "ollama": {"host": ollama},
                "gemini": {"api_key": "k", "url": f"{ollama}/nowhere"},
                "store": {"url": f"sqlite:///{folder}/observed.db"},
                "telemetry": {"trace_ratio": 1.0, **telemetry},
                "evaluation": {"audit_rate": 0.5},
                "network": {"breaker_minimum_calls": 4},
                "critic": {"classifiers": (written(folder),)},
            }
        )


async def observe(folder: Path) -> Observed:
    """Let a service do everything it can, and read what it said."""
    script = {"down": False, "babbles": False}
    registry, spans = CollectorRegistry(), InMemorySpanExporter()
    observed = Observed()
    with settings_of(folder, script, observed.told) as settings:
        telemetry = in_memory(settings.telemetry, spans, registry)
        async with client_of(service_app(settings, telemetry=telemetry)) as http:
            await run_critic(http)
            await evaluate_all(http, script)
            await run_and_judge(http, lambda: _read(registry, observed))
            _read(registry, observed)
        telemetry.tracer_provider.force_flush()
    observed.spans = spans.get_finished_spans()
    return observed


def in_memory(settings: TelemetrySettings, spans: SpanExporter, registry: CollectorRegistry) -> Telemetry:
    """A telemetry whose metrics are translated to Prometheus' by the reader of OpenTelemetry's own exporter."""
    reader = PrometheusMetricReader(disable_target_info=True, scope_info_enabled=False, registry=registry)
    return Telemetry(settings, span_exporter=spans, metric_reader=reader)


def prediction(number: int, confidence: float, label: str = "high") -> dict[str, Any]:
    raw = {
        "source": "cache_miss", "is_threat": True, "message": f"Transaction {number} analysed.", "elapsed_ms": 5120,
        "risk_level": label, "confidence": confidence, "policy_refs": ["AML-BSA-001"],
        "narrative": f"Repeated cash deposits suggest structuring under AML-BSA-001, case {number}.",
    }  # fmt: skip
    asked = {"amount": 9800 + number, "currency": "USD", "merchant": "Cash Desk", "category": "cash"}
    return {"id": f"txn-{number}", "system": "sentinel-l7", "raw_output": raw, "input": asked}


async def evaluate_all(http: httpx.AsyncClient, script: dict[str, bool]) -> None:
    """Cheap ones, flagged ones, repeated ones; a model that answers, babbles and is down; later, and in a batch."""

    async def post(number: int, confidence: float, **query: str) -> dict[str, Any]:
        answer = await http.post("/evaluate", json=prediction(number, confidence), params=query)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    for number in range(20):
        await post(number, 0.9)
    assert (await post(100, 0.3))["instrument_path"] == "ollama"
    await post(100, 0.3)
    await post(100, 0.3, fresh="true")
    script["babbles"] = True
    assert (await post(101, 0.3))["degraded"]
    script["babbles"], script["down"] = False, True
    for number in range(102, 106):
        assert (await post(number, 0.3))["degraded"]
    batch = "\n".join(json.dumps(prediction(number, 0.9)) for number in range(200, 203))
    await http.post("/evaluate/batch", content=batch, headers={"content-type": "application/x-ndjson"})
    later = await http.post("/evaluate", json=prediction(300, 0.3), headers={"prefer": "respond-async"})
    await until(http, later.headers["location"], lambda shown: "disposition" in shown)
    assert (await http.get("/nowhere")).status_code == 404


async def run_and_judge(http: httpx.AsyncClient, look: Any) -> None:
    """Two runs of the stand-in Sentinel, the second judged against the first."""
    content = (resources.files("app.demo") / "fixtures" / "sentinel_l7_ground_truth.json").read_bytes()
    ids = []
    for concurrency in (4, 8):
        request = json.dumps({"system": "sentinel-l7", "options": {"limit": 60, "concurrency": concurrency}})
        form = {"request": (None, request, "application/json"), "dataset": ("d.json", content, "application/json")}
        run = (await http.post("/runs", files=form)).json()
        ids.append(run["run_id"])
        await until(http, f"/runs/{ids[-1]}", lambda shown: 0 < shown["progress"]["n_done"] < 60 or _is_over(shown))
        look()
        assert (await until(http, f"/runs/{ids[-1]}", _is_over))["status"] == "succeeded"
    rows = [{"expected_label": "low", "prediction": {"raw_output": {}, "label": "low", "confidence": 0.9}}] * 2
    lines = "\n".join(map(json.dumps, [*rows, {"expected_label": "low"}]))  # the last one has no prediction: it fails
    form = {"request": (None, '{"system": "recorded"}', "application/json"), "dataset": ("d.ndjson", lines)}
    recorded = (await http.post("/runs", files=form)).json()
    await until(http, f"/runs/{recorded['run_id']}", _is_over)
    with anyio.fail_after(20):
        told = await http.get(f"/runs/{ids[1]}/events")  # of a run that has ended: it ends too
    assert "data:" in told.text
    gate = await http.post(f"/runs/{ids[1]}/gate", json={"policy": POLICY, "baseline": ids[0]})
    assert gate.status_code == 200, gate.text


async def run_critic(http: httpx.AsyncClient) -> None:
    """A classifier under its critic, which challenges one of its rows."""
    rows = [{"id": f"e{n}", "input": {"case": n}, "expected_label": "fee"} for n in range(3)]
    body = {"system": "tickets", "dataset": {"examples": rows}, "options": {"pipeline": "critic"}}
    run = (await http.post("/runs", json=body)).json()
    with anyio.fail_after(20):
        await http.get(f"/runs/{run['run_id']}/events")  # it ends with the run
    assert (await http.get(f"/runs/{run['run_id']}")).json()["progress"]["n_scored"] == len(rows)


def _is_over(shown: dict[str, Any]) -> bool:
    return shown["status"] in {"succeeded", "failed"}


async def until(http: httpx.AsyncClient, path: str, holds: Any) -> dict[str, Any]:
    """Ask again until it holds; there is nothing to wait for but the resource itself."""
    with anyio.fail_after(60):
        while not holds(shown := (await http.get(path)).json()):
            await anyio.lowlevel.checkpoint()
    return dict(shown)


def _read(registry: CollectorRegistry, observed: Observed) -> None:
    for family in registry.collect():
        observed.types[family.name] = family.type
        for sample in family.samples:
            observed.samples.append(Sample(sample.name, dict(sample.labels), sample.value))
