"""What a benchmark says: a figure, and what it must reach."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One measured figure and its target."""

    name: str
    value: float
    target: str
    met: bool


def at_least(name: str, value: float, floor: float) -> Row:
    """A figure that must reach `floor`."""
    return Row(name, value, f">= {floor:g}", value >= floor)


def at_most(name: str, value: float, ceiling: float) -> Row:
    """A figure that must not exceed `ceiling`."""
    return Row(name, value, f"<= {ceiling:g}", value <= ceiling)
