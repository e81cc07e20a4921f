"""`POST /evaluate` and what was stored: replay, later work, lists, hanging up, overload."""

from __future__ import annotations

import anyio
import httpx
import pytest

from app.errors import Overloaded, TimedOut, Unavailable
from app.evaluation.model import EvaluateRequest
from app.main import create_app
from tests.fakes import FakeEvaluations, connect_to, fake_services

pytestmark = pytest.mark.anyio

BODY = {"id": "txn-1", "system": "generic", "raw_output": {"a": [1, 2.5, None]}, "label": "low", "confidence": 0.9}


async def test_the_same_post_again_is_replayed(http: httpx.AsyncClient) -> None:
    first = (await http.post("/evaluate", json=BODY)).json()
    again = (await http.post("/evaluate", json=BODY)).json()
    assert (first["replayed"], again["replayed"]) == (False, True)
    assert again["evaluation_id"] == first["evaluation_id"]
    fresh = (await http.post("/evaluate?fresh=true", json=BODY)).json()
    assert fresh["evaluation_id"] != first["evaluation_id"]


async def test_the_payload_arrives_untouched(api) -> None:
    seen: list[EvaluateRequest] = []

    async def remember(request: EvaluateRequest) -> None:
        seen.append(request)

    async with api(evaluations=FakeEvaluations(before=remember)) as http:
        await http.post("/evaluate", json=BODY)
    assert seen[0].raw_output == BODY["raw_output"]


async def test_what_was_stored_can_be_read(http: httpx.AsyncClient) -> None:
    made = (await http.post("/evaluate", json=BODY)).json()
    path = f"/evaluations/{made['evaluation_id']}"
    assert (await http.get(path)).json() == made
    assert (await http.get(f"{path}?revision=1")).json() == made
    assert (await http.get(f"{path}?revision=2")).status_code == 404
    assert (await http.get(f"{path}?revision=0")).status_code == 400


async def test_later_work_is_accepted_and_shown(http: httpx.AsyncClient) -> None:
    response = await http.post("/evaluate", json=BODY, headers={"prefer": "handling=lenient, Respond-Async"})
    assert response.status_code == 202
    assert response.headers["preference-applied"] == "respond-async"
    accepted = response.json()
    assert accepted == {"evaluation_id": accepted["evaluation_id"], "status": "accepted"}
    assert response.headers["location"] == f"/evaluations/{accepted['evaluation_id']}"
    assert (await http.get(response.headers["location"])).json()["status"] == "accepted"


async def test_a_list_goes_on_where_its_cursor_says(http: httpx.AsyncClient) -> None:
    for n in range(5):
        await http.post("/evaluate", json={**BODY, "id": f"txn-{n}"})
    seen: list[str] = []
    cursor = ""
    while cursor is not None:
        page = (await http.get(f"/evaluations?limit=2{cursor and '&cursor='}{cursor}")).json()
        seen += [item["prediction_id"] for item in page["items"]]
        cursor = page["next_cursor"]
    assert seen == [f"txn-{n}" for n in reversed(range(5))]


async def test_a_list_can_be_narrowed(http: httpx.AsyncClient) -> None:
    for name in ("a", "b"):
        await http.post("/evaluate", json={**BODY, "id": name})
    page = (
        await http.get("/evaluations?prediction_id=b&since=2020-01-01T00:00:00Z&degraded=false&disposition=pass")
    ).json()
    assert [item["prediction_id"] for item in page["items"]] == ["b"]


@pytest.mark.parametrize(
    ("error", "status", "retry_after"),
    [
        pytest.param(Overloaded(retry_after=0.2), 503, "1", id="overloaded"),
        pytest.param(Unavailable("the store is away", retry_after=4.2), 503, "5", id="unavailable"),
        pytest.param(Unavailable("the store is away"), 503, None, id="unavailable, nobody knows for how long"),
        pytest.param(TimedOut("75 s passed"), 504, None, id="timed out"),
    ],
)
async def test_a_refusal_says_when_to_try_again(api, error: Exception, status: int, retry_after: str | None) -> None:
    async def refuse(_: EvaluateRequest) -> None:
        raise error

    async with api(evaluations=FakeEvaluations(before=refuse)) as http:
        response = await http.post("/evaluate", json=BODY)
    assert (response.status_code, response.headers.get("retry-after")) == (status, retry_after)


async def test_a_failure_of_ours_is_logged_and_not_told(api, caplog) -> None:
    async def fail(_: EvaluateRequest) -> None:
        raise RuntimeError("password=hunter2")

    async with api(evaluations=FakeEvaluations(before=fail)) as http:
        response = await http.post("/evaluate", json=BODY)
    assert response.status_code == 500
    assert "hunter2" not in response.text
    assert response.json()["instance"].startswith("urn:uuid:")
    assert response.json()["instance"] in caplog.text


@pytest.mark.parametrize(("given", "echoed"), [("abc-1", "abc-1"), ("a b", None), ("x" * 129, None)])
async def test_a_plain_request_id_is_handed_back(http: httpx.AsyncClient, given: str, echoed: str | None) -> None:
    for path in ("/livez", "/evaluations/x"):
        assert (await http.get(path, headers={"x-request-id": given})).headers.get("x-request-id") == echoed


async def call_and_hang_up(
    settings,
    path: str,
    headers: list[tuple[bytes, bytes]],
    evaluations: FakeEvaluations,
    body: bytes,
    started: anyio.Event,
) -> list:
    """Post, and hang up as soon as `started`."""
    app = create_app(settings, connect_to(fake_services(settings, evaluations=evaluations)))
    sent: list = []
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        if messages:
            return messages.pop()
        await started.wait()
        return {"type": "http.disconnect"}

    async def send(message) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
        "scheme": "http", "http_version": "1.1", "client": None, "server": None,
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json"), *headers],
    }  # fmt: skip
    async with app.router.lifespan_context(app) as state:
        with anyio.fail_after(5):
            await app({**scope, "state": dict(state)}, receive, send)
    return sent


class Waiting:
    """An evaluation that lasts until it is cancelled."""

    def __init__(self) -> None:
        self.started, self.cancelled = anyio.Event(), 0

    async def __call__(self, _: EvaluateRequest) -> None:
        self.started.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.cancelled += 1


ENCODED = b'{"id":"1","system":"generic","raw_output":{},"label":"low","confidence":0.9}'


async def test_hanging_up_cancels_a_synchronous_evaluation(settings) -> None:
    waiting = Waiting()
    sent = await call_and_hang_up(settings, "/evaluate", [], FakeEvaluations(before=waiting), ENCODED, waiting.started)
    assert (sent, waiting.cancelled) == ([], 1)


async def test_hanging_up_stops_a_batch(settings) -> None:
    waiting = Waiting()
    body = b"[" + b",".join([ENCODED] * 3) + b"]"
    sent = await call_and_hang_up(
        settings, "/evaluate/batch", [], FakeEvaluations(before=waiting), body, waiting.started
    )
    assert [message["type"] for message in sent] == ["http.response.start"]
    assert waiting.cancelled == 3


async def test_hanging_up_leaves_accepted_work_alone(settings) -> None:
    gone = anyio.Event()
    gone.set()
    evaluations = FakeEvaluations()
    later = [(b"prefer", b"respond-async")]
    await call_and_hang_up(settings, "/evaluate", later, evaluations, ENCODED, gone)
    assert len(evaluations.stored) == 1
