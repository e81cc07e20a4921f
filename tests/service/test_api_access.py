"""Who may do what, by key and scope, and what protects a service without keys."""

from __future__ import annotations

import hashlib

import httpx
import pytest
from pydantic import SecretStr

from app.api.access import Access, check_bind, is_loopback, parse_keys
from app.settings import ServerSettings, Settings
from layers.errors import ConfigurationError

pytestmark = pytest.mark.anyio

SECRETS = {"submit": "submit-secret-0123", "read": "read-secret-012345", "operate": "operate-secret-01"}
BODY = {"id": "1", "system": "generic", "raw_output": {}, "label": "low", "confidence": 0.9}


@pytest.fixture
def settings() -> Settings:
    hashed = hashlib.sha256(SECRETS["read"].encode()).hexdigest()
    keys = (f"a:submit:{SECRETS['submit']}", f"b:read:sha256:{hashed}", f"c:operate+read:{SECRETS['operate']}")
    return Settings(server=ServerSettings(api_keys=tuple(SecretStr(key) for key in keys)))


def bearer(scope: str) -> dict[str, str]:
    return {"authorization": f"Bearer {SECRETS[scope]}"}


@pytest.mark.parametrize("path", ["/evaluations", "/runs", "/breakers", "/systems", "/evaluations/x", "/runs/x/report"])
async def test_without_a_key_nothing_is_shown(http: httpx.AsyncClient, path: str) -> None:
    response = await http.get(path)
    assert response.status_code == 401
    assert response.headers["www-authenticate"].startswith("Bearer")
    assert response.json()["type"] == "/problems/unauthorized"


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/openapi.json"])
async def test_probes_and_the_document_need_no_key(http: httpx.AsyncClient, path: str) -> None:
    assert (await http.get(path)).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer wrong-secret-0123"},
        {"authorization": "Bearer "},
        {"authorization": "Basic c3VibWl0LXNlY3JldC0wMTIz"},
        {"x-api-key": ""},
        {b"x-api-key": b"\xff\x80"},
        {"x-api-key": "sha256:" + hashlib.sha256(SECRETS["read"].encode()).hexdigest()},
    ],
)
async def test_what_is_no_known_key_is_refused(http: httpx.AsyncClient, headers: dict) -> None:
    assert (await http.get("/runs", headers=headers)).status_code == 401


@pytest.mark.parametrize("scope", ["submit", "read", "operate"])
async def test_every_key_may_read(http: httpx.AsyncClient, scope: str) -> None:
    assert (await http.get("/evaluations", headers=bearer(scope))).status_code == 200
    assert (await http.get("/evaluations", headers={"x-api-key": SECRETS[scope]})).status_code == 200


async def test_the_scheme_is_read_in_any_case(http: httpx.AsyncClient) -> None:
    assert (await http.get("/runs", headers={"authorization": f"bEARER  {SECRETS['read']}"})).status_code == 200


@pytest.mark.parametrize(("scope", "status"), [("submit", 200), ("read", 403), ("operate", 403)])
async def test_only_submit_may_submit(http: httpx.AsyncClient, scope: str, status: int) -> None:
    assert (await http.post("/evaluate", json=BODY, headers=bearer(scope))).status_code == status


@pytest.mark.parametrize(("scope", "status"), [("submit", 403), ("read", 403), ("operate", 200)])
async def test_only_operate_may_reset_a_breaker(http: httpx.AsyncClient, scope: str, status: int) -> None:
    assert (await http.post("/breakers/ollama.judge/reset", headers=bearer(scope))).status_code == status


async def test_the_key_is_checked_before_the_body(http: httpx.AsyncClient) -> None:
    assert (await http.post("/evaluate", content=b"[" * 2_000_000)).status_code == 401


async def test_with_keys_any_host_is_answered(http: httpx.AsyncClient) -> None:
    headers = {**bearer("read"), "host": "arbiter.example", "origin": "https://elsewhere.example"}
    assert (await http.get("/runs", headers=headers)).status_code == 200


class TestWithoutKeys:
    @pytest.fixture
    def settings(self) -> Settings:
        return Settings()

    @pytest.mark.parametrize(
        "host", ["localhost:8088", "127.0.0.1", "127.8.9.1:1", "[::1]:8088", "app.localhost", "LOCALHOST."]
    )
    async def test_requests_addressed_to_this_machine_are_answered(self, http: httpx.AsyncClient, host: str) -> None:
        assert (await http.get("/runs", headers={"host": host})).status_code == 200

    @pytest.mark.parametrize(
        "host", ["rebound.example", "10.0.0.1", "localhost.example", "[::2]", "[", "", "127.0.0.1@x"]
    )
    async def test_a_rebound_name_is_refused(self, http: httpx.AsyncClient, host: str) -> None:
        response = await http.get("/runs", headers={"host": host})
        assert (response.status_code, response.json()["type"]) == (403, "/problems/forbidden")

    @pytest.mark.parametrize("origin", ["https://elsewhere.example", "null", "http://localhost.example", "http://["])
    async def test_another_web_site_is_refused(self, http: httpx.AsyncClient, origin: str) -> None:
        assert (await http.post("/evaluate", json=BODY, headers={"origin": origin})).status_code == 403

    async def test_a_page_of_this_machine_is_answered(self, http: httpx.AsyncClient) -> None:
        headers = {"origin": "http://localhost:3000"}
        assert (await http.post("/evaluate", json=BODY, headers=headers)).status_code == 200


@pytest.mark.parametrize(
    "entry",
    [
        "just-a-secret-of-some-length",
        "a:read-0123456789",
        ":read:0123456789abcdef",
        "a b:read:0123456789abcdef",
        "a::0123456789abcdef",
        "a:admin:0123456789abcdef",
        "a:read+:0123456789abcdef",
        "a:read:too-short",
        "a:read:sha256:abc",
        "a:read:sha256:" + "z" * 64,
    ],
)
def test_a_bad_entry_stops_the_start_and_is_not_shown(entry: str) -> None:
    with pytest.raises(ConfigurationError, match="entry 2") as caught:
        parse_keys([SecretStr("ok:read:0123456789abcdef"), SecretStr(entry)])
    assert entry.rsplit(":", maxsplit=1)[-1] not in str(caught.value).replace("name:scope+scope:secret", "")


def test_two_keys_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="same name"):
        parse_keys([SecretStr("a:read:0123456789abcdef"), SecretStr("a:submit:0123456789abcdeg")])


def test_the_secret_is_not_kept() -> None:
    access = Access(parse_keys([SecretStr("a:read:0123456789abcdef")]))
    assert "0123456789abcdef" not in repr(access)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "example.org", ""])  # noqa: S104
def test_another_address_is_not_bound_without_a_key(host: str) -> None:
    with pytest.raises(ConfigurationError, match="ARBITER_API_KEYS"):
        check_bind(host, ())
    check_bind(host, (SecretStr("a:read:0123456789abcdef"),))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.3.2.1"])
def test_loopback_is_bound_without_a_key(host: str) -> None:
    check_bind(host, ())
    assert is_loopback(host)
