"""The container image holds what the service offers."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_image_can_write_parquet() -> None:
    """By default it is built with every extra that a route needs, and each time that packages are installed."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    (default,) = re.findall(r'^ARG EXTRA="(.*)"$', text, re.MULTILINE)
    assert {default} == set(extras)
    syncs = re.findall(r"^RUN uv sync .*$", text, re.MULTILINE)
    assert len(syncs) == 2
    assert all(line.endswith("${EXTRA:+--extra ${EXTRA}}") for line in syncs)
    assert text.index("ARG EXTRA") < text.index(syncs[0])
