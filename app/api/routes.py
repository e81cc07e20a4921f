"""Every operation there is, and the routes made of them."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.routing import Route

from app.api import (
    adjudication,
    batch,
    critic,
    datasets,
    evaluate,
    events,
    gates,
    index,
    judge,
    operate,
    provenance,
    reports,
    runs,
    synthesis,
    verdicts,
)
from app.api.access import Access
from app.api.operation import Operation
from app.api.resource import Resource

OPERATIONS: tuple[Operation, ...] = (
    *evaluate.OPERATIONS,
    *batch.OPERATIONS,
    *runs.OPERATIONS,
    *reports.OPERATIONS,
    *events.OPERATIONS,
    *critic.OPERATIONS,
    *datasets.OPERATIONS,
    *gates.OPERATIONS,
    *verdicts.OPERATIONS,
    *adjudication.OPERATIONS,
    *synthesis.OPERATIONS,
    *judge.OPERATIONS,
    *provenance.OPERATIONS,
    *index.OPERATIONS,
    *operate.OPERATIONS,
)
"""In the order in which paths are tried: the busiest first."""


def routes(operations: Iterable[Operation], access: Access) -> list[Route]:
    """One route for each path, which knows all its methods."""
    by_path: dict[str, list[Operation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, []).append(operation)
    return [_route(path, Resource(there, access)) for path, there in by_path.items()]


def _route(path: str, resource: Resource) -> Route:
    # An endpoint that is no function is taken as an ASGI application and is handed every method.
    route = Route(path, resource)
    resource.route = route
    return route
