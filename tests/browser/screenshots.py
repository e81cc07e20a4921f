"""Take the screenshots of docs/: the reports of two demo runs. `python -m tests.browser.screenshots`."""

from __future__ import annotations

import io
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from PIL import Image
from playwright.sync_api import sync_playwright

from app.demo.hosting import hosted
from app.demo.sentinel import build_sentinel
from app.settings import Settings
from app.wiring import service_app

ROOT = Path(__file__).parents[2]
FIXTURE = ROOT / "app" / "demo" / "fixtures" / "sentinel_l7_ground_truth.json"
FOLDER = ROOT / "docs" / "screenshots"


@contextmanager
def service() -> Iterator[httpx.Client]:
    """A service beside a stand-in for Sentinel-L7 that has no rate limit."""
    with tempfile.TemporaryDirectory() as folder, hosted(build_sentinel(per_minute=None)) as sentinel:
        settings = Settings.model_validate(
            {
                "sentinel": {"url": f"{sentinel}/mcp", "rate_per_minute": None},
                "store": {"url": f"sqlite:///{folder}/demo.db"},
                "telemetry": {"enabled": False},
            }
        )
        with hosted(service_app(settings)) as url, httpx.Client(base_url=url, timeout=60) as client:
            yield client


def run(client: httpx.Client, options: dict[str, Any]) -> dict[str, Any]:
    """One ended run over the demo's fixture."""
    request = {"system": "sentinel-l7", "name": "demo", "options": {"binary": True, **options}}
    files = {"request": (None, json.dumps(request)), "dataset": (FIXTURE.name, FIXTURE.read_bytes())}
    made: dict[str, Any] = client.post("/runs", files=files).raise_for_status().json()
    while made["status"] not in {"succeeded", "failed"}:
        time.sleep(0.2)
        made = client.get(f"/runs/{made['run_id']}").raise_for_status().json()
    return made


def pages() -> tuple[str, str]:
    """The report of a run, and that of another one against it."""
    with service() as client:
        first, second = run(client, {}), run(client, {"driver": "ollama"})
        html = {"accept": "text/html"}
        one = client.get(f"/runs/{first['run_id']}/report", headers=html).raise_for_status().text
        params = {"baseline": first["run_id"]}
        other = client.get(f"/runs/{second['run_id']}/report", headers=html, params=params).raise_for_status().text
        return one, other


def main() -> None:
    """Write the four pictures."""
    plain, compared = pages()
    FOLDER.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for width, scheme, html in (
            (1280, "light", plain),
            (1280, "dark", compared),
            (390, "light", plain),
            (390, "dark", compared),
        ):
            page = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme).new_page()
            page.set_content(html)
            shot = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
            shot.quantize(64).save(FOLDER / f"report-{width}-{scheme}.png", optimize=True)
        browser.close()


if __name__ == "__main__":
    main()
