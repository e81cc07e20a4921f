"""Rows and cells of Markdown tables."""

from __future__ import annotations

from collections.abc import Iterator

from app.reports import text
from app.runs.figures import Interval


def table_head(first: str, *others: str) -> Iterator[str]:
    """The first two lines: names of columns, all but the first to the right."""
    yield table_row(first, *others)
    yield "|---|" + "---:|" * len(others)


def table_row(*cells: str) -> str:
    """One line."""
    return "| " + " | ".join(cells) + " |"


def share_cell(value: float | None, interval: Interval | None) -> str:
    """A share with its interval."""
    return text.percent(value) if value is None else f"{text.percent(value)} ({text.between(interval)})"


def span(interval: Interval) -> str:
    """An interval of a difference, in points."""
    return f"{text.points(interval.low)} to {text.points(interval.high)}"
