"""`arbiter-l8 demo`: the whole service, next to stand-ins that speak its neighbours' protocols."""

from __future__ import annotations

import json
import tempfile
import time
from importlib import resources
from pathlib import Path
from typing import Any

import httpx
from rich.table import Table

from app.cli.client import get, post
from app.cli.console import err, escape, out, report_tables
from app.cli.progress import watch
from app.demo.hosting import hosted
from app.demo.sentinel import build_sentinel
from app.demo.synapse import build_synapse
from app.settings import Settings
from app.telemetry.logs import configure_logging
from app.wiring import service_app

FIXTURES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("synapse-l4", "synapse_l4_ground_truth.json", {}),
    ("sentinel-l7", "sentinel_l7_ground_truth.json", {"limit": 25, "binary": True}),
)


async def tour() -> int:
    """Run the demo. Returns the exit code: 0 when every run succeeded and every prediction got an answer."""
    began = time.monotonic()
    configure_logging("error", "pretty")
    with (
        tempfile.TemporaryDirectory(prefix="arbiter-l8-") as folder,
        hosted(_sentinel()) as sentinel,
        hosted(build_synapse()) as synapse,
        hosted(service_app(_settings(folder, sentinel, synapse))) as url,
    ):
        err.print(f"Arbiter-L8 listens on {url}, beside a Sentinel-L7 ({sentinel}) and a Synapse-L4 ({synapse})")
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            ended = [await _run(client, *fixture) for fixture in FIXTURES]
            await _evaluate(client)
    out.print(f"\ndone in {time.monotonic() - began:.0f} s; nothing is left behind")
    return 0 if all(run["status"] == "succeeded" for run in ended) else 1


def _sentinel() -> Any:
    """A Sentinel-L7 that is busy once: its eighth call is answered 429 with `Retry-After: 2`."""
    return build_sentinel(throttle_call=8)


def _settings(folder: str, sentinel: str, synapse: str) -> Settings:
    return Settings.model_validate(
        {
            "sentinel": {"url": f"{sentinel}/mcp"},
            "synapse": {"base_url": synapse},
            "store": {"url": f"sqlite:///{Path(folder) / 'demo.db'}"},
            "telemetry": {"enabled": False},
            "evaluation": {"audit_rate": 0.0},
        }
    )


async def _run(client: httpx.AsyncClient, system: str, fixture: str, options: dict[str, Any]) -> dict[str, Any]:
    content = (resources.files("app.demo") / "fixtures" / fixture).read_bytes()
    request = json.dumps({"system": system, "name": "demo", "options": options})
    form = {"request": (None, request, "application/json"), "dataset": (fixture, content, "application/json")}
    run: dict[str, Any] = await watch(client, await post(client, "/runs", files=form), label=system)
    report = await get(client, f"/runs/{run['run_id']}/report")
    report_tables(report, heading=f"POST /runs: {system}, {report['total']} labelled examples")
    out.print()
    return run


async def _evaluate(client: httpx.AsyncClient) -> None:
    out.rule("POST /evaluate: predictions without labels", align="left", style="dim")
    cases = json.loads((resources.files("app.demo") / "predictions.json").read_text(encoding="utf-8"))
    table = Table(box=None, pad_edge=False)
    for column in ("prediction", "label", "disposition", "what was found"):
        table.add_column(column)
    for case in cases:
        answer = await post(client, "/evaluate", json=case["body"])
        cells = (answer["prediction_id"], answer["label"], answer["disposition"], _found(answer))
        table.add_row(*(escape(cell) for cell in cells))
    out.print(table)


def _found(answer: dict[str, Any]) -> str:
    flags = (answer["heuristic_result"] or {}).get("flags", ())
    found = [f"{flag['reason']} ({flag['pointer']})" for flag in flags]
    grounding = answer["narrative_grounding_result"] or {}
    found += [f"{anchor['text']}: {anchor['status']}" for anchor in grounding.get("anchors", ())]
    unseen = [name for name, layer in answer["layers"].items() if layer["reason"] == "not_configured"]
    if unseen:
        found.append(f"not looked at, not configured: {', '.join(unseen)}")
    return "; ".join(found) or "nothing"
