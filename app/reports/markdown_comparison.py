"""The comparison with a baseline as GitHub's Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from app.gates.render_markdown import code
from app.reports import text
from app.reports.markdown_tables import span, table_head, table_row
from app.runs.contrasts import Comparison, Contrast

MAX_IDS = 10

_VERDICTS = {
    "better": "better than the baseline",
    "worse": "worse than the baseline",
    "no_difference_shown": "no difference is shown",
    "nothing_to_compare": "nothing to compare",
}


def comparison(made: Comparison) -> Iterator[str]:
    """The section, line by line."""
    strict = made.strict
    yield "## Comparison with the baseline"
    yield ""
    yield f"Baseline {code(made.baseline_run_id)}, {text.count(made.pairs.n_paired)} examples paired by id."
    for warning in made.warnings:
        yield from ("", f"> **Warning:** {code(warning)}", "")
    if strict.interval is None:
        yield "No pair of examples could be compared."
        return
    yield (
        f"**{text.points(strict.difference)} points** ({span(strict.interval)}): {_VERDICTS[strict.verdict]}; "
        f"{text.count(strict.corrected)} corrected, {text.count(strict.broke)} broke, exact p "
        f"{text.p_value(strict.p_exact)}, n = {text.count(strict.n)} pairs."
    )
    if (two := made.binary) is not None and two.interval is not None:
        yield ""
        yield (
            f"Labels collapsed to two: {text.points(two.difference)} points ({span(two.interval)}), "
            f"{text.count(two.corrected)} corrected, {text.count(two.broke)} broke, "
            f"exact p {text.p_value(two.p_exact)}."
        )
    yield ""
    yield from _contrasts("label", [(row.label, row) for row in made.per_label])
    if made.axes:
        yield ""
        yield from _contrasts("axis", [(row.axis, row) for row in made.axes])
    pairs = made.pairs
    for name, listed in (("broke", pairs.broke), ("corrected", pairs.corrected), ("repeated ids", pairs.duplicates)):
        if listed.count:
            yield ""
            more = " …" if listed.count > MAX_IDS else ""
            yield f"{name}: {' '.join(map(code, listed.ids[:MAX_IDS]))}{more}"


def _contrasts(what: str, rows: Sequence[tuple[str, Contrast]]) -> Iterator[str]:
    yield from table_head(what, "difference", "corrected", "broke", "p", "pairs")
    for name, row in rows:
        yield table_row(
            code(name),
            f"{text.points(row.difference)} ({span(row.interval)})" if row.interval else "–",
            text.count(row.corrected),
            text.count(row.broke),
            text.p_value(row.p_adjusted),
            text.count(row.n),
        )
