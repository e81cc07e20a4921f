"""Put a run before its policy: every rule once, and one verdict by the worst. No clock, no store, no model."""

from __future__ import annotations

from dataclasses import dataclass

from app.gates.checks import JudgeCoverage, check_pairs, check_run
from app.gates.floors import Measured, hold_floors
from app.gates.model import RuleResult
from app.gates.policy import Policy
from app.gates.regressions import hold_regressions
from app.runs.contrasts import Comparison, Listed
from app.runs.model import RunStatus
from app.runs.pairing import Pairing


@dataclass(frozen=True)
class Evidence:
    """All that a decision rests on. Without a baseline there is neither a pairing nor a comparison."""

    status: RunStatus
    measured: Measured
    duplicates: Listed
    coverage: JudgeCoverage | None = None
    pairing: Pairing | None = None
    comparison: Comparison | None = None


def decide(policy: Policy, evidence: Evidence) -> tuple[RuleResult, ...]:
    """What each rule found: the run, its pairs, floors, regressions. The same evidence gives the same answer."""
    found = [
        *check_run(
            policy,
            evidence.status,
            evidence.measured.tally,
            evidence.measured.asked,
            (evidence.duplicates, evidence.coverage),
        ),
        *(check_pairs(policy, evidence.comparison.pairs) if evidence.comparison else ()),
        *hold_floors(policy, evidence.measured),
        *hold_regressions(policy, evidence.pairing, evidence.measured.profile),
    ]
    return tuple(found)
