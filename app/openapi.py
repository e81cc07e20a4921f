"""The OpenAPI 3.1 document, derived from the operations that are served."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode
from starlette.requests import Request
from starlette.responses import Response

from app import errors
from app.api.body import JSON
from app.api.operation import Answer, Content, Operation, json_response
from app.api.problems import MEDIA_TYPE, InternalError, Kind, Problem, kind_of
from app.api.routes import OPERATIONS
from app.errors import ServiceError

JsonDict = dict[str, Any]
_REF = "#/components/schemas/{model}"
_SECURITY: list[JsonDict] = [{"bearer": []}, {"key": []}]
_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key"},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}
_INTRODUCTION = (
    "Judges what other AI services decided. Errors are problems of RFC 9457. Without a configured API key the service "
    "listens on loopback only, and asks for none. `X-Request-ID` is handed back on every answer. Fields and query "
    "parameters that are not known are refused."
)
_HEADERS_OF = {
    401: {"WWW-Authenticate": "How to authenticate"},
    503: {"Retry-After": "Seconds until it is worth trying again, where that is known"},
}


def document_file() -> Path:
    """Where the exported document lies in the source tree."""
    return Path(__file__).parent.parent / "openapi" / "openapi.json"


@cache
def document_text() -> str:
    """The document as it is served, printed and exported."""
    return json.dumps(document(), indent=2, ensure_ascii=False) + "\n"


def export(path: Path | None = None) -> Path:
    """Write the document to `path`, by default into the source tree."""
    path = path or document_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document_text(), encoding="utf-8", newline="\n")
    return path


async def get_openapi(_: Request) -> Response:
    """The document."""
    return json_response(document_text().encode())


SERVED: tuple[Operation, ...] = (
    *OPERATIONS,
    Operation(
        "GET",
        "/openapi.json",
        get_openapi,
        "Show this document",
        needs="open",
        tag="operations",
        answers={200: Answer("An OpenAPI 3.1 document", {JSON: Content({"type": "object"})})},
    ),
)
"""Every operation of the service, its own description included."""


def document() -> JsonDict:
    """The whole document."""
    schemas = _Schemas(SERVED)
    paths: JsonDict = {}
    for operation in SERVED:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Arbiter-L8", "version": version("arbiter-l8"), "description": _INTRODUCTION},
        "paths": paths,
        "components": {"schemas": schemas.components, "securitySchemes": _SCHEMES},
    }


class _Schemas:
    """The schemas of all shapes, made at once so that a shape used twice is one component."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        wanted: dict[tuple[str, JsonSchemaMode], TypeAdapter[Any]] = {}
        for shape, mode in _shapes(operations):
            wanted[(repr(shape), mode)] = TypeAdapter(shape)
        self._made, extra = TypeAdapter.json_schemas(
            [(key, mode, adapter) for (key, mode), adapter in wanted.items()], ref_template=_REF
        )
        self.components: JsonDict = extra.get("$defs", {})

    def of(self, content: Content, mode: JsonSchemaMode) -> JsonDict:
        """The schema of one body."""
        if isinstance(content.shape, dict):
            return content.shape
        return self._made[(repr(content.shape), mode)]


def _shapes(operations: Iterable[Operation]) -> Iterator[tuple[Any, JsonSchemaMode]]:
    yield Problem, "serialization"
    for operation in operations:
        for content in operation.body.values():
            if not isinstance(content.shape, dict):
                yield content.shape, "validation"
        for answer in operation.answers.values():
            for content in answer.content.values():
                if not isinstance(content.shape, dict):
                    yield content.shape, "serialization"


def _operation(operation: Operation, schemas: _Schemas) -> JsonDict:
    made: JsonDict = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": " ".join(filter(None, [operation.description, _scope_of(operation)])),
        "security": [] if operation.needs == "open" else _SECURITY,
        "parameters": [*_path_parameters(operation), *_query_parameters(operation), *_header_parameters(operation)],
        "responses": _responses(operation, schemas),
    }
    if operation.body:
        content = {name: _media(each, schemas, "validation") for name, each in operation.body.items()}
        made["requestBody"] = {"required": True, "content": content}
    return {key: value for key, value in made.items() if value not in ("", []) or key == "security"}


def _scope_of(operation: Operation) -> str:
    match operation.needs:
        case "open":
            return ""
        case "read":
            return "Any key may do this."
        case "submit" | "operate":
            return f"Needs a key with the scope `{operation.needs}`."


def _media(content: Content, schemas: _Schemas, mode: JsonSchemaMode) -> JsonDict:
    media: JsonDict = {"schema": schemas.of(content, mode)}
    if content.example is not None:
        media["example"] = content.example
    return media


def _path_parameters(operation: Operation) -> list[JsonDict]:
    names = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _query_parameters(operation: Operation) -> list[JsonDict]:
    if operation.query is None:
        return []
    schema = operation.query.model_json_schema(ref_template=_REF)
    definitions, required = schema.get("$defs", {}), schema.get("required", ())
    return [
        {**_query_parameter(name, part, definitions), "required": name in required}
        for name, part in schema["properties"].items()
    ]


def _query_parameter(name: str, part: JsonDict, definitions: JsonDict) -> JsonDict:
    """A parameter that may be left out has no null: `anyOf [X, null]` becomes X, and references are resolved."""
    schema = {key: value for key, value in part.items() if key not in {"title", "description", "anyOf"}}
    for option in part.get("anyOf", []):
        if option.get("type") != "null":
            schema = {**schema, **option}
    if (reference := schema.pop("$ref", None)) is not None:
        schema = {**schema, **definitions[reference.rsplit("/", 1)[1]]}
    if schema.get("default", ...) is None:
        del schema["default"]
    parameter: JsonDict = {"name": name, "in": "query", "schema": schema}
    if description := part.get("description"):
        parameter["description"] = description
    return parameter


def _header_parameters(operation: Operation) -> list[JsonDict]:
    return [
        {
            "name": header.name,
            "in": "header",
            "required": False,
            "description": header.description,
            "schema": dict(header.schema),
        }
        for header in operation.headers
    ]


def _responses(operation: Operation, schemas: _Schemas) -> JsonDict:
    made: JsonDict = {}
    for status, answer in operation.answers.items():
        made[str(status)] = _answer(answer, schemas)
    by_status: dict[int, list[Kind]] = {}
    for error in _refusals(operation):
        kind = kind_of(error)
        by_status.setdefault(kind.status, []).append(kind)
    for status, kinds in sorted(by_status.items()):
        made.setdefault(str(status), _problem(status, kinds))
    return made


def _refusals(operation: Operation) -> Iterator[type[ServiceError]]:
    """What follows from the operation's other properties, and what it says itself; each once."""
    follows: list[type[ServiceError]] = [errors.Unprocessable]  # an unknown query parameter
    if operation.needs != "open":
        follows += [errors.Unauthorized, errors.Forbidden, errors.Unavailable]
    if operation.body:
        follows += [errors.BadRequest, errors.TooSlow, errors.TooLarge, errors.UnsupportedMedia]
    if operation.query is not None:
        follows.append(errors.BadRequest)
    yield from dict.fromkeys([*follows, *operation.refuses, InternalError])


def _answer(answer: Answer, schemas: _Schemas) -> JsonDict:
    made: JsonDict = {"description": answer.description}
    if answer.headers:
        made["headers"] = _headers(answer.headers)
    if answer.content:
        made["content"] = {name: _media(each, schemas, "serialization") for name, each in answer.content.items()}
    return made


def _problem(status: int, kinds: list[Kind]) -> JsonDict:
    made: JsonDict = {
        "description": "; ".join(f"{kind.title} (`{kind.uri}`)" for kind in kinds),
        "content": {MEDIA_TYPE: {"schema": {"$ref": _REF.format(model="Problem")}}},
    }
    if status in _HEADERS_OF:
        made["headers"] = _headers(_HEADERS_OF[status])
    return made


def _headers(texts: Any) -> JsonDict:
    return {name: {"description": text, "schema": {"type": "string"}} for name, text in texts.items()}


if __name__ == "__main__":
    export()
