"""What a verdict calls the path that it is about."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.settings import VerdictSettings
from app.verdicts.model import VerdictRequest
from tests.verdicts import OPTIONAL, PASSES, Repository, arbiter_in

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("configured", "name"),
    [("src", "src"), ("{root}/src", "src"), ("{root}", "repo"), (".", "repo"), ("../aside", "aside")],
)
async def test_over_http_a_path_is_named_without_the_folders_above_it(
    tmp_path: Path, configured: str, name: str
) -> None:
    """Where the service's files lie is nobody's business, in the record neither."""
    folder = Repository(tmp_path / "repo").folder
    (tmp_path / "aside").mkdir()
    (tmp_path / "aside" / "a.txt").write_text("a")
    config = folder / "arbiter.toml"
    config.write_text(f'artifact = "{configured.format(root=folder)}"\n' + OPTIONAL + PASSES)
    async with arbiter_in(tmp_path, None, VerdictSettings(config=config, checks=("passes",))) as arbiter:
        given = await arbiter.service.ask(VerdictRequest())
        record = await arbiter.service.record(given.verdict_id)
    assert given.artifact.name == name
    assert str(tmp_path).encode() not in record
