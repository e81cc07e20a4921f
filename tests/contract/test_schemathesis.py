"""Requests generated from the API document: no 5xx, no undocumented status, no answer of another shape."""

from __future__ import annotations

import json
import tempfile

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from pydantic import SecretStr
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance
from starlette.types import Receive, Scope, Send

from app.openapi import document
from app.settings import ServerSettings, Settings, StoreSettings, TelemetrySettings
from app.wiring import service_app

# The run engine's threads draw random waiting times, which hypothesis takes for its strategies' doing.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")

KEY = "contract-test-key-0123"
FOLDER = tempfile.TemporaryDirectory()
SETTINGS = Settings(
    server=ServerSettings(api_keys=(SecretStr(f"test:submit+read+operate:{KEY}"),)),
    store=StoreSettings(url=f"sqlite:///{FOLDER.name}/contract.db"),
    telemetry=TelemetrySettings(enabled=False),
)


class Restarting:
    """The real service, built anew for each start, because every test starts and stops the application."""

    def __init__(self) -> None:
        self._app = service_app(SETTINGS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            self._app = service_app(SETTINGS)
        await self._app(scope, receive, send)


APP = Restarting()
HEADERS = {"Authorization": f"Bearer {KEY}"}

# Not asked of the application, which would then run while requests are generated during collection.
schema = schemathesis.openapi.from_dict(document(), config=SchemathesisConfig())
schema.app = APP


@schemathesis.serializer("application/x-ndjson")
def as_text(_: object, value: object) -> bytes:
    """Bodies of NDJSON are generated as text, and as what is none."""
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else json.dumps(value).encode()


UNDESCRIBED = {
    # the system must be known
    ("POST", "/evaluate"): [positive_data_acceptance],
    # sizes and places are those of the log as it is
    ("GET", "/log/consistency"): [positive_data_acceptance],
    ("GET", "/log/inclusion"): [positive_data_acceptance],
    # an item is one of three things, and a namespace has one dimension
    ("POST", "/index/{name}"): [positive_data_acceptance],
    # a form's file must be a dataset, ids must differ, a dataset comes inside or by its id, a key stands for one body
    ("POST", "/runs"): [positive_data_acceptance],
    # what is named must be stored; a snapshot must follow from itself
    ("POST", "/hypotheses"): [positive_data_acceptance],
    ("POST", "/adjudications"): [positive_data_acceptance],
    ("POST", "/syntheses"): [positive_data_acceptance],
    ("POST", "/adjudication-snapshot"): [positive_data_acceptance],
    # the same for a dataset; and any text may be a dataset in one of the forms
    ("POST", "/datasets"): [positive_data_acceptance, negative_data_rejection],
    # a bad item is answered in its place
    ("POST", "/evaluate/batch"): [positive_data_acceptance, negative_data_rejection],
}
"""Checks that do not hold for an operation, because a schema can't say what it asks for."""


def check(case: schemathesis.Case) -> None:
    excluded = list(UNDESCRIBED.get((case.operation.method.upper(), case.operation.path), ()))
    if (case.query and "cursor" in case.query) or "\\u0000" in json.dumps(case.body, default=repr):
        excluded.append(positive_data_acceptance)  # only the service makes cursors; no schema refuses NUL everywhere
    case.call_and_validate(headers=HEADERS, excluded_checks=excluded)


@schema.parametrize()
@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_requests_from_the_document(case: schemathesis.Case) -> None:
    check(case)


@pytest.mark.slow
@schema.parametrize()
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
def test_many_requests_from_the_document(case: schemathesis.Case) -> None:
    check(case)
