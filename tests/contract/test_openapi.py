"""The API document: complete, valid, without secrets, and the one that is exported."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from jsonschema import Draft202012Validator

from app.api.problems import KINDS
from app.main import create_app
from app.openapi import SERVED, document, document_file, document_text, export
from app.settings import Settings
from tests.fakes import connect_to, fake_services

DOCUMENT = document()
OPERATIONS = [
    pytest.param(operation, id=f"{method.upper()} {path}")
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
]


def test_the_exported_document_is_the_one_that_is_served(tmp_path) -> None:
    """Fails when a shape or a status changed and `arbiter-l8 openapi` was not run."""
    assert document_file().read_text(encoding="utf-8") == document_text()
    assert export(tmp_path / "new" / "openapi.json").read_text(encoding="utf-8") == document_text()


def test_the_application_describes_itself_so() -> None:
    assert create_app(Settings(), connect_to(fake_services(Settings()))).openapi() == DOCUMENT


def test_every_reference_resolves() -> None:
    for reference in re.findall(r'"\$ref": "([^"]+)"', json.dumps(DOCUMENT)):
        node = DOCUMENT
        for part in reference.removeprefix("#/").split("/"):
            node = node[part]


def test_every_schema_is_a_schema() -> None:
    for schema in DOCUMENT["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_operation_ids_are_unique() -> None:
    names = [operation.name for operation in SERVED]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_tells_how_it_refuses(operation: dict) -> None:
    """Authentication, bodies and ids bring their statuses with them."""
    statuses = set(operation["responses"])
    assert "500" in statuses
    if operation["security"]:
        assert {"401", "403", "503"} <= statuses
    if "requestBody" in operation:
        assert {"400", "413", "415", "422"} <= statuses
    parameters = {parameter["in"] for parameter in operation.get("parameters", ())}
    assert "path" not in parameters or "404" in statuses
    assert "query" not in parameters or "400" in statuses


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_example_fits_its_schema(operation: dict) -> None:
    for media in operation.get("requestBody", {"content": {}})["content"].values():
        if "example" in media:
            schema = {**media["schema"], "components": DOCUMENT["components"]}
            Draft202012Validator(schema).validate(media["example"])


def test_no_example_holds_a_secret() -> None:
    assert not re.search(r"(?i)bearer [a-z0-9]|password|token|secret|api[-_]?key\W+[a-z0-9]{16}", json.dumps(
        [media.get("example") for path in DOCUMENT["paths"].values() for operation in path.values()
         for media in operation.get("requestBody", {"content": {}})["content"].values()]
    ))  # fmt: skip


def test_kinds_of_problems_are_told_apart() -> None:
    """A type URI belongs to one kind, and statuses are errors."""
    uris = [kind.uri for kind in KINDS.values()]
    assert len(set(uris)) == len(uris)
    assert all(400 <= kind.status < 600 for kind in KINDS.values())


def test_every_refusal_has_a_status() -> None:
    """A new member of the family without a row in the table fails here, not at a caller's."""
    from app import errors
    from app.api.problems import kind_of

    family = [
        each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.ServiceError)
    ]
    assert len(family) > 10
    for each in family:
        if each is not errors.ServiceError:
            assert kind_of(each)


def unbounded(schema: dict, where: str, inside: tuple[str, ...] = ()) -> Iterator[str]:
    """The places in what a caller sends where a text, or the names or number of a map's entries, has no limit."""
    if (reference := schema.get("$ref")) is not None:
        name = reference.rsplit("/", 1)[1]
        if name not in inside:
            yield from unbounded(DOCUMENT["components"]["schemas"][name], where, (*inside, name))
        return
    fixed = {"enum", "const", "format", "maxLength"} & schema.keys()
    if schema.get("type") == "string" and not fixed and not re.fullmatch(r"[^*+]+", schema.get("pattern", "*")):
        yield where
    entries = schema.get("additionalProperties")
    if isinstance(entries, dict):
        if "maxProperties" not in schema or "maxLength" not in schema.get("propertyNames", {}):
            yield f"{where} (entries)"
        yield from unbounded(entries, f"{where}/*", inside)
    for name, part in schema.get("properties", {}).items():
        yield from unbounded(part, f"{where}/{name}", inside)
    several = [option for word in ("anyOf", "oneOf", "allOf", "prefixItems") for option in schema.get(word, [])]
    for part in [*several, *filter(None, [schema.get("items")])]:
        yield from unbounded(part, where, inside)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_text_that_is_sent_has_a_limit(operation: dict) -> None:
    """Objects that are kept as they are, such as an example's input, are bounded by the body's size and depth alone."""
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    query = [part for part in operation.get("parameters", []) if part["in"] == "query"]
    found = [*unbounded(body, ""), *(each for part in query for each in unbounded(part["schema"], f"?{part['name']}"))]
    assert not found
