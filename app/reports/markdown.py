"""A report as GitHub's Markdown, for pull requests and job summaries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from app.gates.render_markdown import code
from app.reports import text
from app.reports.markdown_comparison import comparison
from app.reports.markdown_tables import share_cell, table_head, table_row
from app.reports.view import Case, Json, ReportView
from app.runs.figures import Reliability, Repeats, Scores, Slice, Undefined

MAX_WORST = 10
MAX_TEXT = 2_000
"""Characters of an input or raw output; a comment on a pull request has room for 65,536 in all."""


def render_markdown(view: ReportView) -> str:
    """The whole report. Text that others wrote stands in code, where nothing is made of it."""
    report = view.report
    repeats = report.repeats
    parts: list[Iterable[str]] = [_heading(view), _scores(report, repeats), _undefined(report.undefined)]
    if report.binary is not None:
        parts.append(["## Labels collapsed to two", "", *_scores(report.binary, repeats)])
    if report.calibration is not None:
        parts.append(_calibration(report.calibration))
    if report.repeats is not None:
        parts.append(_repeats(report.repeats))
    parts += [_slice(one) for one in report.slices]
    if view.comparison is not None:
        parts.append(comparison(view.comparison))
    parts += [_worst(view), _failures(view), _provenance(view)]
    return "\n\n".join("\n".join(part).strip("\n") for part in map(list, parts) if part) + "\n"


def _heading(view: ReportView) -> Iterator[str]:
    run = view.run
    yield f"# Report: {code(run.system)} {code(run.name) if run.name else ''}".rstrip()
    yield ""
    yield f"Run {code(run.run_id)} {run.status.value}, {text.count(view.report.total)} questions."
    if run.failure is not None:
        yield f"It could not go on: {code(run.failure.message)}"


def _scores(scores: Scores, repeats: Repeats | None) -> Iterator[str]:
    clustered = scores.intervals.accuracy_clustered
    interval = clustered.interval if clustered else scores.intervals.accuracy
    if scores.accuracy is None:
        yield f"**Accuracy is undefined**: 0 of {text.count(scores.total)} scored."
    else:
        yield (
            f"**Accuracy {text.percent(scores.accuracy)}** (95 % interval {text.between(interval)}, "
            f"{text.count(scores.correct)} of n = {text.count(scores.n_scored)} {'answers' if repeats else 'examples'})"
        )
    if scores.total > scores.n_scored:
        bounds, missing = scores.accuracy_bounds, scores.total - scores.n_scored - scores.n_failed
        more = f", {text.count(missing)} are missing, not asked" if missing else ""
        yield (
            f"{text.count(scores.n_failed)} failed{more}; "
            f"over all questions accuracy would be "
            f"{text.percent(bounds.worst)} to {text.percent(bounds.best)}."
        )
    yield ""
    yield from _whole(scores)
    yield ""
    yield from _per_label(scores)
    yield ""
    yield from _confusion(scores)


def _whole(scores: Scores) -> Iterator[str]:
    """The figures that are taken over all labels."""
    ends = scores.intervals
    yield from table_head("figure", "value", "95 % interval")
    averages = (("macro", scores.macro, ends.macro), ("weighted", scores.weighted, ends.weighted))
    for name, average, interval in averages:
        for what in ("precision", "recall", "f1"):
            shown = text.span(getattr(interval, what) if interval else None)
            yield table_row(f"{name} {what}".replace("f1", "F1"), text.figure(getattr(average, what)), shown)
    yield table_row("balanced accuracy", text.figure(scores.balanced_accuracy), text.span(ends.balanced_accuracy))
    yield table_row("Matthews correlation", text.figure(scores.matthews), text.span(ends.matthews))
    yield table_row("Cohen's kappa", text.figure(scores.kappa), text.span(ends.kappa))


def _per_label(scores: Scores) -> Iterator[str]:
    ends = {one.label: one for one in scores.intervals.per_label}
    yield from table_head("label", "precision", "recall", "F1", "predicted", "support")
    for row in scores.per_label:
        mine = ends.get(row.label)
        yield table_row(
            code(row.label),
            share_cell(row.precision, mine.precision if mine else None),
            share_cell(row.recall, mine.recall if mine else None),
            share_cell(row.f1, mine.f1 if mine else None),
            text.count(row.n_predicted),
            text.count(row.support),
        )


def _confusion(scores: Scores) -> Iterator[str]:
    labels = scores.confusion.labels
    if not labels:
        return
    yield from table_head("expected \\ predicted", *map(code, labels))
    for label, cells in zip(labels, scores.confusion.matrix, strict=True):
        yield table_row(code(label), *map(text.count, cells))
    if scores.confusion.n_omitted:
        yield ""
        yield f"{text.count(scores.confusion.n_omitted)} rarer labels are not shown."


def _undefined(items: Sequence[Undefined]) -> Iterator[str]:
    for item in items:
        of = f" of {code(item.label)}" if item.label is not None else ""
        yield f"- undefined: {code(item.metric)}{of}: {item.reason}"


def _calibration(figures: Reliability) -> Iterator[str]:
    yield "## Calibration"
    yield ""
    yield (
        f"Brier score {text.figure(figures.brier_score)}, expected calibration error "
        f"{text.figure(figures.expected_calibration_error)}, n = {text.count(figures.n)}; neither has an interval, "
        f"because only sums by bin are kept"
    )
    yield ""
    yield from table_head("confidence", "mean", "right", "n")
    for one in figures.bins:
        if one.n:
            share = share_cell(one.accuracy, one.interval)
            yield table_row(f"{one.low:.1f}–{one.high:.1f}", text.percent(one.confidence), share, text.count(one.n))


def _repeats(figures: Repeats) -> Iterator[str]:
    yield "## Repeats"
    yield ""
    yield (
        f"{text.count(figures.n_examples)} examples were asked {figures.k} times each; "
        f"{text.count(figures.n_complete)} had every answer scored, and the shares are of these. With what was not "
        f"scored counted as wrong, {text.percent(figures.pass_all_worst)} of all are right every time and "
        f"{text.percent(figures.pass_any_worst)} at least once. Agreement is over the "
        f"{text.count(figures.n_agreement)} examples with two scored answers or more; it has no interval."
    )
    yield ""
    every = f"right every time (pass^{figures.k})"
    yield from table_head("labels", every, "at least once", "agreement", "variance within", "between")
    for name, row in (("as they are", figures), ("collapsed to two", figures.binary)):
        if row is not None:
            yield table_row(
                name,
                share_cell(row.pass_all, row.pass_all_interval),
                share_cell(row.pass_any, row.pass_any_interval),
                text.percent(row.agreement),
                text.figure(row.variance_within),
                text.figure(row.variance_between),
            )


def _slice(part: Slice) -> Iterator[str]:
    yield f"## Slice {code(part.path)}"
    yield ""
    if part.reason:
        yield part.reason
        return
    yield from table_head("value", "accuracy", "stands out", "p", "scored", "failed")
    for value in part.values:
        yield table_row(
            code(text.scalar(value.value)),
            share_cell(value.accuracy, value.interval),
            value.flag or "no",
            text.p_value(value.p_adjusted),
            text.count(value.n_scored),
            text.count(value.n_failed),
        )


def _worst(view: ReportView) -> Iterator[str]:
    if not view.n_wrong:
        return
    yield "## Wrong predictions"
    yield ""
    shown = view.worst[:MAX_WORST]
    yield f"{text.count(view.n_wrong)} of {text.count(view.report.n_scored)} scored; the gravest {len(shown)}:"
    for case in shown:
        yield ""
        yield from _case(case)


def _failures(view: ReportView) -> Iterator[str]:
    if not view.failures:
        return
    yield "## Failures by cause"
    yield ""
    yield from table_head("cause", "examples", "for example")
    for cause in view.failures:
        some = " ".join(f"{code(case.record.example_id)} {code(_message(case))}" for case in cause.cases[:1])
        yield table_row(code(cause.kind), text.count(cause.count), some)


def _message(case: Case) -> str:
    return case.record.error.message if case.record.error else ""


def _case(case: Case) -> Iterator[str]:
    record = case.record
    yield "<details><summary>"
    yield ""
    yield f"{code(record.example_id)} expected {code(record.expected_label)}, predicted {code(record.scored_label)}"
    yield ""
    yield "</summary>"
    for name, value in (("Input", case.input), ("Raw output", case.raw_output)):
        if value is not None:
            yield ""
            yield f"{name}:"
            yield ""
            yield from _block(value)
    yield ""
    yield "</details>"


def _block(value: Json) -> Iterator[str]:
    shown = text.visible(value.text[:MAX_TEXT])
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    yield f"{fence}json"
    yield shown
    yield fence
    if omitted := value.omitted + len(value.text) - len(value.text[:MAX_TEXT]):
        yield ""
        yield f"{text.count(omitted)} more characters"


def _provenance(view: ReportView) -> Iterator[str]:
    run = view.run
    options = ", ".join(f"{name} {code(value)}" for name, value in run.options if value is not None)
    yield "## Provenance"
    yield ""
    yield f"- dataset {code(run.dataset_id)}"
    yield f"- configuration {code(run.system)}, {options}, attempt {run.attempts}"
    for name, value in run.labels.items():
        yield f"- {code(name)} {code(value)}"
    yield f"- code version {code(run.code_version)}"
    yield f"- accepted {text.moment(run.created_at)}, ended {text.moment(run.finished_at)}"
    yield f"- made {text.moment(view.made_at)} by Arbiter-L8 {code(view.made_by)} from the run's records"
