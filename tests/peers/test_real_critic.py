"""A real, small model in every seat of the critic's pipeline: whatever it writes, a row ends in one of five states."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.critic.replay import replay
from app.settings import CriticSettings, JudgeSettings, NetworkSettings, OpenAISettings, Settings, StoreSettings
from app.settings import TelemetrySettings as Telemetry
from app.wiring import service_app
from layers.critic import State
from tests.fakes import client_of
from tests.peers.test_real_model import model_url, weights
from tests.service.test_critic import finished, rows
from tests.unit.test_critic_config import written

pytestmark = [pytest.mark.anyio, pytest.mark.model]
__all__ = ["model_url", "weights"]


async def test_rows_go_through_all_seats_and_the_trail_replays(model_url: str, tmp_path: Path) -> None:
    settings = Settings(
        store=StoreSettings(url=f"sqlite:///{tmp_path}/critic.db"),
        telemetry=Telemetry(enabled=False),
        judge=JudgeSettings(order=("openai_compatible",)),
        openai=OpenAISettings(base_url=model_url, judge_model="smollm2", timeout=40),
        network=NetworkSettings(connect_timeout=2),
        critic=CriticSettings(classifiers=(written(tmp_path),), row_timeout=300),
    )
    async with client_of(service_app(settings), timeout=120) as http:
        run = await finished(http, rows(2), patience=240)
        assert run["status"] == "succeeded", run
        report = (await http.get(f"/runs/{run['run_id']}/critic")).json()
        trail = (await http.get(f"/runs/{run['run_id']}/critic/audit")).content
    assert sum(report["states"].values()) == 2
    assert set(report["states"]) == {state.value for state in State}
    assert json.loads(replay(trail.splitlines()).model_dump_json()) == report
