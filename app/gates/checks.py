"""What every gate checks before any figure: that the run is over, complete, and about the examples it claims."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from app.gates.model import RuleResult, Status
from app.gates.policy import Policy
from app.runs.contrasts import Listed, Paired
from app.runs.figures import Interval
from app.runs.model import TERMINAL, RunStatus
from app.runs.statistics.proportion import wilson_of_share
from app.runs.tally import Tally

MAX_IDS = 5
"""Ids that a reason names."""


@dataclass(frozen=True, slots=True)
class JudgeCoverage:
    """Of `n_asked` answers, how many a judge looked at; `n_named` of them say which instrument answered."""

    n_asked: int
    n_judged: int
    n_named: int


@dataclass(frozen=True, slots=True)
class Asked:
    """How many examples a run has, of how many anything is recorded, and of how many everything, `times` answers each.

    With `times` = 1 the last two are the same.
    """

    n_total: int
    n_asked: int
    n_complete: int
    times: int = 1

    @property
    def each(self) -> str:
        """A remark on repeats, where there are any."""
        return f", of {self.n_asked} examples asked {self.times} times each" if self.times > 1 else ""


def check_run(
    policy: Policy, status: RunStatus, tally: Tally, asked: Asked, evidence: tuple[Listed, JudgeCoverage | None]
) -> Iterator[RuleResult]:
    """The run itself: over, every example recorded, not too many failed, ids unique, judged where asked for."""
    duplicates, coverage = evidence
    yield _over(status, asked)
    yield _complete(policy, status, asked)
    yield _failed(policy, tally, asked)
    yield _unique(duplicates, asked.n_total)
    if policy.min_judge_coverage is not None:
        yield _judged(policy.min_judge_coverage, coverage, asked, policy.alpha)


def check_pairs(policy: Policy, pairs: Paired) -> Iterator[RuleResult]:
    """The run against its baseline: the same examples, with the same expected labels."""
    missing = pairs.missing
    status = Status.BLOCK if missing.count > policy.max_missing else Status.PASS
    added = f"; {pairs.added.count} are new" if pairs.added.count else ""
    reason = f"{missing.count} examples of the baseline are not in the run{_named(missing)}{added}"
    n = pairs.n_paired + missing.count
    yield _count("examples of the baseline", "missing_examples", status, missing.count, n, reason, policy)
    changed = pairs.relabelled
    status = Status.WARN if changed.count else Status.PASS
    reason = (
        f"{changed.count} examples expect another label than in the baseline, and are not compared{_named(changed)}"
    )
    yield _count("expected labels", "relabelled_examples", status, changed.count, pairs.n_paired, reason)


def _over(status: RunStatus, asked: Asked) -> RuleResult:
    if status is RunStatus.SUCCEEDED:
        found, reason = Status.PASS, "the run came to its end"
    elif status in TERMINAL:
        found, reason = Status.BLOCK, f"the run is {status.value}"
    else:
        found = Status.MISSING
        reason = f"the run is {status.value}: {asked.n_complete} of {asked.n_total} examples are through"
    return RuleResult(name="run is over", metric="status", status=found, n=asked.n_asked, reason=reason)


def _complete(policy: Policy, status: RunStatus, asked: Asked) -> RuleResult:
    lacking = max(0, asked.n_total - asked.n_complete)
    bad = lacking > policy.max_missing
    found = (Status.BLOCK if status in TERMINAL else Status.MISSING) if bad else Status.PASS
    what = "lack a record" if asked.times > 1 else "have no record"
    reason = f"{lacking} of {asked.n_total} examples {what}"
    if lacking:
        reason += f": they are missing, and every figure is over the {asked.n_asked} that were asked"
    return _count("every example has a record", "missing_records", found, lacking, asked.n_total, reason, policy)


def _failed(policy: Policy, tally: Tally, asked: Asked) -> RuleResult:
    """Of what was asked; the rest is missing, which is a rule of its own."""
    n = tally.n_scored + tally.n_failed
    share = tally.n_failed / n if n else None
    limit = policy.max_failed_share
    found = Status.BLOCK if share is None or share > limit else Status.PASS
    what = "answers" if asked.times > 1 else "examples"
    return RuleResult(
        name="failed examples",
        metric="failed_share",
        status=found,
        observed=share,
        interval=_interval(share, asked, policy.alpha),
        threshold=limit,
        n=asked.n_asked,
        reason=f"{tally.n_failed} of {n} {what} failed{asked.each}" if n else "no example was asked",
    )


def _interval(share: float | None, asked: Asked, alpha: float) -> Interval | None:
    """Wilson's, where all answers to one example count as one."""
    if share is None or not asked.n_asked:
        return None
    low, high = wilson_of_share(share, asked.n_asked, level=1 - alpha)
    return Interval(low=low, high=high)


def _unique(duplicates: Listed, n: int) -> RuleResult:
    found = Status.BLOCK if duplicates.count else Status.PASS
    reason = f"{duplicates.count} example ids stand more than once{_named(duplicates)}"
    return _count("example ids are unique", "duplicate_ids", found, duplicates.count, n, reason)


def _judged(least: float, coverage: JudgeCoverage | None, asked: Asked, alpha: float) -> RuleResult:
    name, metric = "judge coverage", "judge_coverage"
    if coverage is None or not coverage.n_named:
        reason = "no record says which judge looked at its example"
        return RuleResult(
            name=name, metric=metric, status=Status.MISSING, threshold=least, n=asked.n_asked, reason=reason
        )
    n, judged = coverage.n_asked, coverage.n_judged
    share = judged / n
    return RuleResult(
        name=name,
        metric=metric,
        status=Status.BLOCK if share < least else Status.PASS,
        observed=share,
        interval=_interval(share, asked, alpha),
        threshold=least,
        n=asked.n_asked,
        reason=f"a judge looked at {judged} of {n} {'answers' if asked.times > 1 else 'examples'}{asked.each}",
    )


def _count(
    name: str, metric: str, status: Status, count: int, n: int, reason: str, policy: Policy | None = None
) -> RuleResult:
    """A rule on how many examples are amiss, of `n`; some may be when the policy says so."""
    return RuleResult(
        name=name,
        metric=metric,
        status=status,
        observed=float(count),
        threshold=float(policy.max_missing) if policy else 0.0,
        n=n,
        reason=reason,
    )


def _named(listed: Listed) -> str:
    if not listed.count:
        return ""
    shown = ", ".join(repr(text[:80]) for text in listed.ids[:MAX_IDS])
    return f": {shown}{', ...' if listed.count > MAX_IDS else ''}"
