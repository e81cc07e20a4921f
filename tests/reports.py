"""Runs to report on: an ordinary one, and one in which every text is hostile."""

from __future__ import annotations

from collections import Counter

from app.reports.view import Case, FailureCause, ReportView
from app.runs.analysis import Breakdown, ConfidenceSums, Counts, PathParts
from app.runs.comparison import compare
from app.runs.contrasts import Comparison, Side
from app.runs.figures import Repeats
from app.runs.model import EvalReport, Progress, Record, Run, RunOptions, RunStatus, links_of
from app.runs.pairing import Answers, Pairing
from app.runs.repeats import RepeatSums
from app.runs.report import derive_report
from app.runs.statistics.calibration import bin_of
from app.runs.tally import Tally
from app.store.ids import uuid7
from layers.profile import BinaryCollapse, SystemProfile
from tests.runs import record

HOSTILE = (
    "</style></pre><script>alert(1)</script><img src=x onerror=alert(1)>'\"`|\\&amp;{{7*7}}\u202e\u0007\n"
    "[x](http://e) @you"
)
PROFILE = SystemProfile(
    name="tested",
    labels=("low", "medium", "high", "critical"),
    binary=BinaryCollapse(keep=frozenset({"low"}), negative="low", positive="high"),
)
COUNTS = {("low", "low"): 40, ("low", "high"): 3, ("medium", "medium"): 9, ("medium", "low"): 6, ("high", "high"): 14}
COUNTS |= {("high", "critical"): 2, ("critical", "critical"): 5, ("critical", "low"): 1}


def a_report(text: str | None = None) -> EvalReport:
    """A report in which `text`, where given, is a label, a failure's kind, a path and a value."""
    scored = Counter({(text or one, text or other if one == other else other): n for (one, other), n in COUNTS.items()})
    if text is None:
        scored = Counter(COUNTS)
    failed = Counter({(text or "high", text or "timeout"): 4, ("low", "refused"): 2})
    tally = Tally(sum(scored.values()) + 6, scored, failed)
    confidences = {
        (one, other, bin_of(0.05 + 0.1 * place)): ConfidenceSums(
            n, n * (0.05 + 0.1 * place), n * (0.05 + 0.1 * place) ** 2
        )
        for place, ((one, other), n) in enumerate(sorted(scored.items()))
    }
    path = PathParts(f"/input/{text or 'currency'}", Counts)
    for place, value in enumerate((text or "EUR", "USD", None, True, 7)):
        path.values[type(value).__name__, value] = Counts(
            20, Counter({pair: n // (place + 1) for pair, n in scored.items()}), Counter()
        )
    breakdown = Breakdown(confidences, [path], repeats=_repeats(text or "high"))
    return derive_report(tally, PROFILE, binary=True, breakdown=breakdown)


def _repeats(label: str) -> Repeats | None:
    strict, binary = RepeatSums(3), RepeatSums(3)
    for number in range(20):
        answers = [label, label if number % 3 else "low", label if number % 4 else None]
        strict.add(label, answers)
        binary.add("high", [None if one is None else PROFILE.collapse(one) for one in answers])
    return strict.figures(binary)


def a_comparison(text: str | None = None) -> Comparison:
    pairing = Pairing(PROFILE, PROFILE, ("/input/currency",))
    for number in range(40):
        label = text or ("low", "high")[number % 2]
        wrong = "medium"
        example = {"id": f"e{number}", "input": {"currency": ("EUR", "USD")[number % 2]}, "expected_label": label}
        after, before = label if number % 7 else wrong, wrong if number % 5 == 0 else label
        axes = [{text or "risk": ("a", ("a" if one == label else "b",))} for one in (after, before)]
        sides = Answers(label, (after,), axes[0]), Answers(label, (before,), axes[1])
        pairing.add(f"{text or 'e'}{number}", example, *sides)
    pairing.duplicates.add(text or "twice")
    side = Side(run_id=uuid7(), name=text or "last", system="tested", status=RunStatus.SUCCEEDED, dataset_id="sha256:0")
    return compare(pairing, side, side)


def a_case(name: str, expected: str, scored: str | None, text: str | None = None) -> Case:
    made: Record = record(expected, scored, example_id=name, error=text or "timeout")
    if made.prediction is not None:
        raw = {"risk_level": scored, "narrative": text or "Amount far above the usual range.", "wide": "x" * 400}
        prediction = made.prediction.model_copy(update={"raw_output": raw, "confidence": 0.93})
        made = made.model_copy(update={"prediction": prediction})
    return Case.of(made, {"input": {"amount": 12.5, "text": text or "hello", text or "currency": "EUR"}})


def a_view(text: str | None = None, *, comparison: bool = True) -> ReportView:
    """A report to write; with `text` it stands wherever somebody else's text can stand."""
    run_id = uuid7()
    report = a_report(text)
    run = Run(
        run_id=run_id,
        name=text or "nightly",
        system=text or "sentinel-l7",
        status=RunStatus.SUCCEEDED,
        failure=None,
        dataset_id="sha256:" + "ab" * 32,
        options=RunOptions(driver=text or "gemini", binary=True),
        labels={text or "prompt": text or "v3"},
        progress=Progress(n_total=report.total, n_done=report.total, n_scored=report.n_scored, n_failed=6),
        created_at="2026-11-30T10:00:00.000000Z",
        started_at="2026-11-30T10:00:01.000000Z",
        finished_at="2026-11-30T10:02:00.000000Z",
        attempts=1,
        code_version=text or "0.1.0",
        links=links_of(run_id),
    )
    causes = [(kind, count) for kind, count in report.failures_by_kind.items()]
    return ReportView(
        run=run,
        report=report,
        worst=tuple(a_case(f"{text or 'txn-'}{n}", text or "critical", text or "low", text) for n in range(4)),
        n_wrong=report.n_scored - report.correct or 4,
        failures=tuple(
            FailureCause(kind, count, (a_case(f"{text or 'txn-'}f", "high", None, text),)) for kind, count in causes
        ),
        comparison=a_comparison(text) if comparison else None,
        certain=True,
        chosen=True,
        made_at="2026-11-30T10:05:00.000000Z",
        made_by=text or "0.1.0",
    )
