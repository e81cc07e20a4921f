"""Remotes that a test plays: real HTTP over loopback, in the test's own loop, each answer decided by the test."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx
from pydantic import SecretStr

from app.settings import (
    EvaluationSettings,
    GeminiSettings,
    NetworkSettings,
    OllamaJudgeSettings,
    SentinelSettings,
    Settings,
    StoreSettings,
    TelemetrySettings,
    VectorSettings,
)
from app.wiring import service_app
from tests.fakes import client_of


@dataclass(frozen=True)
class Call:
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


class Wire:
    """The connection of one call, to be answered on in any way at all."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def raw(self, data: bytes) -> None:
        """Bytes as they are."""
        self._writer.write(data)
        await self._writer.drain()

    async def head(self, status: int, length: int, headers: dict[str, str] | None = None) -> None:
        lines = [f"HTTP/1.1 {status} X", f"Content-Length: {length}", "Connection: close"]
        given = {"Content-Type": "application/json", **(headers or {})}
        await self.raw("\r\n".join([*lines, *(f"{k}: {v}" for k, v in given.items()), "", ""]).encode())

    async def send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        """A whole answer."""
        await self.head(status, len(body), headers)
        await self.raw(body)

    async def reset(self) -> None:
        self._writer.transport.abort()


Answer = Callable[[Call, Wire], Awaitable[None]]


@dataclass
class Remote:
    """A server that is being played. `answer` may be changed at any time; `dropped` counts callers that hung up."""

    answer: Answer
    url: str = ""
    calls: list[Call] = field(default_factory=list)
    asked: anyio.Event = field(default_factory=anyio.Event)
    dropped: int = 0
    left: anyio.Event = field(default_factory=anyio.Event)


@contextlib.asynccontextmanager
async def playing(answer: Answer) -> AsyncIterator[Remote]:
    """A remote on a free loopback port for as long as the block lasts."""
    remote = Remote(answer)
    tasks: set[asyncio.Task[None]] = set()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            call = await _read(reader)
            remote.calls.append(call)
            remote.asked.set()
            work = asyncio.ensure_future(remote.answer(call, Wire(writer)))
            gone = asyncio.ensure_future(reader.read(1))
            try:
                await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
                if not work.done():
                    remote.dropped += 1
                    remote.left.set()
                else:
                    work.result()
            finally:
                work.cancel()
                gone.cancel()
                await asyncio.gather(work, gone, return_exceptions=True)
        writer.close()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(converse(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=2**24)
    remote.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield remote
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _read(reader: asyncio.StreamReader) -> Call:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Call(method, path, headers, json.loads(body) if body else None)


@contextlib.contextmanager
def nobody() -> Iterator[str]:
    """An address at which connections are refused."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound and not listening: no one else can get it meanwhile
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


# --- ways to answer ---------------------------------------------------------------------------------------------------


def says(value: Any, status: int = 200, **headers: str) -> Answer:
    """This JSON, to everybody."""

    async def answer(_call: Call, wire: Wire) -> None:
        await wire.send(status, json.dumps(value).encode(), {k.replace("_", "-"): v for k, v in headers.items()})

    return answer


def after(seconds: float, then: Answer) -> Answer:
    """The same, later."""

    async def answer(call: Call, wire: Wire) -> None:
        await anyio.sleep(seconds)
        await then(call, wire)

    return answer


async def html(_call: Call, wire: Wire) -> None:
    await wire.send(200, b"<html><body>It works!</body></html>", {"Content-Type": "text/html"})


async def hangs(_call: Call, _wire: Wire) -> None:
    await anyio.sleep_forever()


async def hangs_after_headers(_call: Call, wire: Wire) -> None:
    await wire.head(200, 500)
    await anyio.sleep_forever()


async def half_a_reply(_call: Call, wire: Wire) -> None:
    await wire.head(200, 500)
    await wire.raw(b'{"message": {"content": "{')


async def resets(_call: Call, wire: Wire) -> None:
    await wire.reset()


# --- models -----------------------------------------------------------------------------------------------------------


def verdict(label: str = "high", claim: str | None = None, ids: tuple[str, ...] = ("E2",)) -> str:
    """A judge's reply; its claim is about the confidence, which is E2 of a Sentinel prediction."""
    claims = [] if claim is None else [{"text": claim, "evidence_ids": list(ids)}]
    return json.dumps({"reasoning": "because", "claims": claims, "verdict": label, "confidence": 0.9})


def ollama(text: str) -> dict[str, Any]:
    """How Ollama wraps what a model wrote."""
    return {
        "model": "m",
        "created_at": "2026-01-01T00:00:00Z",
        "message": {"role": "assistant", "content": text},
        "done": True,
        "done_reason": "stop",
        "prompt_eval_count": 100,
        "eval_count": 10,
    }


def gemini(text: str) -> dict[str, Any]:
    """How Gemini does."""
    candidate = {"content": {"role": "model", "parts": [{"text": text}]}, "finishReason": "STOP"}
    return {"candidates": [candidate], "usageMetadata": {"promptTokenCount": 100, "candidatesTokenCount": 10}}


def parrot(pointer: str = "/narrative") -> Answer:
    """An Ollama whose model says back the text of the evidence at `pointer`, whatever it is."""

    async def answer(call: Call, wire: Wire) -> None:
        prompt = call.body["messages"][0]["content"]
        lines = [json.loads(line) for line in re.findall(r"^\{.*\}$", prompt, re.MULTILINE) if '"at":' in line]
        text = next((line["text"] for line in lines if line["at"] == pointer), "")
        await wire.send(200, json.dumps(ollama(text)).encode())

    return answer


def embeddings(dimension: int = 4) -> Answer:
    """An Ollama that embeds every text as the same unit vector."""
    return says({"embedding": [1.0] + [0.0] * (dimension - 1)})


def upstash(matches: Any = (), dimension: int = 4) -> Answer:
    """Sentinel's vector index: what it is asked for, it finds."""

    async def answer(call: Call, wire: Wire) -> None:
        result = {"dimension": dimension, "vectorCount": 1} if call.path == "/info" else matches
        await wire.send(200, json.dumps({"result": result}).encode())

    return answer


def neighbour(entry_id: str, label: str, score: float = 0.97) -> dict[str, Any]:
    """An entry of the index, as Sentinel stores it."""
    analysis = {"isThreat": label != "low", "risk_level": label, "message": "m", "threat_level": "t"}
    return {"id": entry_id, "score": score, "metadata": {"analysis": analysis, "policy_epoch": "1"}}


# --- the service among them -------------------------------------------------------------------------------------------

FLAGGED: dict[str, Any] = {
    "id": "txn-1",
    "system": "sentinel-l7",
    "raw_output": {
        "source": "cache_miss",
        "is_threat": True,
        "risk_level": "high",
        "confidence": 0.45,
        "narrative": "Two deposits of 9,900 USD on one day, see AML-BSA-001.",
        "policy_refs": ["AML-BSA-001"],
    },
    "input": {"amount": 9900, "currency": "USD", "merchant": "Corner Books", "id": "txn-1"},
}
"""A Sentinel verdict that escalates: an elevated label with low confidence. Its narrative is grounded."""

CONFIRMED = verdict("high", "The amount is 9900", ids=("E7",))
"""A judge's reply to it that agrees, on evidence that verifies."""


def settings_for(folder: Path, *, short: bool = False, **groups: Any) -> Settings:
    """Settings of a service in `folder`, without telemetry and audit sample; `short` = deadlines of fractions of a
    second, in the proportions of the real ones."""
    given: dict[str, Any] = {
        "store": StoreSettings(url=f"sqlite:///{folder}/arbiter.db"),
        "telemetry": TelemetrySettings(enabled=False),
        "evaluation": EvaluationSettings(audit_rate=0),
    }
    if short:
        given["evaluation"] = EvaluationSettings(
            audit_rate=0,
            request_timeout=6,
            grounding_timeout=1,
            disagreement_timeout=1.6,
            consistency_timeout=1.6,
            judge_timeout=3,
        )
        given["network"] = NetworkSettings(connect_timeout=0.3, breaker_minimum_calls=50)
        seconds = dict.fromkeys(("ollama", "gemini", "openai", "embedder", "vectors"), 0.5)
        seconds |= {"sentinel": 0.8, "synapse": 0.8}
        for name, timeout in seconds.items():
            group = groups.get(name) or type(Settings.model_fields[name].default)()
            given[name] = group.model_copy(update={"timeout": timeout})
        groups = {name: group for name, group in groups.items() if name not in seconds}
    return Settings(**{**given, **groups})


@contextlib.asynccontextmanager
async def service(settings: Settings, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the whole service."""
    async with client_of(service_app(settings, **options)) as http:
        yield http


def ollama_at(url: str, **more: Any) -> OllamaJudgeSettings:
    return OllamaJudgeSettings(host=url, **more)


def gemini_at(url: str, **more: Any) -> GeminiSettings:
    return GeminiSettings(url=f"{url}/v1beta/models/flash:generateContent", api_key=SecretStr("key"), **more)


def upstash_at(url: str, **more: Any) -> VectorSettings:
    return VectorSettings(url=url, token=SecretStr("token"), policy_source="embedded", **more)


def sentinel_at(url: str, **more: Any) -> SentinelSettings:
    return SentinelSettings(url=f"{url}/mcp", rate_per_minute=None, **more)
