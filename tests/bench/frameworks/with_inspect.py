"""The same with inspect-ai. `python with_inspect.py BASE EXAMPLES CONCURRENCY` prints examples per second."""

import json
import sys
import tempfile
import time

import httpx
from httpx_aiohttp import AiohttpTransport
from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ModelOutput
from inspect_ai.scorer import match
from inspect_ai.solver import Generate, Solver, TaskState, solver


@solver
def ask(base: str, concurrency: int) -> Solver:
    """Ask the system instead of a model."""
    clients: list[httpx.AsyncClient] = []

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        if not clients:
            limits = httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
            clients.append(httpx.AsyncClient(transport=AiohttpTransport(limits=limits), base_url=base))
        payload = {"n": int(state.input_text)}
        answer = await clients[0].post("/ingest", json={"source_id": state.input_text, "payload": payload})
        state.output = ModelOutput.from_content("none", str(answer.json()["axiom"]["status"]))
        return state

    return solve


def main(base: str, n: int, concurrency: int) -> None:
    """Evaluate and time."""
    samples = [Sample(input=str(index), target="nominal", id=index + 1) for index in range(n)]
    task = Task(dataset=MemoryDataset(samples), solver=ask(base, concurrency), scorer=match())
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        (log,) = eval(task, model="mockllm/model", max_samples=concurrency, log_dir=folder, display="none")
        took = time.perf_counter() - began
    assert log.status == "success", log.error
    print(json.dumps({"examples_per_s": n / took}))


main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
