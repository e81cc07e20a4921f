"""Synapse-L4: turns telemetry into Axioms, over REST."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NoReturn

from adapters.http import JsonClient
from adapters.jsonrpc import shown
from adapters.limits import Lane
from adapters.payload import example_id, finite, invalid_input, kept, malformed, share, text
from adapters.reply import Reply
from layers.errors import DependencyMalformed, DependencyRejected, DependencyUnavailable, VerdictNotOffered
from layers.model import EvalExample, EvalPrediction, JsonObject
from layers.ports import Reading

NAME = "synapse"
STATUSES = ("nominal", "degraded", "critical")

_NEEDS = "it needs `payload`, an object, and may have `source_id`, a string"
_MAX_KEPT = 4096
"""Characters of JSON up to which something that was said beside a refusal is kept."""


def read_payload(raw_output: JsonObject) -> Reading:
    """Read an axiom, alone or in the whole reply of `/ingest`: `status` is the label, `anomaly_score` the confidence.

    The score is no certainty in the label; the profile says so. The metadata keep `source_id`, `emitted_at`, `domain`
    and `pipeline_ms`. `metric_value` is left to the profile's rules. Raises `VerdictNotOffered` for a status Synapse
    does not have, and `DependencyMalformed` naming a wrong field.
    """
    axiom, above = raw_output, ""
    if "axiom" in raw_output:
        axiom, above = raw_output["axiom"], "/axiom"
        if not isinstance(axiom, dict):
            raise malformed(NAME, above, "must be an object")
    label = text(axiom, "status", NAME, above=above)
    if label not in STATUSES:
        pointer = f"{above}/status"
        message = f"{pointer} is none of {', '.join(STATUSES)}"
        raise VerdictNotOffered(NAME, "not_a_label", message, detail={"pointer": pointer})
    score = share(axiom, "anomaly_score", NAME, above=above)
    metadata = {**kept(axiom, "source_id", "emitted_at", "domain"), **kept(raw_output, "pipeline_ms")}
    return Reading(label, score, metadata)


def body_from(example: EvalExample) -> JsonObject:
    """The body of `/ingest` for an example; `source_id` is the example's id where its input names none.

    Raises `DependencyRejected` (kind `invalid_input`) naming every field that is missing or wrong.
    """
    payload, source_id = example.input.get("payload"), example.input.get("source_id")
    problems = []
    if not isinstance(payload, dict):
        problems.append(f"`payload` is {'wrong' if 'payload' in example.input else 'missing'}")
    if source_id is not None and not (isinstance(source_id, str) and source_id):
        problems.append("`source_id` is wrong")
    if problems:
        raise invalid_input(NAME, _NEEDS, problems)
    return {"source_id": source_id or example_id(example), "payload": payload}


@dataclass(frozen=True)
class SynapseSystem:
    """Synapse as a system under test. Each answer adds an axiom to the stream that Sentinel consumes."""

    client: JsonClient
    base_url: str

    def on(self, lane: Lane) -> SynapseSystem:
        """The same Synapse, on another lane of its budget."""
        return SynapseSystem(self.client.on(lane), self.base_url)

    async def predict(self, example: EvalExample) -> EvalPrediction:
        """Ingest the payload in the example's input. Raises `DependencyError`.

        Refusals are `DependencyRejected` with kind `judge_rejected` (rule, detail and candidate in `detail`),
        `extraction_failed` or `invalid_input`; `emit_failed` is `DependencyUnavailable`. Not sent again by itself once
        Synapse may have worked on it.
        """
        body = body_from(example)
        reply = await self.client.call(
            "POST",
            f"{self.base_url.rstrip('/')}/ingest",
            json=body,
            expect={422, 500, 502},
            read=read_reply,
            repeatable=False,  # whatever it worked on may already be on the stream
        )
        reading = read_payload(reply)
        return EvalPrediction(
            id=example_id(example),
            raw_output=reply["axiom"],
            label=reading.label,
            confidence=reading.confidence,
            metadata=_with_asked(reading.metadata, body["source_id"]),
        )


def _with_asked(metadata: JsonObject, asked: str) -> JsonObject:
    """Synapse does not promise to name the source that it was given: where it names another, both are on record."""
    return metadata if metadata.get("source_id", asked) == asked else {**metadata, "asked_source_id": asked}


def read_reply(reply: Reply) -> JsonObject:
    """The body of a 200 of `/ingest`, checked. Raises `DependencyError` for everything else that it answers."""
    if reply.status >= 400:
        _fail(reply)
    body = reply.json()
    if not isinstance(body, dict) or not isinstance(body.get("axiom"), dict):
        raise malformed(NAME, "/axiom", "must be an object")
    read_payload(body)
    finite(body["axiom"], "metric_value", NAME, above="/axiom")
    return body


def _fail(reply: Reply) -> NoReturn:
    try:
        body = reply.json()
    except DependencyMalformed:  # a plain 500, or a proxy in between: the status says enough
        body = None
    said: JsonObject = body if isinstance(body, dict) else {}
    if reply.status == 422:
        _refuse(said)
    if said.get("error") == "emit_failed":
        detail = kept(said, "detail", "status_code")
        raise DependencyUnavailable(NAME, "emit_failed", "the axiom could not be put on its stream", detail=detail)
    words = shown(reply.body[:_MAX_KEPT].decode("utf-8", "replace"))
    raise DependencyUnavailable(NAME, "server_error", f"HTTP {reply.status}: {words}")


def _refuse(body: JsonObject) -> NoReturn:
    match body:
        case {"error": "judge_rejected"}:
            message = f"Synapse's own rule refused the axiom: {_word(body.get('rule'))}: {_word(body.get('detail'))}"
            raise _rejected("judge_rejected", message, kept(body, "rule", "detail", "axiom_candidate"))
        case {"error": "extraction_failed"}:
            message = f"no axiom could be extracted: {_word(body.get('detail'))}"
            raise _rejected("extraction_failed", message, kept(body, "detail", "raw_payload"))
        case {"detail": [dict() as first, *_]}:
            place = first.get("loc")
            where = ".".join(str(part) for part in place) if isinstance(place, list) else ""
            message = f"Synapse refused the request: {_word(where)}: {_word(first.get('msg'))}"
            raise _rejected("invalid_input", message, kept(body, "detail"))
    raise _rejected("rejected", "HTTP 422 without a reason that is known here", kept(body, "error", "detail"))


def _rejected(kind: str, message: str, said: JsonObject) -> DependencyRejected:
    """What Synapse said beside its reason is kept, as long as it is not big."""
    detail = {key: value for key, value in said.items() if len(json.dumps(value)) <= _MAX_KEPT}
    return DependencyRejected(NAME, kind, message, detail=detail)


def _word(value: Any) -> str:
    return shown(value) if isinstance(value, str) and value else "not said"
