"""A system under test that answers every POST after a fixed time: bare ASGI, so that it is not what is measured."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

DELAY = float(os.environ.get("TARGET_DELAY_MS", "0")) / 1000
ANSWER = json.dumps({"label": "high", "confidence": 0.9, "narrative": "x" * 300}).encode()
HEAD = [(b"content-type", b"application/json"), (b"content-length", str(len(ANSWER)).encode())]


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Read the body, wait, answer."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    if DELAY and scope["method"] == "POST":
        await asyncio.sleep(DELAY)
    await send({"type": "http.response.start", "status": 200, "headers": HEAD})
    await send({"type": "http.response.body", "body": ANSWER})
