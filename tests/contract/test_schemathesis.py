"""Requests generated from the API document: no 5xx, no undocumented status, no answer of another shape."""

from __future__ import annotations

import json

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from pydantic import SecretStr
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from app.main import create_app
from app.settings import ServerSettings, Settings
from tests.fakes import connect_to, fake_services

KEY = "contract-test-key-0123"
SETTINGS = Settings(server=ServerSettings(api_keys=(SecretStr(f"test:submit+read+operate:{KEY}"),)))
APP = create_app(SETTINGS, connect_to(fake_services(SETTINGS)))
HEADERS = {"Authorization": f"Bearer {KEY}"}

schema = schemathesis.openapi.from_asgi("/openapi.json", APP, config=SchemathesisConfig())


@schemathesis.serializer("application/x-ndjson")
def as_text(_: object, value: object) -> bytes:
    """Bodies of NDJSON are generated as text, and as what is none."""
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else json.dumps(value).encode()


UNDESCRIBED = {
    # a form's file must be a dataset, ids must differ, a dataset comes inside or by its id, a key stands for one body
    ("POST", "/runs"): [positive_data_acceptance],
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
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_requests_from_the_document(case: schemathesis.Case) -> None:
    check(case)


@pytest.mark.slow
@schema.parametrize()
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
def test_many_requests_from_the_document(case: schemathesis.Case) -> None:
    check(case)
