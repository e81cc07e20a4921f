"""Figures and foreign text as people read them, the same in HTML and in Markdown."""

from __future__ import annotations

import re

from app.runs.figures import Interval, Scalar

_INVISIBLE = re.compile(
    "[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff\ud800-\udfff]"
)
"""Controls other than tab and line feed, and marks that turn the direction of text or hide it."""


def visible(text: str) -> str:
    """`text` with what can't be seen, and what changes how the rest is seen, shown as a replacement character."""
    return _INVISIBLE.sub("\ufffd", text)


def percent(value: float | None) -> str:
    """A share in 0..1 as a percentage; an undefined one is a dash."""
    return "–" if value is None else f"{100 * value:.1f} %"


def figure(value: float | None) -> str:
    """A figure in -1..1."""
    return "–" if value is None else f"{value:.3f}"


def between(interval: Interval | None) -> str:
    """The ends of an interval of a share; one that could not be made is a dash."""
    return "–" if interval is None else f"{100 * interval.low:.1f}–{100 * interval.high:.1f} %"


def ends(interval: Interval | None) -> str:
    """The same for a narrow column, where the figure above has the sign."""
    return between(interval).removesuffix(" %")


def span(interval: Interval | None) -> str:
    """The ends of an interval of a figure in -1..1."""
    return "–" if interval is None else f"{figure(interval.low)} to {figure(interval.high)}"


def points(value: float | None) -> str:
    """A difference of shares, in percentage points, with its sign."""
    return "–" if value is None else f"{100 * value:+.1f}".replace("-", "−")


def p_value(value: float | None) -> str:
    """A p-value."""
    if value is None:
        return "–"
    return "< 0.0001" if value < 0.0001 else f"{value:.4f}"


def count(value: int) -> str:
    """A whole number with its thousands apart."""
    return f"{value:,}"


def scalar(value: Scalar) -> str:
    """A JSON value that names a slice."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value) if value != "" else "(empty)"


def moment(text: str | None) -> str:
    """A time to the second."""
    return "–" if text is None else text[:19].replace("T", " ") + " UTC"
