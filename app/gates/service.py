"""What callers can do with gates: compare runs, judge one by a policy, and move baselines."""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

from app.errors import Blocked, Conflict, NotFound, Unprocessable
from app.gates.baselines import BaselineStore
from app.gates.decide import Evidence, decide
from app.gates.floors import Measured
from app.gates.model import Baseline, GateRequest, GateVerdict, worst
from app.gates.policy import Policy, parse_policy
from app.gates.store import GateStore, policy_hash
from app.runs.analysis import MAX_PATHS
from app.runs.analysis_store import AnalysisStore
from app.runs.comparison import ALPHA, compare
from app.runs.comparison_store import ComparisonStore, duplicates_of
from app.runs.contrasts import Comparison, Side
from app.runs.model import TERMINAL, Page, RunStatus
from app.runs.pairing import Pairing
from app.runs.record_store import RecordStore
from app.runs.store import RunStore, StoredRun
from app.store.database import Database
from app.store.ids import now
from app.store.paging import encode_cursor, is_storable

MAX_PEAKS = 10_000
"""Comparisons whose largest e-value is remembered; a forgotten one loses power, never validity."""

_RUN_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

OnVerdict = Callable[[str, GateVerdict], None]
"""Told of each verdict on a run, after it was stored, with the run's system. Never raises."""


CheckBinding = Callable[[str], Awaitable[None]]
"""Raises `Blocked` for a run that a binding verdict keeps from becoming a baseline."""


async def _unbound(_run_id: str) -> None:
    """No arbiter, no binding verdicts."""


class GateService:
    """The use cases of gates. Raises the `ServiceError` family."""

    def __init__(
        self,
        database: Database,
        *,
        on_verdict: OnVerdict = lambda _system, _verdict: None,
        check_binding: CheckBinding = _unbound,
    ) -> None:
        self._check_binding = check_binding
        self._on_verdict = on_verdict
        self._database = database
        self._runs = RunStore(database)
        self._records = RecordStore(database)
        self._analysis = AnalysisStore(database)
        self._comparisons = ComparisonStore(database)
        self._decisions = GateStore(database)
        self._baselines = BaselineStore(database)
        self._peaks: OrderedDict[tuple[str, str], float] = OrderedDict()

    # --- comparing ----------------------------------------------------------------------------------------------------

    async def compare(
        self, run_id: str, baseline: str, *, slices: Sequence[str] = (), alpha: float = ALPHA
    ) -> Comparison:
        """A run against a baseline, given as a run's id or a baseline's name; both may still be going on.

        Whatever keeps one of them from being a baseline is no hindrance here, and stands under `warnings`.

        Raises `NotFound`.
        """
        candidate, other = await self._stored(run_id), await self._stored(await self._resolve(baseline))
        return (await self._compare(candidate, other, slices, alpha))[1]

    async def _warnings(self, candidate: StoredRun, baseline: StoredRun) -> tuple[str, ...]:
        found = await self._held_against("the baseline", baseline)
        if candidate.run_id != baseline.run_id:
            found += await self._held_against("the run", candidate)
        return tuple(found)

    async def _held_against(self, who: str, run: StoredRun) -> list[str]:
        """Why nothing may be built on a run that is over, each reason as a sentence."""
        if run.status not in TERMINAL:
            return []
        found = [] if run.status is RunStatus.SUCCEEDED else [f"{who} {run.run_id} is {run.status.value}"]
        if blocks := await self._decisions.standing_blocks(run.run_id):
            found.append(f"a gate blocked {who} {run.run_id}, and its block stands (policy {blocks[0]})")
        try:
            await self._check_binding(run.run_id)
        except Blocked as exc:
            found.append(f"{who} {run.run_id} may be no baseline: {exc}")
        return found

    async def _compare(
        self, candidate: StoredRun, baseline: StoredRun, paths: Sequence[str], alpha: float
    ) -> tuple[Pairing, Comparison]:
        pairing = await self._comparisons.pair(candidate, baseline, tuple(dict.fromkeys(paths)))
        key = (candidate.run_id, baseline.run_id)
        made = await asyncio.to_thread(
            compare, pairing, _side(candidate), _side(baseline), alpha=alpha, peak=self._peaks.get(key, 0.0)
        )
        self._peaks[key] = made.sequential.peak_log
        self._peaks.move_to_end(key)
        if len(self._peaks) > MAX_PEAKS:
            self._peaks.popitem(last=False)
        return pairing, made.model_copy(update={"warnings": await self._warnings(candidate, baseline)})

    # --- gates --------------------------------------------------------------------------------------------------------

    async def gate(self, run_id: str, request: GateRequest) -> bytes:
        """Judge a run by a policy and store the decision; the `GateVerdict` as canonical JSON.

        Raises `NotFound`, `PolicyError` (an `Unprocessable`), `Unprocessable` for a run as its own baseline, `Conflict`
        for a baseline that did not succeed, and `Blocked` for one that the arbiter blocked.
        """
        policy = parse_policy(request.policy)
        if len(policy.paths) > MAX_PATHS:
            raise Unprocessable(f"a policy may cut a run along at most {MAX_PATHS} paths")
        run = await self._stored(run_id)
        baseline = await self._baseline_of(policy, request.baseline)
        if baseline is not None and baseline.run_id == run.run_id:
            raise Unprocessable(f"the baseline is the run {run.run_id} itself: a run can't be held against itself")
        evidence = await self._evidence(policy, run, baseline)
        rules = await asyncio.to_thread(decide, policy, evidence)
        verdict = GateVerdict(
            run_id=run.run_id,
            baseline_run_id=baseline.run_id if baseline else None,
            verdict=worst([rule.status for rule in rules]),
            rules=rules,
            comparison=evidence.comparison,
            policy_sha256=policy_hash(request.policy),
            decided_at=now(),
        )
        stored = await self._decisions.add(verdict, request.policy)
        self._on_verdict(run.system, verdict)
        return stored

    async def decisions(self, run_id: str, *, limit: int = 50, cursor: str | None = None) -> bytes:
        """A run's decisions, newest first, as a JSON page. Raises `NotFound`, `BadRequest`."""
        await self._stored(run_id)
        rows = await self._decisions.page(run_id, limit + 1, cursor)
        more = f'"{encode_cursor(rows[limit - 1][0])}"' if len(rows) > limit else "null"
        items = b",".join(data for _, data in rows[:limit])
        return b'{"items":[' + items + b'],"next_cursor":' + more.encode() + b"}"

    async def _baseline_of(self, policy: Policy, asked: str | None) -> StoredRun | None:
        """The run to compare with. One that was asked for must be there; one that the policy names may not yet be."""
        if asked is None:
            known = await self._baselines.find(policy.baseline) if policy.baseline else None
            if known is None:
                return None
            asked = known.run_id
        run = await self._stored(await self._resolve(asked))
        if run.status is not RunStatus.SUCCEEDED:
            raise Conflict(f"the run {run.run_id} is {run.status.value}: only one that succeeded can be a baseline")
        await self._check_binding(run.run_id)
        return run

    async def _evidence(self, policy: Policy, run: StoredRun, baseline: StoredRun | None) -> Evidence:
        tally, breakdown = await self._analysis.analyse(run, policy.paths)
        asks = policy.min_judge_coverage is not None
        coverage = await self._decisions.judge_coverage(run) if asks else None
        pairing, comparison = None, None
        if baseline is not None:
            pairing, comparison = await self._compare(run, baseline, policy.paths, policy.alpha)
        return Evidence(
            status=run.status,
            measured=Measured(tally, breakdown, run.config.profile),
            duplicates=await duplicates_of(self._database, run.dataset_no),
            coverage=coverage,
            pairing=pairing,
            comparison=comparison,
        )

    # --- baselines ----------------------------------------------------------------------------------------------------

    async def move_baseline(self, name: str, run_id: str) -> Baseline:
        """Point a baseline at a run. Idempotent. Raises `NotFound`, `Conflict` for a run that may not be one.

        That is a run that did not succeed, that scored nothing, that some gate blocked and no later gate by the same
        policy let pass, or that the arbiter blocked.
        """
        run = await self._stored(run_id)
        if run.status is not RunStatus.SUCCEEDED:
            raise Conflict(f"the run is {run.status.value}: only one that succeeded can be a baseline")
        n_scored, _ = await self._records.count(run)
        if not n_scored:
            raise Conflict("the run scored no example, so there is nothing to compare with")
        if blocks := await self._decisions.standing_blocks(run_id):
            raise Conflict(
                f"a gate blocked this run, and its block stands until a gate by the same policy passes: {blocks[0]}"
            )
        await self._check_binding(run_id)
        await self._baselines.move(name, run_id)
        return await self.baseline(name)

    async def baseline(self, name: str) -> Baseline:
        """One baseline with its history. Raises `NotFound`."""
        found = await self._baselines.find(name) if is_storable(name) else None
        if found is None:
            raise NotFound("there is no baseline of this name")
        return found

    async def baselines(self, *, limit: int = 50, cursor: str | None = None) -> Page[Baseline]:
        """Every baseline by name, without history. Raises `BadRequest`."""
        rows = await self._baselines.page(limit + 1, cursor)
        more = encode_cursor(rows[limit - 1].name) if len(rows) > limit else None
        return Page(items=tuple(rows[:limit]), next_cursor=more)

    async def _resolve(self, baseline: str) -> str:
        return baseline if _RUN_ID.fullmatch(baseline) else (await self.baseline(baseline)).run_id

    async def _stored(self, run_id: str) -> StoredRun:
        run = await self._runs.get(run_id)
        if run is None:
            raise NotFound("there is no such run")
        return run


def _side(run: StoredRun) -> Side:
    return Side(run_id=run.run_id, name=run.name, system=run.system, status=run.status, dataset_id=run.dataset_id)
