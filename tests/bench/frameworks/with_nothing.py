"""A loop that does nothing but ask. `python with_nothing.py BASE EXAMPLES CONCURRENCY` prints examples per second."""

import asyncio
import json
import sys
import time

import httpx
import uvloop
from httpx_aiohttp import AiohttpTransport


async def main(base: str, n: int, concurrency: int) -> None:
    """Ask and time."""
    limits = httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
    async with httpx.AsyncClient(transport=AiohttpTransport(limits=limits), base_url=base) as http:
        ids = iter(range(n))

        async def worker() -> None:
            for index in ids:
                answer = await http.post("/ingest", json={"source_id": str(index), "payload": {"n": index}})
                assert answer.json()["axiom"]["status"] == "nominal"

        began = time.perf_counter()
        await asyncio.gather(*(worker() for _ in range(concurrency)))
        print(json.dumps({"examples_per_s": n / (time.perf_counter() - began)}))


uvloop.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
