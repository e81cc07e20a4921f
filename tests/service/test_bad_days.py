"""Bad days, through the whole service: every remote fails in every way, and the answer comes in time and says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from time import monotonic
from typing import Any

import anyio
import httpx
import pytest

from app.demo.sentinel import build_sentinel
from app.settings import EmbedderSettings, JudgeSettings, OpenAISettings
from app.wiring import service_app
from tests.adapters.peers import serving
from tests.standins import (
    CONFIRMED,
    FLAGGED,
    Answer,
    Remote,
    after,
    embeddings,
    gemini,
    gemini_at,
    half_a_reply,
    hangs,
    hangs_after_headers,
    html,
    nobody,
    ollama,
    ollama_at,
    playing,
    resets,
    says,
    sentinel_at,
    service,
    settings_for,
    upstash,
    upstash_at,
)

pytestmark = pytest.mark.anyio

WITHIN = 6.0
"""The request's deadline in short settings, in seconds."""


async def evaluate(http: httpx.AsyncClient, body: dict[str, Any] = FLAGGED) -> dict[str, Any]:
    """The answer, which must be one, and in time."""
    begun = monotonic()
    response = await http.post("/evaluate", json=body)
    assert monotonic() - begun < WITHIN
    assert response.status_code == 200
    return response.json()


def attempts(answer: dict[str, Any]) -> list[tuple[str, str, str | None]]:
    return [(each["source"], each["outcome"], each["error_type"]) for each in answer["judge_verdict"]["attempts"]]


# --- the first judge --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        pytest.param(hangs, "timeout", id="hanging"),
        pytest.param(after(30, says(ollama(CONFIRMED))), "timeout", id="slow"),
        pytest.param(None, "refused", id="refusing"),
        pytest.param(says({"error": "boom"}, 500), "server_error", id="500"),
        pytest.param(html, "malformed", id="HTML"),
        pytest.param(hangs_after_headers, "timeout", id="hanging after headers"),
        pytest.param(half_a_reply, "malformed", id="half a reply"),
        pytest.param(resets, "disconnected", id="reset"),
        pytest.param(says(ollama("I would say high.")), "malformed", id="prose"),
        pytest.param(says({**ollama('{"verdict": "hi'), "done_reason": "length"}), "truncated", id="cut"),
        pytest.param(says({**ollama(CONFIRMED), "prompt_eval_count": 8192}), "prompt_truncated", id="prompt cut"),
        pytest.param(says({"error": "model not found"}, 404), "rejected", id="404"),
    ],
)
async def test_a_first_judge_in_trouble_costs_its_own_answer_and_the_second_is_heard(
    tmp_path: Path, answer: Answer | None, kind: str
) -> None:
    """Both attempts are on record, and who really answered is said."""
    with nobody() as refusing:
        async with playing(answer or hangs) as first, playing(says(gemini(CONFIRMED))) as second:
            given = {"ollama": ollama_at(first.url if answer else refusing), "gemini": gemini_at(second.url)}
            async with service(settings_for(tmp_path, short=True, **given)) as http:
                said = await evaluate(http)
    assert attempts(said) == [("ollama", "failed", kind), ("gemini_flash", "answered", None)]
    assert (said["instrument_path"], said["assurance"]) == ("gemini_flash", "EVIDENCE-WARRANTED")
    assert said["layers"]["judge"]["status"] == "scored"
    assert said["compliance"]["violated"] == []


# --- the second judge -------------------------------------------------------------------------------------------------

LATER = {"error": {"code": 429, "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo",
                                             "retryDelay": "45.837906927s"}]}}  # fmt: skip
TODAY = {"error": {"code": 429, "details": [{"violations": [{"quotaId": "GenerateRequestsPerDayPerProject"}]}]}}


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        pytest.param(says(LATER, 429), "rate_limited", id="429 with its delay in the body"),
        pytest.param(says(TODAY, 429), "rate_limited", id="daily quota"),
        pytest.param(says({"promptFeedback": {"blockReason": "SAFETY"}}), "blocked", id="blocked prompt"),
        pytest.param(says({"candidates": [{"finishReason": "SAFETY"}]}), "blocked", id="blocked reply"),
        pytest.param(says({"candidates": [{"content": {"role": "model"}}]}), "empty_output", id="no parts"),
        pytest.param(says({"candidates": []}), "empty_output", id="no candidate"),
        pytest.param(says({"candidates": [{"finishReason": "MAX_TOKENS"}]}), "truncated", id="MAX_TOKENS"),
    ],
)
async def test_a_last_judge_in_trouble_leaves_nobody_and_the_answer_says_so(
    tmp_path: Path, answer: Answer, kind: str
) -> None:
    """The heuristics are named as what is left, with no label of their own; the delay is obeyed, not waited out."""
    async with playing(answer) as remote, _asking(remote, tmp_path) as http:
        said = await evaluate(http)
    assert attempts(said) == [("gemini_flash", "failed", kind)]
    assert (said["instrument_path"], said["degraded"], said["assurance"]) == ("heuristics_fallback", True, None)
    assert (said["judge_verdict"]["verdict_label"], said["judge_verdict"]["agrees"]) == (None, None)
    assert (said["disposition"], said["decision"]) == ("flag", "no_second_opinion")
    assert len(remote.calls) == 1


async def test_a_daily_quota_opens_the_circuit_and_nobody_asks_again(tmp_path: Path) -> None:
    """The next evaluation passes the judge over without a request, and is degraded by an open circuit."""
    async with playing(says(TODAY, 429)) as remote, _asking(remote, tmp_path) as http:
        await evaluate(http)
        breaker = (await http.get("/breakers")).json()["gemini"]
        said = await evaluate(http, {**FLAGGED, "id": "next"})
    assert breaker["state"] == "open"
    assert attempts(said) == [("gemini_flash", "skipped", "circuit_open")]
    assert (said["degraded"], len(remote.calls)) == (True, 1)


def _asking(remote: Remote, folder: Path) -> AbstractAsyncContextManager[httpx.AsyncClient]:
    """A service whose only judge is a Gemini at `remote`."""
    return service(settings_for(folder, short=True, gemini=gemini_at(remote.url)))


# --- the index --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "status", "kind"),
    [
        pytest.param(says({"error": "Unauthorized", "status": 401}, 401), "failed", "rejected", id="401"),
        pytest.param(upstash(None), "scored", None, id="null result"),
        pytest.param(upstash(dimension=1536), "failed", "configuration", id="wrong dimension"),
        pytest.param(upstash([{"id": "txn_7", "score": "near"}]), "failed", "malformed", id="odd entry"),
        pytest.param(hangs, "failed", "timeout", id="hanging"),
        pytest.param(html, "failed", "malformed", id="HTML"),
    ],
)
async def test_an_index_in_trouble_is_a_failed_layer_and_never_a_finding(
    tmp_path: Path, answer: Answer, status: str, kind: str | None
) -> None:
    """Nothing to compare with is a state of its own; a wrong dimension is told by name and number."""
    async with playing(embeddings(4)) as embedder, playing(answer) as index, playing(says(ollama(CONFIRMED))) as judge:
        given = {
            "embedder": EmbedderSettings(ollama_url=embedder.url),
            "vectors": upstash_at(index.url),
            "ollama": ollama_at(judge.url),
        }
        async with service(settings_for(tmp_path, short=True, **given)) as http:
            said = await evaluate(http)
    report, found = said["layers"]["consistency"], said["consistency_result"]
    assert (report["status"], report["cause"] and report["cause"]["kind"]) == (status, kind)
    assert found is None if status == "failed" else (found["consistent"], found["neighbors"]) == (None, [])
    if kind == "configuration":
        assert "1536" in report["cause"]["message"]
        assert "4" in report["cause"]["message"]
    assert "token" not in json.dumps(report)
    assert said["instrument_path"] == "ollama"


@pytest.mark.parametrize("answer", [says({}, 500), hangs, html], ids=["500", "hanging", "HTML"])
async def test_a_policy_search_that_fails_is_no_ungrounded_narrative(tmp_path: Path, answer: Answer) -> None:
    """An unflagged item whose claim could not be looked up gets no clean bill, and no flag either."""
    raw = {**FLAGGED["raw_output"], "confidence": 0.9, "policy_refs": []}
    async with playing(embeddings(4)) as embedder, playing(answer) as index:
        vectors = upstash_at(index.url).model_copy(update={"policy_source": "upstash"})
        given = {"embedder": EmbedderSettings(ollama_url=embedder.url), "vectors": vectors}
        async with service(settings_for(tmp_path, short=True, **given)) as http:
            said = await evaluate(http, {**FLAGGED, "raw_output": raw})
    assert said["layers"]["narrative_grounding"]["status"] == "failed"
    assert (said["disposition"], said["decision"], said["degraded"]) == ("inconclusive", "could_not_look", True)
    assert (said["escalated"], said["narrative_grounding_result"]) == (False, None)


# --- the providers ----------------------------------------------------------------------------------------------------

SAME = {"a": lambda _: 3, "b": lambda _: 3, "c": lambda _: 3}
SPLIT = {"a": lambda _: 3, "b": lambda _: 0, "c": lambda _: 2}  # whoever is missing, the others differ


@pytest.mark.parametrize(("opinions", "agreed"), [(SAME, None), (SPLIT, False)], ids=["unknown", "split"])
async def test_a_throttle_in_the_middle_of_a_fan_out_costs_one_provider(
    tmp_path: Path, opinions: dict[str, Callable[[Any], int]], agreed: bool | None
) -> None:
    """The one that was turned away is named with its cause; the others' answers stand, and nobody calls that agreed."""
    with serving(app := build_sentinel(opinions=opinions, throttle_call=2)) as url:
        given = {"sentinel": sentinel_at(url, drivers=tuple(opinions))}
        async with service(settings_for(tmp_path, short=True, **given)) as http:
            said = (await evaluate(http))["disagreement_result"]
    (missing,) = said["errors_by_provider"]
    assert said["errors_by_provider"][missing]["kind"] == "rate_limited"
    assert set(said["labels_by_provider"]) == set(opinions) - {missing}
    assert app.state.sentinel.throttled == 1
    assert said["agreed"] is agreed


# --- the caller -------------------------------------------------------------------------------------------------------


async def test_a_caller_that_hangs_up_stops_the_work_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    """The judge's connection is closed, nothing is stored or logged, no breaker counts it, the next one is served."""
    async with playing(hangs) as judge:
        app = service_app(settings_for(tmp_path, ollama=ollama_at(judge.url)))
        async with app.router.lifespan_context(app) as state:
            given = {**SCOPE, "state": dict(state)}
            sent = await _post_and_hang_up(app, given, json.dumps(FLAGGED).encode(), judge.asked)
            with anyio.fail_after(5):
                await judge.left.wait()
            judge.answer = says(ollama(CONFIRMED))

            async def with_state(scope: Any, receive: Any, send: Any) -> None:
                await app({**scope, "state": dict(state)}, receive, send)

            transport = httpx.ASGITransport(with_state)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
                assert (await http.get("/evaluations")).json()["items"] == []
                assert (await http.get("/log/head")).json()["tree_size"] == 0
                breaker = (await http.get("/breakers")).json()["ollama.judge"]
                assert (breaker["failures"], breaker["calls"]) == (0, 0)
                assert (await evaluate(http))["revision"] == 1
    assert sent == []
    assert judge.dropped == 1


SCOPE = {
    "type": "http", "method": "POST", "path": "/evaluate", "raw_path": b"/evaluate", "query_string": b"",
    "root_path": "", "scheme": "http", "http_version": "1.1", "client": None, "server": None,
    "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
}  # fmt: skip


async def _post_and_hang_up(app: Any, scope: dict[str, Any], body: bytes, when: anyio.Event) -> list[Any]:
    sent: list[Any] = []
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        if messages:
            return messages.pop()
        await when.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    with anyio.fail_after(10):
        await app(scope, receive, send)
    return sent


# --- everything -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("round_", ["first", "circuits open"])
async def test_with_every_remote_dead_at_once_it_answers_in_time_and_honestly(tmp_path: Path, round_: str) -> None:
    """Each layer says why it is silent, nothing is called agreed or consistent, and the flag stands."""
    async with AsyncExitStack() as stack:
        dead = [await stack.enter_async_context(playing(way)) for way in (hangs, half_a_reply, hangs, html)]
        refusing = stack.enter_context(nobody())
        embedder, index, first, third = dead
        settings = settings_for(
            tmp_path,
            short=True,
            sentinel=sentinel_at(refusing, drivers=("a", "b", "c")),
            embedder=EmbedderSettings(ollama_url=embedder.url),
            vectors=upstash_at(index.url),
            ollama=ollama_at(first.url),
            gemini=gemini_at(refusing),
            openai=OpenAISettings(base_url=f"{third.url}/v1"),
            judge=JudgeSettings(order=("ollama", "gemini_flash", "openai_compatible")),
        )
        if round_ != "first":
            network = settings.network.model_copy(update={"breaker_minimum_calls": 1})
            settings = settings.model_copy(update={"network": network})
        http = await stack.enter_async_context(service(settings))
        said = await evaluate(http)
        if round_ != "first":
            said = await evaluate(http, {**FLAGGED, "id": "another"})
        again = await evaluate(http)
    assert (said["disposition"], said["decision"], said["degraded"]) == ("flag", "no_second_opinion", True)
    assert said["instrument_path"] == "heuristics_fallback"
    assert {each[1] for each in attempts(said)} == ({"failed"} if round_ == "first" else {"skipped"})
    assert said["consistency_result"] is None
    if round_ == "first":
        assert said["layers"]["consistency"]["cause"]["kind"] == "timeout"
        assert {each["kind"] for each in said["disagreement_result"]["errors_by_provider"].values()} == {"refused"}
        assert said["disagreement_result"]["agreed"] is None
    else:
        assert said["layers"]["consistency"]["reason"] == said["layers"]["disagreement"]["reason"] == "circuit_open"
    assert (said["compliance"]["violated"], again["revision"]) == ([], 2)
    assert said["heuristic_result"]["flagged"] is True
