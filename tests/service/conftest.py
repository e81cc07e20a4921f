"""An application over fakes, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx
import pytest

from app.main import create_app
from app.settings import ServerSettings, Settings
from tests.fakes import client_of, connect_to, fake_services

Api = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


@pytest.fixture
def settings() -> Settings:
    return Settings(server=ServerSettings(max_body_bytes=20_000, max_upload_bytes=200_000, max_batch=50))


@pytest.fixture
def api(settings: Settings) -> Api:
    """A client of the application: `async with api(evaluations=...) as http`."""

    def start(**parts: Any) -> AbstractAsyncContextManager[httpx.AsyncClient]:
        given = parts.pop("settings", settings)
        options = parts.pop("client", {})
        return client_of(create_app(given, connect_to(fake_services(given, **parts))), **options)

    return start


@pytest.fixture
async def http(api: Api) -> AsyncIterator[httpx.AsyncClient]:
    async with api() as client:
        yield client
