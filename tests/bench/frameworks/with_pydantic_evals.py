"""With pydantic-evals. `python with_pydantic_evals.py BASE EXAMPLES CONCURRENCY` prints examples per second."""

import asyncio
import json
import sys
import time

import httpx
from httpx_aiohttp import AiohttpTransport
from pydantic_evals import Case, Dataset
from pydantic_evals.evaluators import EqualsExpected


async def main(base: str, n: int, concurrency: int) -> None:
    """Evaluate and time."""
    limits = httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
    cases = [Case(name=str(index), inputs=index, expected_output="nominal") for index in range(n)]
    dataset = Dataset(name="bench", cases=cases, evaluators=[EqualsExpected()])
    async with httpx.AsyncClient(transport=AiohttpTransport(limits=limits), base_url=base) as http:

        async def ask(index: int) -> str:
            answer = await http.post("/ingest", json={"source_id": str(index), "payload": {"n": index}})
            return str(answer.json()["axiom"]["status"])

        began = time.perf_counter()
        report = await dataset.evaluate(ask, max_concurrency=concurrency, progress=False)
        took = time.perf_counter() - began
    assert len(report.cases) == n
    print(json.dumps({"examples_per_s": n / took}))


asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
