"""One look at a service at work, for all that compares with it."""

from __future__ import annotations

import anyio
import pytest

from tests.telemetry.observed import Observed, observe


@pytest.fixture(scope="session")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Observed:
    """What a real service emitted."""
    return anyio.run(observe, tmp_path_factory.mktemp("observed"))
