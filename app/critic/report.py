"""The report of a run under a critic, added up from rows of its audit trail."""

from __future__ import annotations

from collections import Counter

from app.critic.decide import Facts, Ids, Pairs, challenge_rate, decide, effects
from app.critic.events import Header
from app.critic.figures import ClusterAccount, Control, CriticReport
from app.critic.model import Cluster, Plan
from app.critic.rows import Row
from layers.canonical import canonical_bytes, sha256_of
from layers.critic import Discard, Labels, State

NO_AXIS = ""
"""Where challenges are counted that name none of the axes."""


class _Account:
    """One named cluster under way."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.pairs = Pairs()
        self.states: Counter[State] = Counter()
        self.n_failed = 0

    def add(self, row: Row) -> None:
        self.n_failed += row.failed is not None
        if row.state is not None:
            self.states[row.state] += 1
        _add(self.pairs, row, self.cluster.axis, row.before, row.after)

    def made(self) -> ClusterAccount:
        counts = self.pairs.counts
        known = sum(self.states.values()) + self.n_failed
        return ClusterAccount(
            name=self.cluster.name,
            axis=self.cluster.axis,
            n=counts.n,
            n_failed=self.n_failed,
            wrong_before=counts.corrected + counts.both_wrong,
            corrected=self.pairs.corrected.listed(),
            broke=self.pairs.broke.listed(),
            still_wrong=counts.both_wrong,
            accuracy_before=(counts.both_right + counts.broke) / counts.n if counts.n else None,
            accuracy_after=(counts.both_right + counts.corrected) / counts.n if counts.n else None,
            states={state: self.states[state] for state in State if self.states[state]},
            absent=max(0, len(set(self.cluster.ids)) - known),
        )


class ReportBuilder:
    """Takes rows in any order; its memory does not grow with them."""

    def __init__(self, header: Header) -> None:
        self.header = header
        plan = header.plan
        self._axes = {axis: Pairs() for axis in plan.axes}
        self._outside = {axis: Pairs() for axis in plan.axes if any(each.axis == axis for each in plan.clusters)}
        self._accounts = {cluster.name: _Account(cluster) for cluster in plan.clusters}
        self._states: Counter[State] = Counter()
        self._failures: Counter[str] = Counter()
        self._discarded: Counter[str] = Counter()
        self._triage_void: Counter[str] = Counter()
        self._moved: Counter[str] = Counter()
        self._challenged: Counter[str] = Counter()
        self._contested, self._salvaged = Ids(), Ids()
        self._admitted = self._calls = 0

    def add(self, row: Row) -> None:
        """Count one row."""
        if row.failed is not None:
            self._failures[row.failed] += 1
        self._count_state(row)
        if row.triage_void is not None:
            self._triage_void[row.triage_void] += 1
        if row.challenged is not None:
            # What a model named may be anything; the plan's axes are few.
            self._challenged[row.challenged if row.challenged in self._axes else NO_AXIS] += 1
        self._admitted += row.admitted
        self._calls += row.calls
        self._count_labels(row)

    def _count_state(self, row: Row) -> None:
        if row.state is None:
            return
        self._states[row.state] += 1
        if row.state is State.CONTESTED:
            self._contested.add(row.example_id)
        if row.state is State.SALVAGED:
            self._salvaged.add(row.example_id)
        if row.discarded is not None:
            self._discarded[row.discarded.value] += 1
        if row.moved is not None:
            self._moved[row.moved] += 1

    def _count_labels(self, row: Row) -> None:
        covered = set()
        for name in row.clusters:
            if (account := self._accounts.get(name)) is not None:
                account.add(row)
                covered.add(account.cluster.axis)
        for axis, pairs in self._axes.items():
            _add(pairs, row, axis, row.before, row.after)
            if axis in self._outside and axis not in covered:
                _add(self._outside[axis], row, axis, row.before, row.after)

    def report(self, control: Control | None = None) -> CriticReport:
        """What was added so far, and the outcome by rule."""
        header, plan = self.header, self.header.plan
        adopt, classified = plan.adopt, sum(self._states.values())
        n_failed = self._failures.total()
        unseen = self._discarded[Discard.NOT_REVIEWED.value] + self._discarded[Discard.VOID.value]
        reviewed = classified - self._states[State.SALVAGED] - unseen
        expected = plan.critic.expected_challenge_rate
        admitted = challenge_rate(self._admitted, reviewed, expected, adopt)
        axes, n_rows = effects(self._axes, adopt.alpha, plan.critic.axes), classified + n_failed
        facts = Facts(
            axes=axes,
            control=None if control is None else control.axes,
            admitted=admitted,
            unreviewed=1 - reviewed / n_rows if n_rows else 1.0,
            finished=n_rows >= header.n_total,
        )
        outcome, reasons = decide(facts, adopt)
        return CriticReport(
            run_id=header.run_id,
            dataset_id=header.dataset_id,
            system=header.system,
            plan_sha256=plan_sha256(plan),
            n_total=header.n_total,
            n_rows=n_rows,
            n_failed=n_failed,
            failures_by_kind=dict(sorted(self._failures.items())),
            states={state: self._states[state] for state in State},
            contested=self._contested.listed(),
            salvaged=self._salvaged.listed(),
            n_reviewed=reviewed,
            triage_void=dict(sorted(self._triage_void.items())),
            discarded=dict(sorted(self._discarded.items())),
            moved=dict(sorted(self._moved.items())),
            challenges_raised=challenge_rate(self._challenged.total(), reviewed, expected, adopt),
            challenges_admitted=admitted,
            challenges_by_axis=dict(sorted(self._challenged.items())),
            calls=self._calls,
            calls_per_row=self._calls / classified if classified else None,
            axes=axes,
            clusters=tuple(account.made() for account in self._accounts.values()),
            outside_clusters=effects(self._outside, adopt.alpha, plan.critic.axes),
            control=control,
            outcome=outcome,
            reasons=reasons,
        )


class ControlBuilder:
    """Pairs the rows of a control run with those of its baseline arm, by example and repeat."""

    def __init__(self, control: Header, baseline: Header) -> None:
        self._control, self._baseline = control, baseline
        self._arm: dict[tuple[str, int], Labels] = {}
        self._axes = {axis: Pairs() for axis in control.plan.axes}
        self._paired = self._alone = 0

    def add_baseline(self, row: Row) -> None:
        """One row of the classifier alone. All of these come first."""
        if row.after is not None:
            self._arm[row.key] = row.after

    def add(self, row: Row) -> None:
        """One row under the critic."""
        before = self._arm.pop(row.key, None)
        if before is None or row.after is None:
            self._alone += before is not None or row.after is not None
            return
        self._paired += 1
        for axis, pairs in self._axes.items():
            _add(pairs, row, axis, before, row.after)

    def made(self) -> Control:
        """What was added so far."""
        plan = self._control.plan
        return Control(
            run_id=self._control.run_id,
            baseline_run_id=self._baseline.run_id,
            dataset_id=self._control.dataset_id,
            n_paired=self._paired,
            unpaired=self._alone + len(self._arm),
            axes=effects(self._axes, plan.adopt.alpha, self._axes),
        )


def check_control(main: Header, control: Header, baseline: Header) -> str | None:
    """Why these two runs can't show that the critic of `main` does no harm; None = they can."""
    if plan_sha256(control.plan) != plan_sha256(main.plan) or plan_sha256(baseline.plan) != plan_sha256(main.plan):
        return "the three runs were not made with the same classifier and critic"
    if control.dataset_id != baseline.dataset_id or control.n_total != baseline.n_total:
        return "the control run and its baseline arm are not over the same examples"
    if control.dataset_id == main.dataset_id:
        return "the control must be over a second dataset"
    if (main.pipeline, control.pipeline, baseline.pipeline) != ("critic", "critic", "offline"):
        return "the control runs with the critic, its baseline arm without"
    if baseline.created_at < main.created_at:
        return "the baseline arm is not fresh: it was asked before the run that it is to speak for"
    return None


def plan_sha256(plan: Plan) -> str:
    """The hash of a plan."""
    return sha256_of(canonical_bytes(plan.model_dump(mode="json")))


def _add(pairs: Pairs, row: Row, axis: str, before: Labels | None, after: Labels | None) -> None:
    right = row.expected.get(axis)
    if right is not None and before is not None and after is not None:
        pairs.add(row.example_id, before=before[axis] == right, after=after[axis] == right)
