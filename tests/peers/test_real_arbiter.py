"""A real, small model behind the arbiter: whatever it writes, the verdict follows from checks and verified findings."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from app.settings import (
    JudgeSettings,
    ModelRoles,
    NetworkSettings,
    OpenAISettings,
    Settings,
    StoreSettings,
    VerdictSettings,
)
from app.settings import TelemetrySettings as Telemetry
from app.verdicts.model import HolisticState
from app.wiring import service_app
from tests.fakes import client_of
from tests.peers.test_real_model import model_url, weights
from tests.verdicts import BY_QWEN, PASSES

pytestmark = [pytest.mark.anyio, pytest.mark.model]
__all__ = ["model_url", "weights"]

ROWS = [
    {"expected_label": "low", "prediction": {"raw_output": {"n": n}, "label": label, "confidence": 0.9}}
    for n, label in enumerate(("low", "high"))
]


async def test_one_run_from_end_to_end(model_url: str, tmp_path: Path) -> None:
    (tmp_path / "arbiter.toml").write_text(BY_QWEN + PASSES)
    settings = Settings(
        store=StoreSettings(url=f"sqlite:///{tmp_path}/arbiter.db"),
        telemetry=Telemetry(enabled=False),
        judge=JudgeSettings(order=("openai_compatible",)),
        openai=OpenAISettings(base_url=model_url, judge_model="smollm2", timeout=40),
        models=ModelRoles(families=("smollm*=smollm", "qwen*=qwen")),
        network=NetworkSettings(connect_timeout=2),
        verdicts=VerdictSettings(config=tmp_path / "arbiter.toml", checks=("passes",)),
    )
    files = {"dataset": ("d.ndjson", "\n".join(map(json.dumps, ROWS))), "request": (None, '{"system": "recorded"}')}
    async with client_of(service_app(settings), timeout=120) as http:
        run = (await http.post("/runs", files=files)).json()
        with anyio.fail_after(60):
            while (await http.get(f"/runs/{run['run_id']}")).json()["status"] != "succeeded":
                await anyio.lowlevel.checkpoint()
        given = (await http.post("/verdicts", json={"artifact": run["run_id"]})).json()
    state = given["holistic"]["state"]
    assert state in {HolisticState.DONE, HolisticState.FAILED}, given["holistic"]
    assert (given["holistic"]["model"], given["holistic"]["family"]) == ("smollm2", "smollm")
    accepted = (
        state == HolisticState.DONE
        and given["confidence"] >= 0.7
        and not any(one["severity"] == "blocking" for one in given["holistic_findings"])
    )
    assert given["verdict"] == ("accept" if accepted else "block")
