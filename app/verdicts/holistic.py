"""The look at the whole: a model is asked for findings, and code keeps those that point to something real."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from app.verdicts.families import ArbiterModel
from app.verdicts.laws import Law
from app.verdicts.model import MAX_FINDING, CheckResult, Holistic, HolisticFinding, HolisticState, Severity
from app.verdicts.subject import packed
from app.verdicts.text import clean
from layers.errors import DependencyError
from layers.model import JsonObject
from layers.ports import Clock
from layers.prompting import Prompt, quoted, quoted_lines
from layers.reply import ReplyFailure, read_object
from layers.scrubbing import Scrubber
from layers.structured_call import Parameters, Question, StructuredCall

MAX_PART = 20_000
"""Characters of material in one question, so that it fits a context of 8,192 tokens with what stands around it."""
MAX_FINDINGS = 50
_FIELDS = frozenset({"findings", "confidence"})
_FINDING = ("law", "severity", "place", "finding")


@dataclass(frozen=True, slots=True)
class Proposed:
    """What a model says about one part; nothing of it was checked."""

    findings: tuple[HolisticFinding, ...]
    confidence: float


@dataclass(frozen=True, slots=True)
class Shown:
    """All that a model is shown."""

    laws: tuple[Law, ...]
    checks: Sequence[CheckResult]
    narrative: str | None
    material: Sequence[JsonObject]


@dataclass(frozen=True)
class HolisticPass:
    """Asks the arbiter's model. `timeout` is for one question, in seconds."""

    model: ArbiterModel
    prompt: Prompt
    calls: StructuredCall
    scrubber: Scrubber
    timeout: float = 120.0
    clock: Clock = time.monotonic

    async def look(
        self, shown: Shown, holds: Callable[[str], Awaitable[bool]], *, max_calls: int
    ) -> tuple[Holistic, tuple[HolisticFinding, ...]]:
        """Ask about every part. Any part without an answer means that nobody looked at the whole."""
        parts = self.parts(shown)
        if len(parts) > max_calls:
            why = f"the artifact takes {len(parts)} questions, and the config allows {max_calls} (max_calls)"
            return self._without(HolisticState.FAILED, why), ()
        answers: list[Proposed] = []
        for number, part in enumerate(parts, 1):
            question = self.question(shown, part, f"{number} of {len(parts)}")
            try:
                deadline = self.clock() + self.timeout
                answers.append((await self.calls.ask(self.model.answerer, question, deadline=deadline)).value)
            except DependencyError as exc:
                why = clean(f"{exc.dependency} gave no answer ({exc.kind}): {exc.message}", self.scrubber, 500)
                return self._without(HolisticState.FAILED, why, calls=number), ()
        confidence = min(answer.confidence for answer in answers)
        done = self._without(HolisticState.DONE, None, calls=len(parts)).model_copy(update={"confidence": confidence})
        found = [finding for answer in answers for finding in answer.findings]
        ids = {law.id for law in shown.laws}
        return done, tuple([await self._checked(finding, ids, holds) for finding in found])

    def refused(self, why: str) -> Holistic:
        """That the model was not asked, because it may not judge this."""
        return self._without(HolisticState.REFUSED, why)

    def not_asked(self, why: str) -> Holistic:
        """That there was no need to ask."""
        return self._without(HolisticState.NOT_ASKED, why)

    def failed(self, why: str) -> Holistic:
        """That the model could not be shown what there is."""
        return self._without(HolisticState.FAILED, why)

    def parts(self, shown: Shown) -> list[str]:
        """The material in parts that fit into a question each; one at least. A remote model sees no secrets."""
        hide = self.scrubber.value if self.model.answerer.external else lambda value: value
        lines = (quoted(hide(piece)) for piece in shown.material)
        return ["\n".join(group) for group in packed(lines, MAX_PART)] or ["null"]

    def question(self, shown: Shown, part: str, which: str) -> Question[Proposed]:
        """One question. All that others wrote is quoted."""
        values = {
            "laws": quoted_lines(law.model_dump(exclude_none=True) for law in shown.laws),
            "checks": quoted_lines({"name": check.name, "detail": check.detail[:500]} for check in shown.checks),
            "narrative": quoted(shown.narrative),
            "part": which,
            "material": part,
        }
        return Question(self.prompt, values, answer_schema(shown.laws), read_findings, Parameters())

    async def _checked(
        self, finding: HolisticFinding, laws: set[str], holds: Callable[[str], Awaitable[bool]]
    ) -> HolisticFinding:
        void = None
        if finding.law not in laws:
            void = "it names no law that was shown"
        elif not await holds(finding.place):
            void = "it points to no place in the artifact"
        cleaned = {
            "law": clean(finding.law, self.scrubber, 200),
            "place": clean(finding.place, self.scrubber, 500),
            "finding": clean(finding.finding, self.scrubber, MAX_FINDING),
        }
        return finding.model_copy(update={**cleaned, "void": void})

    def _without(self, state: HolisticState, reason: str | None, calls: int = 0) -> Holistic:
        return Holistic(
            state=state,
            reason=reason,
            model=self.model.model,
            family=self.model.family,
            prompt=self.prompt.ref,
            calls=calls,
        )


NOT_CONFIGURED = Holistic(state=HolisticState.NOT_CONFIGURED, reason="no model is configured")


def answer_schema(laws: Sequence[Law]) -> JsonObject:
    """The JSON schema of an answer. There is no field in which a model could give a verdict."""
    finding: JsonObject = {
        "law": {"type": "string", "enum": [law.id for law in laws]},
        "place": {"type": "string"},
        "finding": {"type": "string", "maxLength": MAX_FINDING},
        "severity": {"type": "string", "enum": [severity.value for severity in Severity]},
    }
    return _object(
        {
            "findings": {"type": "array", "items": _object(finding), "maxItems": MAX_FINDINGS},
            "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        }
    )


def _object(properties: JsonObject) -> JsonObject:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def read_findings(text: str) -> Proposed:
    """A model's whole reply. Raises `ReplyFailure`, and nothing else; a field that was not asked for voids it whole."""
    value = read_object(text).value
    if set(value) != _FIELDS:
        raise ReplyFailure("malformed", "the reply does not have exactly the fields findings and confidence")
    confidence, findings = value["confidence"], value["findings"]
    if isinstance(confidence, bool) or not isinstance(confidence, int | float):
        raise ReplyFailure("malformed", "confidence is not a number")
    if not 0 <= confidence <= 1:
        raise ReplyFailure("out_of_range", "confidence is not within 0 and 1")
    if not isinstance(findings, list) or len(findings) > MAX_FINDINGS:
        raise ReplyFailure("malformed", f"findings is not a list of at most {MAX_FINDINGS}")
    return Proposed(tuple(_read_finding(item) for item in findings), float(confidence))


def _read_finding(item: Any) -> HolisticFinding:
    if not isinstance(item, dict) or set(item) != set(_FINDING):
        raise ReplyFailure("malformed", "a finding does not have exactly the fields law, severity, place and finding")
    if not all(isinstance(item[name], str) and len(item[name]) <= 2 * MAX_FINDING for name in _FINDING):
        raise ReplyFailure("malformed", "a finding's field is no text, or too long")
    if item["severity"] not in set(Severity):
        raise ReplyFailure("malformed", "a finding's severity is none of those offered")
    return HolisticFinding(
        law=item["law"].strip(),
        severity=Severity(item["severity"]),
        finding=item["finding"],
        place=item["place"].strip(),
    )
