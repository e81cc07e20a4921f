"""Run a program with fixed arguments: no shell, a clean environment, a time-out, and bounded output."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import anyio

MAX_OUTPUT = 4_000_000
"""Bytes of output that are kept; of a longer one the first and the last halves."""
_CHUNK = 65_536
_AFTERWARDS_S = 2.0
"""How long an ended program's own children may keep its output open."""


class NotRun(Exception):
    """The program gave no answer: it could not be started, or did not end in time. The message says which."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What a program left. `code` is negative where a signal ended it; `cut` says that output is missing."""

    code: int
    output: bytes
    cut: bool

    @property
    def text(self) -> str:
        """The output as text, whatever its bytes are."""
        return self.output.decode("utf-8", "replace")


def clean_environment(extra: Mapping[str, str], passed: Sequence[str] = ()) -> dict[str, str]:
    """What a check's program sees: nothing of ours that it was not given by name, so no keys."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", *passed) if name in os.environ}
    return {"PATH": os.defpath, "LANG": "C.UTF-8", "TZ": "UTC", **kept, **extra}


async def run_program(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float,
    given: bytes | None = None,
    max_output: int = MAX_OUTPUT,
) -> Ended:
    """Run to the end; standard output and error together. `given` is its input. Raises `NotRun`.

    Its whole process group is killed when time is up and when the caller is cancelled.
    """
    reading, writing = os.pipe()
    output = await _open_reader(reading, max_output)
    try:
        with anyio.CancelScope(shield=True):  # one that is half started could not be ended with its children
            process = await _start(argv, cwd, env, writing, takes_input=given is not None)
    except BaseException:
        output.close()
        raise
    finally:
        os.close(writing)  # only the program holds it now, so that its end is the end of the output
    following = asyncio.create_task(output.follow())
    try:
        async with asyncio.timeout(timeout):
            await _write(process, given)
            code = await process.wait()
    except TimeoutError:
        raise NotRun(f"it did not end within {timeout:g} s\n{output.collected.ended(0).text[-2000:]}") from None
    finally:
        with anyio.CancelScope(shield=True):
            await _kill(process)
            await _finish(following)
        output.close()
    return output.collected.ended(code)


class _Output:
    """The read end of a program's output. A pipe of our own, so that waiting for the program is only that."""

    def __init__(self, stream: asyncio.StreamReader, close: Callable[[], None], limit: int) -> None:
        self.collected = _Collected(limit)
        self.close = close
        self._stream = stream

    async def follow(self) -> None:
        while data := await self._stream.read(_CHUNK):
            self.collected.add(data)


async def _open_reader(descriptor: int, limit: int) -> _Output:
    stream = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(descriptor, "rb", 0)
    )
    return _Output(stream, transport.close, limit)


async def _start(
    argv: Sequence[str], cwd: Path, env: Mapping[str, str], writing: int, *, takes_input: bool
) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *argv,
            cwd=cwd,
            env=dict(env),
            stdin=asyncio.subprocess.PIPE if takes_input else asyncio.subprocess.DEVNULL,
            stdout=writing,
            stderr=writing,
            start_new_session=True,
        )
    except (OSError, ValueError) as exc:
        why = getattr(exc, "strerror", None) or str(exc)
        raise NotRun(f"{argv[0]} could not be started: {why}") from None


async def _write(process: asyncio.subprocess.Process, given: bytes | None) -> None:
    if given is None or process.stdin is None:
        return
    with suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(given)
        await process.stdin.drain()
    process.stdin.close()


async def _kill(process: asyncio.subprocess.Process) -> None:
    """End what is left of the group, also after the program itself has ended."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.returncode is None:
        await process.wait()


async def _finish(following: asyncio.Task[None]) -> None:
    """Read what is still in the pipe. A daemon that left the group may hold it open: it is not waited for long."""
    await asyncio.wait({following}, timeout=_AFTERWARDS_S)
    following.cancel()
    await asyncio.wait({following})


class _Collected:
    """The first and the last of a stream, in bounded room."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._cut = False

    def add(self, data: bytes) -> None:
        room = self._half - len(self._head)
        self._head += data[:room] if room > 0 else b""
        self._tail += data[max(room, 0) :]
        if (over := len(self._tail) - self._half) > 0:
            del self._tail[:over]
            self._cut = True

    def ended(self, code: int) -> Ended:
        middle = b"\n[...]\n" if self._cut else b""
        return Ended(code, bytes(self._head) + middle + bytes(self._tail), self._cut)
