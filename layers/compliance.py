"""The compliance row: for each of the ten principles, whether this evaluation held to it, and how that was checked.

It is computed from the recorded stages alone, so that whoever holds a bundle can compute it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias

from layers.model import RUNGS, JsonObject, LayerName, Rung
from layers.pointers import CHECK_NAMES, FALSE, HIGHEST, NO_REASON, code_of
from layers.provenance import Recorder, Stage

Status: TypeAlias = Literal["held", "not_applicable", "violated"]
Notes: TypeAlias = Sequence[JsonObject]
PLAN_KEYS = frozenset({"queries", "namespace", "threshold", "top_k", "over_fetch", "context_cap", "filter"})
"""What a retrieval plan must say."""


@dataclass(frozen=True, slots=True)
class Row:
    """One principle (1..10)."""

    principle: int
    status: Status
    how: str

    def as_json(self) -> JsonObject:
        return {"principle": self.principle, "status": self.status, "how": self.how}


@dataclass(frozen=True)
class Recorded:
    """What an evaluation recorded: the notes of its stages, decoded, and its verdict."""

    stages: Mapping[str, Notes]
    verdict: JsonObject

    def notes(self, stage: str) -> Notes:
        return self.stages.get(stage, ())

    @property
    def judged(self) -> Notes:
        """What a judge wrote and could be read (a provider's answers are no claims)."""
        judge = LayerName.JUDGE.value
        return [n for n in self.notes("model_output") if n.get("layer") == judge and "failure" not in n]

    @property
    def claims(self) -> list[JsonObject]:
        return [claim for note in self.notes("verification") for claim in note.get("claims", ())]


_READ = (Stage.RETRIEVAL_PLAN, Stage.EVIDENCE, Stage.PROMPT, Stage.MODEL_OUTPUT, Stage.VERIFICATION)


def so_far(recorder: Recorder, verdict: JsonObject) -> Recorded:
    """What a recorder holds, with the verdict that is about to be recorded. Cheap where nothing was asked."""
    stages: dict[str, Notes] = {stage: recorder.values(stage) for stage in _READ if recorder.noted(stage)}
    if recorder.noted(Stage.PREFLIGHT):
        stages[Stage.PREFLIGHT] = ({},)  # that it is there is all that is asked of it
    return Recorded(stages, verdict)


def compliance(recorded: Recorded) -> tuple[Row, ...]:
    """The row of each principle, in order. What this evaluation gave no occasion for is `not_applicable`."""
    return tuple(_row(number, check(recorded), how) for number, (check, how) in enumerate(_CHECKS, 1))


def row_so_far(recorder: Recorder, verdict: JsonObject) -> JsonObject:
    """The `summary` of what a recorder holds, with the verdict that is about to be recorded.

    Nearly every evaluation asked nobody anything: of those there are four kinds, each worked out once.
    """
    recorded = so_far(recorder, verdict)
    if recorded.stages.keys() <= _ASKED_NOBODY:
        return _row_of_unasked(bool(recorded.stages), _code_decides(recorded) is True)
    return summary(compliance(recorded))


_ASKED_NOBODY = frozenset({Stage.PREFLIGHT.value})


@cache
def _row_of_unasked(bound: bool, decided: bool) -> JsonObject:
    plain = {"disposition": "pass", "decision": "row"} if decided else {}
    return summary(compliance(Recorded({Stage.PREFLIGHT: ({},)} if bound else {}, plain)))


def summary(rows: Sequence[Row]) -> JsonObject:
    """The rows as numbers by status, for the answer."""
    by_status: dict[str, list[int]] = {"held": [], "not_applicable": [], "violated": []}
    for row in rows:
        by_status[row.status].append(row.principle)
    return dict(by_status)


def _row(number: int, held: bool | None, how: str) -> Row:
    return Row(number, "not_applicable" if held is None else "held" if held else "violated", how)


def _verifier_asks_no_model(recorded: Recorded) -> bool | None:
    runs = [check for note in recorded.notes("verification") for check in note.get("checks", ())]
    if not runs:
        return None
    return all(check.get("name") in CHECK_NAMES and check.get("method") for check in runs)


def _pointers_only(recorded: Recorded) -> bool | None:
    if not recorded.judged:
        return None
    read = {"text", "evidence_ids", "rung", "problems"}
    return bool(recorded.notes("verification")) and all(set(claim) <= read for claim in recorded.claims)


def _service_built_the_map(recorded: Recorded) -> bool | None:
    if not recorded.notes("prompt"):
        return None
    maps = recorded.notes("evidence")
    if not maps:
        return False
    known = {piece.get("id") for piece in maps[-1].get("items", ())}
    return all(
        claim.get("rung") == Rung.UNGROUNDED or set(claim.get("evidence_ids", ())) <= known for claim in recorded.claims
    )


def _retrieval_and_policy_are_bound(recorded: Recorded) -> bool | None:
    if not recorded.notes("preflight"):
        return False
    plans, prompts = recorded.notes("retrieval_plan"), recorded.notes("prompt")
    says_how = all(set(plan) >= PLAN_KEYS for plan in plans)
    return says_how and all(note.get("text") and note.get("sha256") for note in prompts)


def _checks_are_complete(recorded: Recorded) -> bool | None:
    # What an earlier revision verified may be older than the list of checks.
    notes = [note for note in recorded.notes("verification") if "from_revision" not in note]
    if not notes:
        return None
    return all({check.get("name") for check in note.get("checks", ())} == CHECK_NAMES for note in notes)


def _anchors_come_first(recorded: Recorded) -> bool | None:
    if not recorded.claims:
        return None
    return all(_at_most(claim, Rung.POINTER_LINKED) for claim in recorded.claims if _has_anchor_problem(claim))


def _has_anchor_problem(claim: JsonObject) -> bool:
    return any(HIGHEST.get(code_of(problem)) is Rung.POINTER_LINKED for problem in claim.get("problems", ()))


def _rungs_say_what_was_checked(recorded: Recorded) -> bool | None:
    notes = recorded.notes("verification")
    if not notes:
        return None
    return all(_rung_is_earned(note) for note in notes)


def _rung_is_earned(note: JsonObject) -> bool:
    claims = note.get("claims", ())
    earned = all(
        _at_most(claim, min(highest, key=RUNGS.index))
        for claim in claims
        if (highest := [HIGHEST.get(code_of(problem), Rung.UNGROUNDED) for problem in claim.get("problems", ())])
    )
    lowest = min((_index(claim.get("rung")) for claim in claims), default=0)
    below_entailment = all(_index(claim.get("rung")) < RUNGS.index(Rung.ENTAILMENT_VERIFIED) for claim in claims)
    return earned and below_entailment and _index(note.get("rung")) == lowest


def _at_most(claim: JsonObject, rung: Rung) -> bool:
    return _index(claim.get("rung")) <= RUNGS.index(rung)


def _index(rung: Any) -> int:
    return RUNGS.index(Rung(rung)) if rung in set(RUNGS) else len(RUNGS)


def _code_decides(recorded: Recorded) -> bool | None:
    """The disposition comes from a row of the decision table, the score is no judge's figure, and where a judge
    decided, no claim of it is false and one at least rests on more than what is under review."""
    verdict = recorded.verdict
    if verdict.get("decision") in JUDGE_DECIDES and not _carries((verdict.get("judge_verdict") or {}).get("claims")):
        return False
    heuristics = verdict.get("heuristic_result")
    score = verdict.get("suspicion_score")
    if not verdict.get("decision") or not verdict.get("disposition"):
        return False
    if heuristics is None or score is None:
        return True
    severities = [flag.get("severity", 0) for flag in heuristics.get("flags", ())]
    return bool(score >= max(severities, default=0))


JUDGE_DECIDES = frozenset({"judge_confirms", "defect_stands", "judge_overturns"})
"""Rows of the decision table that take a judge's word."""


def _carries(claims: Any) -> bool:
    codes = [{code_of(problem) for problem in claim.get("problems", ())} for claim in claims or ()]
    return all(map(FALSE.isdisjoint, codes)) and any(map(NO_REASON.isdisjoint, codes))


_PINNED: Callable[[Recorded], bool | None] = lambda _: None  # noqa: E731 - nothing in one evaluation can show it

_CHECKS: tuple[tuple[Callable[[Recorded], bool | None], str], ...] = (
    (_verifier_asks_no_model, "every verification check is one of the known ones and names its method"),
    (_pointers_only, "claims were judged by text and ids; nothing else of them was read"),
    (_service_built_the_map, "the evidence map is recorded, and grounded claims point into it only"),
    (_retrieval_and_policy_are_bound, "policy, retrieval plans and prompt are stages, complete"),
    (_checks_are_complete, "every pointer check is recorded with whether it ran"),
    (_anchors_come_first, "no claim with a missing anchor stands above POINTER-LINKED"),
    (
        _rungs_say_what_was_checked,
        "each rung fits its problems, the answer's is the lowest, none is ENTAILMENT-VERIFIED",
    ),
    (_PINNED, "tests pin the invariants before a release"),
    (
        _code_decides,
        "the disposition names its row of the decision table, the score is not below the flags', a judge whose claims"
        " are false or circular decided nothing",
    ),
    (_PINNED, "an evaluation blocks nothing"),
)
