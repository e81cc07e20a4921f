"""`arbiter-l8 verdict`: have an artifact judged; one JSON object on standard output, and an exit code for scripts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import anyio
import httpx
import typer

from app.cli.client import RequestFailed, get, no_answer, post, segment, service
from app.cli.console import err, fail, write_text
from app.cli.exits import COULD_NOT_RUN, INTERRUPTED, NO, OK, UNDECIDED, answer
from app.cli.gate import printable
from app.cli.running import read_settings
from app.errors import Conflict, NotFound, ServiceError
from app.settings import Settings
from layers.errors import ConfigurationError

if TYPE_CHECKING:
    from app.services import Services
    from app.verdicts.config import LoadedConfig
    from layers.model import JsonObject

SERVER_TIMEOUT_S = 3_600.0


def judged(
    config: Path | None, artifact: str | None, *, until: bool, server: str | None, key: str | None, folder: Path
) -> NoReturn:
    """Give a verdict, print it, and exit with what it says. Whatever goes wrong is never taken for a verdict.

    `until`: what is not there yet (a run that goes on, a file that nobody has made) is a block like any other.
    """
    code = COULD_NOT_RUN
    try:
        verdict = anyio.run(_given, read_settings(server), config, artifact, server, key, folder)
        write_text(json.dumps(verdict, ensure_ascii=True))
        code = answer(verdict["verdict"])
        if until:
            _tell(verdict)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except Exception as exc:  # a crash must not look like a block
        first = _first(exc)
        if not (until and _not_yet(first)):
            fail(str(first) if isinstance(first, _EXPECTED) else f"{type(first).__name__}: {first}", COULD_NOT_RUN)
        write_text(json.dumps(nothing_yet(artifact, str(first))))
        code = NO
    raise typer.Exit(code)


_EXPECTED = (RequestFailed, ConfigurationError, ServiceError)


def _first(exc: BaseException) -> BaseException:
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return exc


def _not_yet(exc: BaseException) -> bool:
    if isinstance(exc, RequestFailed):
        return exc.status in {404, 409}
    return isinstance(exc, (Conflict, NotFound))


def nothing_yet(artifact: str | None, why: str) -> JsonObject:
    """What `--until` prints where there is nothing to judge yet. It is no verdict: it has no hash and is not logged."""
    reason = {"kind": "could_not_run", "about": "artifact", "detail": why}
    shown = None if artifact is None else printable(artifact)
    return {
        "verdict": "block",
        "confidence": None,
        "artifact": {"kind": None, "name": shown, "sha256": None},
        "objective_checks": [],
        "holistic_findings": [],
        "reasons": [reason],
    }


def _tell(verdict: JsonObject) -> None:
    """What is left to do, for whoever watches the loop."""
    for reason in verdict["reasons"]:
        about = f"{printable(reason['about'])}: " if reason["about"] else ""
        err.print(f"{verdict['verdict']}: {about}{printable(reason['detail'])}")
    if verdict["replayed"]:
        err.print("the artifact is the one that was blocked before: nothing was run again")


async def _given(
    settings: Settings, config: Path | None, artifact: str | None, server: str | None, key: str | None, folder: Path
) -> JsonObject:
    if server is not None:
        if config is not None:
            raise ConfigurationError(
                "a service judges by its operator's config: --config and --server exclude each other"
            )
        return await ask(settings, server, key, artifact)
    if config is None:
        raise ConfigurationError("say what to judge by: --config arbiter.toml")
    from app.verdicts.config import load_config

    loaded = load_config(config)
    async with local(settings) as services:
        return await give(services, loaded, artifact, folder)


async def ask(settings: Settings, server: str, key: str | None, artifact: str | None) -> JsonObject:
    """The verdict of a service elsewhere."""
    async with service(settings, server, key, execute=False) as client:
        client.timeout = httpx.Timeout(SERVER_TIMEOUT_S, connect=10)
        try:
            verdict: JsonObject = await post(
                client, "/verdicts", json={} if artifact is None else {"artifact": artifact}
            )
        except httpx.HTTPError as exc:
            raise ConfigurationError(no_answer(exc)) from None
    return verdict


async def give(services: Services, loaded: LoadedConfig, artifact: str | None, folder: Path) -> JsonObject:
    """The verdict on the local store, by any config."""
    if services.verdicts is None:
        raise ConfigurationError("there is no arbiter")
    verdict = await services.verdicts.give(loaded, artifact, base=folder)
    return verdict.model_dump(mode="json")


@asynccontextmanager
async def local(settings: Settings) -> AsyncIterator[Services]:
    """The services in this process, which start no run."""
    from app.telemetry.logs import configure_logging
    from app.telemetry.metrics import Metrics
    from app.telemetry.setup import Telemetry
    from app.wiring import connector

    configure_logging("error", "pretty")
    wanted = settings.telemetry.model_copy(update={"enabled": settings.telemetry.given("endpoint")})
    telemetry = Telemetry(wanted)
    connect = connector(execute=False, telemetry=telemetry, metrics=Metrics(telemetry))
    async with connect(settings.model_copy(update={"telemetry": wanted})) as services:
        yield services


# --- behind a gate ----------------------------------------------------------------------------------------------------


async def after_gate(
    settings: Settings,
    run_id: str,
    gate_code: int,
    *,
    config: Path | None,
    escalate: bool,
    until: bool,
    server: str | None,
    key: str | None,
) -> int:
    """The exit code of a gate that may call the arbiter.

    `escalate`: where the gate could not tell (2) for the second time about the same artifact, the verdict decides.
    `until`: where the gate passed (0), the verdict has the last word, so that 0 means that the work is done.
    """
    if until and gate_code == OK:
        return await _verdict_code(settings, run_id, config, server, key)
    if escalate and gate_code == UNDECIDED:
        state = await _state(settings, run_id, server, key)
        if state["inconclusive_gates"] >= 2:
            return await _verdict_code(settings, run_id, config, server, key)
        err.print("inconclusive for the first time: the arbiter is called at the second")
    return gate_code


async def _state(settings: Settings, run_id: str, server: str | None, key: str | None) -> JsonObject:
    async with service(settings, server, key, execute=False) as client:
        state: JsonObject = await get(client, f"/runs/{segment(run_id)}/artifact")
    return state


async def _verdict_code(
    settings: Settings, run_id: str, config: Path | None, server: str | None, key: str | None
) -> int:
    verdict = await _given(settings, config, run_id, server, key, Path.cwd())
    err.print(f"arbiter: {verdict['verdict']}")
    _tell(verdict)
    return answer(verdict["verdict"])
