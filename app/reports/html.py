"""One self-contained page of HTML: no script, no network, readable from a file."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from app.reports import plots, text
from app.reports.view import ReportView
from app.runs.figures import LabelIntervals, LabelMetrics, Scores

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""What a browser may do for the page: show it. It stands in the page too, which may be opened from a file."""


def render_html(view: ReportView) -> str:
    """The whole page. Whatever the run holds is shown as text and never taken for markup."""
    return _environment().get_template("report.html.jinja").render(view=view, run=view.run, report=view.report)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("app.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters.update(
        percent=text.percent,
        figure=text.figure,
        between=text.between,
        ends=text.ends,
        span=text.span,
        points=text.points,
        p_value=text.p_value,
        count=text.count,
        scalar=text.scalar,
        moment=text.moment,
    )
    environment.globals.update(
        share_bar=plots.share_bar,
        difference_bar=plots.difference_bar,
        reach_of=plots.reach_of,
        reliability_diagram=plots.reliability_diagram,
        heat=_heat,
        labelled=_labelled,
        policy=POLICY,
    )
    return environment


def _shown(value: Any) -> Any:
    """What an expression puts on the page; only text of ours, which is `Markup`, goes there as it is."""
    if isinstance(value, Markup):
        return value
    return text.visible(value) if isinstance(value, str) else value


def _heat(scores: Scores, row: int, column: int) -> float:
    """How strongly a cell of the confusion matrix is coloured: its share of its row, 0..1."""
    cells = scores.confusion.matrix[row]
    return round(cells[column] / (sum(cells) or 1), 3)


def _labelled(scores: Scores) -> list[tuple[LabelMetrics, LabelIntervals | None]]:
    """Each label's figures with their intervals."""
    intervals = {one.label: one for one in scores.intervals.per_label}
    return [(one, intervals.get(one.label)) for one in scores.per_label]
