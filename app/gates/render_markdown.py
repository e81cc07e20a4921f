"""A gate verdict as GitHub's Markdown, for job summaries and pull requests."""

from __future__ import annotations

import re
from typing import Any

from layers.model import JsonObject

_MARKS = {"PASS": "✅", "WARN": "⚠️", "INCONCLUSIVE": "❔", "MISSING": "❔", "BLOCK": "⛔"}
_INVISIBLE = re.compile(
    "[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff\ud800-\udfff]"
)
"""Controls, line breaks, and marks that turn the direction of text or hide it."""

MAX_CELL = 200
MAX_IDS = 10


def render_markdown(verdict: JsonObject) -> str:
    """Headline, one row a rule, and what the comparison says. `verdict` is a `GateVerdict` as JSON.

    Text that others wrote stands in code spans, where GitHub makes neither mentions nor links nor markup of it.
    """
    status = verdict["verdict"]
    lines = [f"## {_MARKS.get(status, '')} Gate: {plain(status)}", ""]
    baseline = verdict.get("baseline_run_id")
    against = f" against {code(baseline)}" if baseline else ""
    lines += [f"Run {code(verdict['run_id'])}{against}, policy {code(verdict['policy_sha256'])}", ""]
    lines += ["| | rule | observed | interval | threshold | n | reason |", "|---|---|---:|---|---:|---:|---|"]
    lines += [_row(rule) for rule in verdict["rules"]]
    if comparison := verdict.get("comparison"):
        lines += ["", *_comparison(comparison)]
    return "\n".join(lines) + "\n"


def code(value: Any) -> str:
    """A code span that holds any text on one line of a table. A bar would end the cell and is shown broken."""
    text = _INVISIBLE.sub("\ufffd", str(value))
    text = text if len(text) <= MAX_CELL else text[:MAX_CELL] + "…"
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    space = " " if text[:1] in {"`", " ", ""} or text[-1:] in {"`", " "} else ""
    # Escaping a bar is no way out: after a backslash it ends the cell all the same.
    return fence + space + text.replace("|", "¦") + space + fence


def plain(value: Any) -> str:
    """A word of ours; anything else in it is dropped."""
    return re.sub(r"[^A-Za-z0-9 .,:;%+=()-]", "", str(value))


def _row(rule: JsonObject) -> str:
    needed = rule.get("n_needed")
    n = f"{rule['n']:,}" + (f" (needs {needed:,})" if needed is not None else "")
    interval = rule.get("interval")
    shown = f"{number(interval['low'])} … {number(interval['high'])}" if interval else ""
    status = rule["status"]
    cells = [
        f"{_MARKS.get(status, '')} {plain(status)}",
        code(rule["name"]),
        number(rule["observed"]),
        shown,
        number(rule["threshold"]),
        n,
        code(rule["reason"]),
    ]
    return "| " + " | ".join(cells) + " |"


def _comparison(comparison: JsonObject) -> list[str]:
    strict, pairs = comparison["strict"], comparison["pairs"]
    warnings = [line for text in comparison.get("warnings", ()) for line in (f"> **Warning:** {code(text)}", "")]
    if strict["difference"] is None:
        return [*warnings, "No pair of examples could be compared."]
    low, high = strict["interval"]["low"], strict["interval"]["high"]
    real = "real" if strict["real"] else "not shown to be real"
    lines = [
        *warnings,
        f"**Accuracy {strict['difference']:+.4f}** ({low:+.4f} … {high:+.4f}) over {strict['n']:,} pairs: "
        f"{strict['corrected']:,} corrected, {strict['broke']:,} broke, {chance(strict['p_exact'])}, {real}.",
    ]
    for name in ("broke", "corrected", "missing"):
        if pairs[name]["count"]:
            shown = " ".join(code(text) for text in pairs[name]["ids"][:MAX_IDS])
            lines += ["", f"{name}: {shown}" + (" …" if pairs[name]["count"] > MAX_IDS else "")]
    return lines


def number(value: float | None) -> str:
    """A figure for people."""
    if value is None:
        return ""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:.4f}"


def probability(value: float | None) -> str:
    """A p-value for a column of its own; one that four places can't show is not called 0."""
    if value is None:
        return ""
    return f"{value:.4f}" if value >= 0.0001 else "<0.0001"


def chance(p_value: float) -> str:
    """A p-value for people."""
    return f"p = {p_value:.4f}" if p_value >= 0.0001 else "p < 0.0001"
