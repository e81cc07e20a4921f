"""The rule: from what checks and a model found to one verdict. No clock, no store, no model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from app.verdicts.model import (
    CheckResult,
    Decision,
    Holistic,
    HolisticFinding,
    HolisticState,
    Reason,
    ReasonKind,
    Severity,
)


class Ruling(NamedTuple):
    """What the rule says; every reason there is, not the first alone."""

    verdict: Decision
    reasons: tuple[Reason, ...]


def decide(
    checks: Sequence[CheckResult],
    findings: Sequence[HolisticFinding],
    holistic: Holistic,
    *,
    confidence_floor: float,
    holistic_optional: bool,
) -> Ruling:
    """Accept only where every check passed and nothing speaks against it; whatever is missing blocks.

    `holistic_optional` excuses that no model is configured, and nothing else: one that was asked must have answered.
    """
    against = [
        *_against_checks(checks),
        *_against_findings(findings),
        *_against_holistic(holistic, confidence_floor, optional=holistic_optional),
    ]
    if against:
        return Ruling(Decision.BLOCK, tuple(against))
    passed = Reason(kind=ReasonKind.ALL_PASSED, detail=f"all of {len(checks)} checks passed")
    if holistic.state is HolisticState.DONE:
        return Ruling(Decision.ACCEPT, (passed,))
    detail = "nobody looked at the whole: no model is configured, and the policy says that it may do without"
    return Ruling(Decision.ACCEPT, (passed, Reason(kind=ReasonKind.WITHOUT_HOLISTIC, detail=detail)))


def _against_checks(checks: Sequence[CheckResult]) -> Iterator[Reason]:
    if not checks:
        yield Reason(kind=ReasonKind.NO_CHECKS, detail="nothing was checked")
    for check in checks:
        if not check.ran:
            yield Reason(kind=ReasonKind.COULD_NOT_RUN, about=check.name, detail=_brief(check))
        elif check.result != "pass":
            yield Reason(kind=ReasonKind.CHECK_FAILED, about=check.name, detail=_brief(check))


def _against_findings(findings: Sequence[HolisticFinding]) -> Iterator[Reason]:
    """A void one that would block is no sign that all is well: nobody can tell what the model saw."""
    for finding in findings:
        if finding.severity is not Severity.BLOCKING:
            continue
        kind, detail = ReasonKind.BLOCKING_FINDING, f"{finding.place}: {_first_line(finding.finding)}"
        if finding.void is not None:
            kind, detail = (
                ReasonKind.VOID_FINDING,
                f"it can't be said whether this blocks, since {finding.void}: {detail}",
            )
        yield Reason(kind=kind, about=finding.law, detail=detail)


def _against_holistic(holistic: Holistic, floor: float, *, optional: bool) -> Iterator[Reason]:
    """A look that was not due, because a check had failed already, is no reason of its own."""
    match holistic.state:
        case HolisticState.DONE:
            confidence = holistic.confidence
            if confidence is None or confidence < floor:
                detail = f"the model's confidence is {confidence}, below the floor of {floor}"
                yield Reason(kind=ReasonKind.LOW_CONFIDENCE, detail=detail)
        case HolisticState.NOT_CONFIGURED:
            if not optional:
                yield _unseen("no model is configured to look at the whole")
        case HolisticState.REFUSED | HolisticState.FAILED:
            yield _unseen(holistic.reason or "the model gave no answer")
        case HolisticState.NOT_ASKED:
            return


def _unseen(detail: str) -> Reason:
    return Reason(kind=ReasonKind.COULD_NOT_RUN, about="holistic", detail=detail)


def _brief(check: CheckResult) -> str:
    """The first line of what a check found; of a program also the last one, in which most say what was wrong."""
    first, _, rest = check.detail.strip().partition("\n")
    last = rest.strip().rpartition("\n")[2].strip()
    if check.command is None or not last:
        return first[:500]
    return f"{first[:240]}: {last[:240]}"


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:500]
