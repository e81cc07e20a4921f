"""The command line starts at once: a command loads what it needs, and not what the service needs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = {
    "scipy",
    "numpy",
    "sqlalchemy",
    "alembic",
    "dbos",
    "opentelemetry",
    "fastapi",
    "starlette",
    "uvicorn",
    "jinja2",
}
HTTP = {"httpx", "anyio", "aiohttp"}
NOBODY = ["--server", "http://127.0.0.1:9"]
SCRIPT = """
import json, sys
from app.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (["version"], HEAVY | HTTP),
        (["--help"], HEAVY | HTTP),
        (["gate", "--help"], HEAVY | HTTP),
        (["critic", "replay", "--help"], HEAVY | HTTP),
        (["verify", "bundle.json"], HEAVY | HTTP),
        (["gate", "r", "--policy", "pyproject.toml", *NOBODY], HEAVY),
        (["compare", "r", "--baseline", "b", *NOBODY], HEAVY),
        (["verdict", *NOBODY], HEAVY),
        (["runs", "list", *NOBODY], HEAVY),
        (["score", "--system", "recorded", "--fixture", "uv.lock", *NOBODY], HEAVY),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_a_command_loads_nothing_heavy_that_it_does_not_use(arguments: list[str], unwanted: set[str]) -> None:
    """Whoever asks a service elsewhere needs an HTTP client, and no database, engine, statistics or framework."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert "typer" in loaded
    assert not loaded & unwanted
