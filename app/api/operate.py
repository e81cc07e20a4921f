"""What operators and orchestrators look at: liveness, readiness, breakers, systems."""

from __future__ import annotations

import logging
from typing import Literal

import anyio
from pydantic import AwareDatetime, BaseModel, Field, TypeAdapter
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from app.api.body import JSON
from app.api.operation import Answer, Content, Operation, json_response, services_of
from app.errors import NotFound, Unavailable
from app.services import Breaker, Services
from app.store.migrate import head_revision, revision_of
from layers.ports import System
from layers.profile import SystemProfile

logger = logging.getLogger(__name__)

STORE_TIMEOUT = 2.0
"""Seconds within which the store must answer to count as reachable."""


class Liveness(BaseModel):
    """The process answers."""

    status: Literal["ok"] = "ok"


class StoreState(BaseModel):
    """Whether the store can be reached and written, and its tables are those this version needs."""

    status: Literal["ok", "unreachable", "not_migrated", "not_writable"]
    reason: str | None = Field(default=None, description="Why not, in a sentence; left out where it is ok")


class Readiness(BaseModel):
    """Whether requests can be served. Dependencies in trouble are listed and don't count: answers then say so."""

    status: Literal["ready", "not_ready"]
    store: StoreState
    degraded: dict[str, str] = Field(description="Dependencies whose circuit is not closed, with its state")


class BreakerView(BaseModel):
    """One circuit breaker: `failures` of `calls` in its window; times are null while it is closed."""

    state: Literal["closed", "open", "half_open"]
    failures: int
    calls: int
    opened_at: AwareDatetime | None
    retry_at: AwareDatetime | None


class SystemView(BaseModel):
    """A system the service knows, and what it can do with it."""

    name: str
    reads_payload: bool = Field(description="Label and confidence may be left out in `POST /evaluate`")
    can_be_asked: bool = Field(description="Runs and comparisons can call it")
    why_not: str | None = Field(description="What to set so that it can be asked")
    profile: SystemProfile


class SystemPage(BaseModel):
    """Every system there is; never more than one page."""

    items: list[SystemView]
    next_cursor: str | None = None


_BREAKERS = TypeAdapter(dict[str, BreakerView])


async def livez(_: Request) -> Response:
    """The process answers; nothing else is asked."""
    return json_response(b'{"status":"ok"}')


async def readyz(request: Request) -> Response:
    """The store is asked, dependencies are not: their breakers say how they were."""
    services = services_of(request)
    store = await _store_state(services)
    states = {name: breaker.snapshot().state for name, breaker in services.breakers.items()}
    degraded = {name: state for name, state in states.items() if state != "closed"}
    ready = store.status == "ok"
    body = Readiness(status="ready" if ready else "not_ready", store=store, degraded=degraded)
    data = body.model_dump_json(exclude_none=True).encode()
    return json_response(data, 200 if ready else 503, {"cache-control": "no-store"})


async def _store_state(services: Services) -> StoreState:
    try:
        with anyio.fail_after(STORE_TIMEOUT):
            current = await services.database.read(_is_current)
            trouble = await services.database.trouble()
    except Unavailable as exc:  # the store has told the log of its trouble, once
        return StoreState(status="unreachable", reason=exc.detail)
    except Exception as exc:  # whatever is wrong with it, the answer is the same and the log says more
        logger.warning("the store is not reachable: %s", type(exc).__name__)
        why = "it gave no answer in time" if isinstance(exc, TimeoutError) else "it can't be read"
        return StoreState(status="unreachable", reason=why)
    if not current:
        return StoreState(status="not_migrated", reason="its tables are not those that this version needs")
    return StoreState(status="ok") if trouble is None else StoreState(status="not_writable", reason=trouble)


def _is_current(conn: Connection) -> bool:
    return revision_of(conn) == head_revision()


def _view(breaker: Breaker) -> BreakerView:
    return BreakerView.model_validate(breaker.snapshot(), from_attributes=True)


async def get_breakers(request: Request) -> Response:
    """Every breaker of this process."""
    views = {name: _view(breaker) for name, breaker in sorted(services_of(request).breakers.items())}
    return json_response(_BREAKERS.dump_json(views))


async def reset_breaker(request: Request) -> Response:
    """Close a breaker and forget what it counted."""
    name = request.path_params["name"]
    breakers = services_of(request).breakers
    if name not in breakers:
        raise NotFound(f"there is no such breaker; there are {', '.join(sorted(breakers)) or 'none'}")
    breakers[name].reset()
    return json_response(_view(breakers[name]))


async def get_systems(request: Request) -> Response:
    """The profiles in force."""
    systems = services_of(request).systems
    return json_response(SystemPage(items=[_system(name, systems[name]) for name in sorted(systems)]))


def _system(name: str, system: System) -> SystemView:
    return SystemView(
        name=name,
        reads_payload=system.read is not None,
        can_be_asked=system.open is not None,
        why_not=system.why_closed if system.open is None else None,
        profile=system.profile,
    )


_READINESS = {JSON: Content(Readiness)}

OPERATIONS = (
    Operation(
        "GET",
        "/livez",
        livez,
        "Is the process alive?",
        needs="open",
        tag="operations",
        answers={200: Answer("It is", {JSON: Content(Liveness)})},
    ),
    Operation(
        "GET",
        "/readyz",
        readyz,
        "Can requests be served?",
        needs="open",
        tag="operations",
        answers={
            200: Answer("They can", _READINESS),
            503: Answer("They can't: the store is out of reach, not migrated or can't be written", _READINESS),
        },
    ),
    Operation(
        "GET",
        "/breakers",
        get_breakers,
        "Show the circuit breakers",
        needs="read",
        tag="operations",
        description="Those of the process that answers, by the dependency's name.",
        answers={200: Answer("By name", {JSON: Content(dict[str, BreakerView])})},
    ),
    Operation(
        "POST",
        "/breakers/{name}/reset",
        reset_breaker,
        "Close a circuit breaker",
        needs="operate",
        tag="operations",
        answers={200: Answer("The breaker as it stands now", {JSON: Content(BreakerView)})},
        refuses=(NotFound,),
    ),
    Operation(
        "GET",
        "/systems",
        get_systems,
        "List the systems and their profiles",
        needs="read",
        tag="operations",
        answers={200: Answer("Every system", {JSON: Content(SystemPage)})},
    ),
)
