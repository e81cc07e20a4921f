"""Plots as inline SVG: bars with intervals, differences, and the reliability diagram.

Only figures of ours go into them, no foreign text; colours come from the page, so that they follow its theme.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import svg
from markupsafe import Markup

from app.reports.text import count, percent
from app.runs.figures import Interval, Reliability, ReliabilityBin

_SIDE = 300
_LEFT, _TOP = 46, 10
_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
_KEEP_STROKE = {"vector-effect": "non-scaling-stroke"}


def share_bar(value: float | None, interval: Interval | None) -> Markup:
    """A bar from 0 to `value` of 1 with its interval. Decoration: the figures stand beside it."""
    drawn: list[svg.Element] = [svg.Rect(x=0, y=2, width=100, height=8, class_=["track"])]
    if value is not None:
        drawn.append(svg.Rect(x=0, y=2, width=_round(100 * value), height=8, class_=["bar"]))
    if interval is not None:
        drawn += _whisker(100 * interval.low, 100 * interval.high)
    return _strip(drawn)


def difference_bar(value: float | None, interval: Interval | None, reach: float) -> Markup:
    """A bar from the middle, which is no difference, to `value`; `reach` in 0..1 is what the half of it stands for."""
    drawn: list[svg.Element] = [svg.Rect(x=0, y=2, width=100, height=8, class_=["track"])]
    if value is not None:
        place = _place(value, reach)
        colour = "better" if value > 0 else "worse"
        drawn.append(
            svg.Rect(x=_round(min(50.0, place)), y=2, width=_round(abs(place - 50)), height=8, class_=[colour])
        )
    if interval is not None:
        drawn += _whisker(_place(interval.low, reach), _place(interval.high, reach))
    drawn.append(_line(50, 0, 50, 12, "axis"))
    return _strip(drawn)


def reach_of(intervals: Iterable[Interval | None]) -> float:
    """How far a plot of these differences has to go to either side, in 0..1."""
    ends = [max(abs(one.low), abs(one.high)) for one in intervals if one is not None]
    return max([0.05, *ends])


def reliability_diagram(calibration: Reliability, name: str) -> Markup:
    """Accuracy over confidence, bin by bin, with intervals; on the dashed line a system is as sure as it is right.

    `name` makes the ids on the page differ; it is a plain word.
    """
    bins = [one for one in calibration.bins if one.n and one.confidence is not None and one.accuracy is not None]
    drawn: list[svg.Element] = [
        svg.Title(id=f"{name}-title", text="Reliability diagram"),
        svg.Desc(id=f"{name}-desc", text=_told(bins)),
        *_frame(),
        _line(_LEFT, _TOP + _SIDE, _LEFT + _SIDE, _TOP, "ideal"),
        *_points(bins),
    ]
    figure = svg.SVG(
        viewBox=svg.ViewBoxSpec(0, 0, _LEFT + _SIDE + 14, _TOP + _SIDE + 46),
        class_=["diagram"],
        elements=drawn,
        extra={"role": "img", "aria-labelledby": f"{name}-title {name}-desc", "focusable": "false"},
    )
    return Markup(figure.as_str())  # noqa: S704 - made of figures alone


def _told(bins: Sequence[ReliabilityBin]) -> str:
    told = [f"confidence {percent(one.confidence)}: right in {percent(one.accuracy)} of {count(one.n)}" for one in bins]
    return "; ".join(told) or "no prediction has a confidence"


def _frame() -> list[svg.Element]:
    drawn: list[svg.Element] = []
    for tick in _TICKS:
        x, y = _LEFT + tick * _SIDE, _TOP + (1 - tick) * _SIDE
        drawn += [_line(x, _TOP, x, _TOP + _SIDE, "grid"), _line(_LEFT, y, _LEFT + _SIDE, y, "grid")]
        drawn.append(_label(x, _TOP + _SIDE + 17, f"{tick:g}", "middle"))
        drawn.append(_label(_LEFT - 7, y + 4, f"{tick:g}", "end"))
    drawn.append(_label(_LEFT + _SIDE / 2, _TOP + _SIDE + 38, "confidence", "middle"))
    middle = _TOP + _SIDE / 2
    turned = svg.Text(
        x=12,
        y=middle,
        text="share that is right",
        class_=["label"],
        text_anchor="middle",
        transform=[svg.Rotate(-90, 12, middle)],
    )
    return [*drawn, turned]


def _points(bins: Sequence[ReliabilityBin]) -> list[svg.Element]:
    most = max((one.n for one in bins), default=1)
    drawn: list[svg.Element] = []
    line: list[svg.Point] = []
    for one in bins:
        x, y = _LEFT + (one.confidence or 0) * _SIDE, _TOP + (1 - (one.accuracy or 0)) * _SIDE
        line.append(svg.Point(_round(x), _round(y)))
        if one.interval is not None:
            low, high = (_TOP + (1 - end) * _SIDE for end in (one.interval.low, one.interval.high))
            drawn.append(_line(x, low, x, high, "whisker"))
        size = 3.5 + 5 * (one.n / most) ** 0.5
        drawn.append(svg.Circle(cx=_round(x), cy=_round(y), r=_round(size), class_=["point"]))
    return [svg.Polyline(points=line, class_=["curve"]), *drawn] if len(bins) > 1 else drawn


def _strip(drawn: list[svg.Element]) -> Markup:
    figure = svg.SVG(
        viewBox=svg.ViewBoxSpec(0, 0, 100, 12),
        preserveAspectRatio=svg.PreserveAspectRatio("none"),
        class_=["strip"],
        elements=drawn,
        extra={"aria-hidden": "true", "focusable": "false"},
    )
    return Markup(figure.as_str())  # noqa: S704 - made of figures alone


def _whisker(low: float, high: float) -> list[svg.Element]:
    return [
        _line(low, 6, high, 6, "whisker"),
        _line(low, 3, low, 9, "whisker"),
        _line(high, 3, high, 9, "whisker"),
    ]


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> svg.Line:
    return svg.Line(x1=_round(x1), y1=_round(y1), x2=_round(x2), y2=_round(y2), class_=[kind], extra=_KEEP_STROKE)


def _label(x: float, y: float, text: str, anchor: Literal["middle", "end"]) -> svg.Text:
    return svg.Text(x=_round(x), y=_round(y), text=text, class_=["label"], text_anchor=anchor)


def _place(value: float, reach: float) -> float:
    return min(100.0, max(0.0, 50 + 50 * value / reach))


def _round(value: float) -> float:
    return round(value, 2)
