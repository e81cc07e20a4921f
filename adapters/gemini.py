"""Gemini Flash as a judge, over `generateContent`; the key travels in a header, never in the URL."""

from __future__ import annotations

import re
from typing import Any

from pydantic import SecretStr

from adapters.http import DAILY_QUOTA, JsonClient
from adapters.model_output import count, no_verdict, part, read_envelope
from adapters.reply import Reply
from layers.errors import DependencyMalformed
from layers.model import InstrumentPath, JsonObject
from layers.ports import ModelReply
from layers.prompting import RenderedPrompt

_SCHEMA_WORDS = frozenset(
    ["type", "properties", "required", "items", "enum", "description", "minimum", "maximum", "minItems", "maxItems"]
)
_DELAY = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)s")
_BLOCKED = frozenset(["SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE", "IMAGE_SAFETY"])


class GeminiJudge:
    """Ask Gemini. Always outside the operator's machines."""

    source = InstrumentPath.GEMINI_FLASH
    external = True

    def __init__(self, client: JsonClient, url: str, api_key: SecretStr) -> None:
        self._client = client
        self._url = url
        self._api_key = api_key
        self._model = url.rstrip("/").rpartition("/")[2].partition(":")[0] or "gemini"
        self.dependency = client.name
        self.identity = f"gemini:{self._model}"

    async def ask(
        self,
        prompt: RenderedPrompt,
        schema: JsonObject,
        *,
        temperature: float,
        seed: int,
        deadline: float | None = None,
    ) -> ModelReply:
        """The model's whole reply. Raises `DependencyError` (`truncated`, `blocked`, `empty_output`, ...)."""
        body = {
            "contents": [{"parts": [{"text": prompt.text}]}],
            "generationConfig": {
                "responseMimeType": "application/json",
                "responseSchema": _gemini_schema(schema),
                "temperature": temperature,
                "seed": seed,
            },
        }
        headers = {"x-goog-api-key": self._api_key.get_secret_value()}
        return await self._client.call(
            "POST", self._url, json=body, headers=headers, read=self._read, deadline=deadline
        )

    def _read(self, reply: Reply) -> ModelReply:
        value = read_envelope(reply)
        usage = value.get("usageMetadata")
        tokens = {
            "input_tokens": count(usage, "promptTokenCount"),
            "output_tokens": count(usage, "candidatesTokenCount"),
        }
        candidate, reason = _candidate(reply, value, tokens)
        text = _text(reply, candidate)
        if reason == "MAX_TOKENS":
            raise no_verdict(reply, "truncated", "the reply was cut before its end", **tokens)
        if reason in _BLOCKED:
            raise no_verdict(reply, "blocked", f"the reply was blocked: {reason}", **tokens)
        if reason not in {None, "STOP"}:
            raise no_verdict(reply, "unfinished", "the model did not finish", **tokens)
        if not text.strip():
            raise no_verdict(reply, "empty_output", "the model wrote nothing", **tokens)
        return ModelReply(text, self._model, finish_reason=reason, **tokens)


def _candidate(reply: Reply, value: JsonObject, tokens: dict[str, int | None]) -> tuple[JsonObject, str | None]:
    feedback = value.get("promptFeedback")
    if isinstance(feedback, dict) and isinstance(blocked := feedback.get("blockReason"), str):
        raise no_verdict(reply, "blocked", f"the prompt was blocked: {blocked[:64]}", **tokens)
    candidates = value.get("candidates", [])
    if not isinstance(candidates, list):
        raise DependencyMalformed(reply.dependency, "malformed", "the reply's `candidates` is no list")
    if not candidates:
        raise no_verdict(reply, "empty_output", "there is no candidate", **tokens)
    if not isinstance(candidates[0], dict):
        raise DependencyMalformed(reply.dependency, "malformed", "the reply's candidate is no object")
    reason = candidates[0].get("finishReason")
    return candidates[0], reason if isinstance(reason, str) else None


def _text(reply: Reply, candidate: JsonObject) -> str:
    """The candidate's parts but for its thoughts, joined; empty when it has no content."""
    content = candidate.get("content")
    if content is None:
        return ""
    parts = content.get("parts", []) if isinstance(content, dict) else None
    if not isinstance(parts, list):
        raise DependencyMalformed(reply.dependency, "malformed", "the candidate's `content` has no list of parts")
    spoken = [item for item in parts if not (isinstance(item, dict) and item.get("thought") is True)]
    return "".join(part(reply, item, "text", str) for item in spoken)


def retry_after(reply: Reply) -> float | None:
    """For the client's `retry_after_from`: seconds to wait, as the body of a 429 says (`error.details[].retryDelay`).

    `DAILY_QUOTA` when a daily quota is used up, None when the body names no delay.
    """
    details = _details(reply)
    if any("PerDay" in quota for quota in _quotas(details)):
        return DAILY_QUOTA
    for item in details:
        delay = item.get("retryDelay")
        if isinstance(delay, str) and (match := _DELAY.fullmatch(delay)):
            return float(match.group(1))
    return None


def _quotas(details: list[JsonObject]) -> list[str]:
    found: list[str] = []
    for item in details:
        violations = item.get("violations")
        for violation in violations if isinstance(violations, list) else []:
            if isinstance(violation, dict) and isinstance(quota := violation.get("quotaId"), str):
                found.append(quota)
    return found


def _details(reply: Reply) -> list[JsonObject]:
    try:
        value: Any = reply.json()
    except DependencyMalformed:
        return []
    error = value.get("error") if isinstance(value, dict) else None
    details = error.get("details") if isinstance(error, dict) else None
    return [item for item in details if isinstance(item, dict)] if isinstance(details, list) else []


def _gemini_schema(schema: Any) -> Any:
    """A JSON schema in the words that Gemini's `responseSchema` knows; it refuses others."""
    if not isinstance(schema, dict):
        return schema
    known = {key: value for key, value in schema.items() if key in _SCHEMA_WORDS}
    if "properties" in known:
        known["properties"] = {name: _gemini_schema(inner) for name, inner in known["properties"].items()}
        known["propertyOrdering"] = list(known["properties"])
    if "items" in known:
        known["items"] = _gemini_schema(known["items"])
    return known
