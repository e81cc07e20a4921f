"""Checkable tokens in prose: citations, regulatory keywords, amounts, numbers, dates, names and codes."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class AnchorToken:
    """A token that can be checked. `start` and `end` index the text that was searched.

    `kind` is `citation`, `keyword`, `amount`, `percent`, `number`, `date`, `name` or `code`. `value` is the number with
    its scale applied (`$890M` is 890000000) and `unit` its currency, `%` or unit of time. `key` is the comparable form.
    """

    text: str
    kind: str
    value: Decimal | None
    unit: str | None
    start: int
    end: int
    key: str = ""


def fold(text: str) -> str:
    """The text as it is compared: NFKC, one kind of hyphen, quote and space, no invisible characters, no case."""
    raise NotImplementedError


def find_anchors(text: str, *, names: bool = False) -> tuple[AnchorToken, ...]:
    """Every anchor in the text, in order, without overlaps; names only when asked for. Time is linear in the text."""
    raise NotImplementedError


def holds(text: str, anchor: AnchorToken) -> bool:
    """Whether the text really contains the anchor: numbers as values with unit and scale, all else folded."""
    raise NotImplementedError
