"""The words of verdicts: what is judged, what each check found, what a model found, and what code made of it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, StringConstraints

from layers.model import Identifier, PromptRef, UnitInterval, Value

SCHEMA_VERSION: Literal[1] = 1
"""Version of the record's shape; it goes up when a field changes its meaning."""

CheckName: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=256)]

MAX_DETAIL = 4_000
"""Characters of a check's detail."""
MAX_FINDING = 2_000
"""Characters of a model's finding."""


class ArtifactKind(StrEnum):
    """What can be judged: a run of this store, a file or folder, or what a range of commits changes."""

    RUN = "run"
    PATH = "path"
    RANGE = "git_range"


class Artifact(Value):
    """What was judged. The verdict belongs to `sha256`: the content alone, without times, ids and names of the ask.

    `exact_sha256` is, of a path, the hash with executable bits and a file's own name; None for a run or a range.
    """

    kind: ArtifactKind
    name: str
    sha256: str
    exact_sha256: str | None = None

    @property
    def as_it_is(self) -> str:
        """The hash that no change leaves as it is."""
        return self.exact_sha256 or self.sha256


class CheckResult(Value):
    """What one check found when it was run for this verdict. `command` is None where no program was started.

    `ran` False: it gave no answer (not found, out of time, nothing to look at); its result is `fail` all the same.
    """

    name: str
    command: tuple[str, ...] | None = None
    ran: bool
    result: Literal["pass", "fail"]
    detail: str


class Severity(StrEnum):
    """How much a finding weighs. Only `BLOCKING` decides anything."""

    BLOCKING = "blocking"
    MAJOR = "major"
    MINOR = "minor"


class HolisticFinding(Value):
    """What a model holds against the artifact.

    `void` says why it can't be held against it: it names no law that was shown, or a place that is not in the artifact.
    """

    law: str
    severity: Severity
    finding: str
    place: str
    void: str | None = None


class HolisticState(StrEnum):
    """How the look at the whole ended."""

    DONE = "done"
    NOT_CONFIGURED = "not_configured"
    REFUSED = "refused"
    FAILED = "failed"
    NOT_ASKED = "not_asked"


class Holistic(Value):
    """The look at the whole. `reason` says why there is none; `calls` is how many pieces the material was read in."""

    state: HolisticState
    reason: str | None = None
    model: str | None = None
    family: str | None = None
    prompt: PromptRef | None = None
    calls: int = 0
    confidence: UnitInterval | None = None


class ReasonKind(StrEnum):
    """Why a verdict is what it is. A block by `COULD_NOT_RUN` and `VOID_FINDING` alone may be judged again as it is."""

    NO_CHECKS = "no_checks"
    CHECK_FAILED = "check_failed"
    COULD_NOT_RUN = "could_not_run"
    BLOCKING_FINDING = "blocking_finding"
    VOID_FINDING = "void_finding"
    LOW_CONFIDENCE = "low_confidence"
    WITHOUT_HOLISTIC = "without_holistic"
    ALL_PASSED = "all_passed"


class Reason(Value):
    """One reason: its kind, the check or law that it is about, and a sentence."""

    kind: ReasonKind
    about: str | None = None
    detail: str


_NOTHING_FOUND_OUT = frozenset({ReasonKind.COULD_NOT_RUN, ReasonKind.VOID_FINDING})


class Decision(StrEnum):
    """The two verdicts there are."""

    ACCEPT = "accept"
    BLOCK = "block"


class Verdict(Value):
    """A verdict as it is stored and logged. `confidence` is the model's, None where none was asked."""

    schema_version: Literal[1] = SCHEMA_VERSION
    verdict: Decision
    confidence: UnitInterval | None
    artifact: Artifact
    objective_checks: tuple[CheckResult, ...]
    holistic_findings: tuple[HolisticFinding, ...]
    holistic: Holistic
    reasons: tuple[Reason, ...]
    config_sha256: str
    verdict_id: str
    decided_at: str

    @property
    def binding(self) -> bool:
        """Whether it stands for good: a block with any reason beside `could_not_run` and `void_finding`."""
        if self.verdict is Decision.ACCEPT:
            return False
        return any(reason.kind not in _NOTHING_FOUND_OUT for reason in self.reasons)


class GivenVerdict(Verdict):
    """A verdict as it is answered. `root` is the SHA-256 of the stored record, which `log_index` finds in the log.

    `replayed`: nothing was run, because the artifact is blocked already.
    """

    root: str
    log_index: int
    replayed: bool = False


class VerdictRequest(Value):
    """What to judge over HTTP: a run, or without one the artifact that the operator's file names.

    `checks` names some of the checks that the operator allowed; left out, all of them run.
    """

    artifact: Identifier | None = None
    checks: tuple[CheckName, ...] | None = Field(default=None, min_length=1, max_length=50)


class ArtifactState(Value):
    """How a run stands with the arbiter: its hash, how often gates were inconclusive about it, what binds it."""

    run_id: str
    sha256: str
    inconclusive_gates: int
    blocked: bool
    verdict: GivenVerdict | None
