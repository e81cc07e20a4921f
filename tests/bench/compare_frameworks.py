"""2,000 examples against a system of 20 ms, 64 at once: `/runs`, pydantic-evals, inspect-ai and a bare loop.

Each framework runs in an environment of its own (`uv run --isolated`), over the same HTTP transport.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench import servers
from tests.bench.rows import Row, at_least
from tests.bench.submit import rate_of, submit, wait, write_dataset

EXAMPLES = 2_000
MILLISECONDS = 20
CONCURRENCY = 64
ROUNDS = 3
FRAMEWORKS = {
    "nothing": ["httpx", "httpx-aiohttp", "uvloop"],
    "pydantic_evals": ["pydantic-evals", "httpx", "httpx-aiohttp"],
    "inspect": ["inspect-ai", "httpx", "httpx-aiohttp"],
}


def main() -> list[Row]:
    """Measure; prints as it goes."""
    rates: dict[str, list[float]] = {name: [] for name in ("runs", *FRAMEWORKS)}
    system, port = servers.free_port(), servers.free_port()
    command = [sys.executable, "-m", "tests.bench.system", str(system), str(MILLISECONDS)]
    with tempfile.TemporaryDirectory() as name, servers.running(command, system, "/"):
        folder, base = Path(name), f"http://127.0.0.1:{system}"
        dataset = write_dataset(folder / "dataset.ndjson", EXAMPLES, recorded=False)
        env = {"SYNAPSE_L4_BASE_URL": base, "ARBITER_SYNAPSE_SLOTS": "96", "ARBITER_TELEMETRY": "false"}
        with servers.arbiter(port, folder, env):
            for index in range(ROUNDS):
                run = wait(port, submit(port, dataset, "synapse-l4", concurrency=CONCURRENCY))
                rates["runs"].append(rate_of(run))
                for framework in FRAMEWORKS:
                    rates[framework].append(_framework(framework, base, folder))
                shown = ", ".join(f"{name} {values[-1]:.0f}/s" for name, values in rates.items())
                print(f"round {index + 1}: {shown}")
    own, bare = (statistics.median(rates[name]) for name in ("runs", "nothing"))
    return [
        at_least("/runs over a bare loop, 20 ms, 64 at once", own / bare, 0.7),
        *(
            at_least(f"/runs over {name}, the same examples", own / statistics.median(rates[name]), 1.0)
            for name in ("pydantic_evals", "inspect")
        ),
    ]


def _framework(name: str, base: str, folder: Path) -> float:
    """Examples per second, as the script measured its own evaluation."""
    script = Path(__file__).parent / "frameworks" / f"with_{name}.py"
    packages = [option for package in FRAMEWORKS[name] for option in ("--with", package)]
    command = ["uv", "run", "--isolated", "--no-project", "--python", sys.executable, *packages, "python", str(script)]
    command += [base, str(EXAMPLES), str(CONCURRENCY)]
    env = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    done = subprocess.run(command, cwd=folder, env=env, stdout=subprocess.PIPE, check=True)
    return float(json.loads(done.stdout.splitlines()[-1])["examples_per_s"])
