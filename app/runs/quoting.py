"""Cells that no spreadsheet takes for a formula, and the way back to their text."""

from __future__ import annotations

import re

APOSTROPHE = "'"
MARK_NAME = "csv_quoting"
MARK = f"{MARK_NAME}=apostrophe"
"""The column, without content, that says of a file that its cells are `quoted`, so that a reader may undo it."""

_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
# What makes a spreadsheet take a cell for a formula; tab and line ends too, since programs strip them first.
_RISKY = tuple("=+-@\t\r\n＝＋－＠")


def safe_cell(text: str) -> str:
    """`text` such that no spreadsheet runs it: what begins like a formula gets an apostrophe in front.

    A plain number, negative ones included, stays as it is. See OWASP, "CSV Injection".
    """
    return APOSTROPHE + text if text.startswith(_RISKY) and not _NUMBER.fullmatch(text) else text


def quoted(text: str) -> str:
    """`safe_cell` that can be undone: what begins with an apostrophe gets another, the empty text is one alone."""
    return APOSTROPHE + text if not text or text.startswith(APOSTROPHE) else safe_cell(text)


def unquoted(cell: str) -> str:
    """The text of a `quoted` cell; any other cell without an apostrophe in front is its own text."""
    return cell.removeprefix(APOSTROPHE)
