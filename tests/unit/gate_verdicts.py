"""A verdict with one rule of each status."""

from app.gates.model import GateVerdict, RuleResult, SliceName, Status
from app.runs.figures import Interval


def a_verdict(name: str = "blocked", label: str = "high", reason: str = "because") -> GateVerdict:
    interval = Interval(low=0.1, high=0.3)
    cut = SliceName(path="/input/kind", value=label)
    rules = (
        RuleResult(
            name=name,
            metric="recall",
            label=label,
            status=Status.BLOCK,
            observed=0.2,
            interval=interval,
            threshold=0.9,
            n=50,
            reason=reason,
        ),
        RuleResult(
            name="unsure",
            metric="accuracy",
            slice=cut,
            status=Status.INCONCLUSIVE,
            observed=0.2,
            interval=interval,
            threshold=0.25,
            n=50,
            n_needed=1_234,
            reason=reason,
        ),
        RuleResult(name="gone", metric="kappa", status=Status.MISSING, n=0, reason=reason),
        RuleResult(name="close", metric="accuracy", status=Status.WARN, observed=0.5, n=9, reason=reason),
        RuleResult(name="fine", metric="accuracy", status=Status.PASS, observed=1.0, n=9, reason=reason),
    )
    return GateVerdict(
        run_id="run-1",
        baseline_run_id=None,
        verdict=Status.BLOCK,
        rules=rules,
        comparison=None,
        policy_sha256="sha256:0",
        decided_at="2026-01-01T00:00:00.000000Z",
    )
