"""What a person sees: results on standard output, everything else on standard error."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import typer
from rich import markup
from rich.console import Console
from rich.table import Table

from app.cli.exits import FAILED

PIPED_WIDTH = 160
"""Columns of output that no terminal limits."""

out = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else PIPED_WIDTH)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def escape(text: str) -> str:
    """`text` as it may be printed: no markup, and no control character that would drive the terminal."""
    return markup.escape(
        "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
    )


def fail(message: str, code: int = FAILED) -> NoReturn:
    """Say in one line on standard error what went wrong, and exit."""
    line = " ".join(message.split())
    err.print(f"arbiter-l8: {escape(line)}", style="red" if err.is_terminal else None)
    raise typer.Exit(code)


def write_text(text: str) -> None:
    """Print `text` exactly as it is."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def share(value: float | None) -> str:
    """A share in 0..1 for people; an undefined one is a dash."""
    return "-" if value is None else f"{value:.3f}"


def interval(value: dict[str, Any] | None) -> str:
    """An interval for people; one that could not be made is a dash."""
    return "-" if value is None else f"[{value['low']:.3f}, {value['high']:.3f}]"


def report_tables(report: dict[str, Any], *, heading: str | None = None) -> None:
    """The report of a run: the headline first, then per-label figures, the confusion matrix and the failures."""
    if heading:
        out.rule(escape(heading), align="left", style="dim")
    _scores(report)
    if report.get("failures_by_kind"):
        causes = ", ".join(f"{kind} {count}" for kind, count in report["failures_by_kind"].items())
        bounds = report["accuracy_bounds"]
        out.print(
            f"failed: {report['n_failed']} of {report['total']} ({escape(causes)}); "
            f"accuracy over all would be {share(bounds['worst'])} to {share(bounds['best'])}"
        )
    if binary := report.get("binary"):
        out.print("\nlabels collapsed to two:")
        _scores(binary)
    if repeats := report.get("repeats"):
        out.print()
        _repeats(repeats)


def _scores(scores: dict[str, Any]) -> None:
    accuracy = scores["accuracy"]
    if accuracy is None:
        out.print(f"accuracy: undefined (0 of {scores['total']} scored)")
        return
    out.print(f"accuracy: {scores['correct']}/{scores['n_scored']} ({accuracy:.1%})")
    clustered = scores["intervals"].get("accuracy_clustered")
    ends = clustered["interval"] if clustered else scores["intervals"]["accuracy"]
    worth = f", worth {clustered['effective_n']:.0f} independent ones" if clustered else ""
    out.print(f"95% interval {interval(ends)} (Wilson), n = {scores['n_scored']}{worth}")
    out.print(_per_label(scores))
    out.print(_confusion(scores["confusion"]))
    _undefined(scores["undefined"])


def _undefined(items: list[dict[str, Any]]) -> None:
    """Every figure that is null, a line for each reason: in a small run a dozen share one."""
    by_reason: dict[str, list[str]] = {}
    for item in items:
        of = "" if item["label"] is None else f" of {item['label']}"
        by_reason.setdefault(item["reason"], []).append(f"{item['metric']}{of}")
    for reason, figures in by_reason.items():
        out.print(f"undefined: {escape(', '.join(figures))}: {escape(reason)}")


def _repeats(figures: dict[str, Any]) -> None:
    out.print(
        f"of {figures['n_examples']} examples {figures['n_complete']} had all {figures['k']} answers scored; the "
        "shares are of these, at worst of all"
    )
    for name, row in (("", figures), ("collapsed to two: ", figures["binary"])):
        if row is not None:
            every, once = (
                f"{share(row[key])} {escape(interval(row[f'{key}_interval']))} (at worst {share(row[f'{key}_worst'])})"
                for key in ("pass_all", "pass_any")
            )
            out.print(
                f"{name}right every time of {figures['k']}: {every}, at least once {once}, "
                f"agreement {share(row['agreement'])}, variance within {share(row['variance_within'])}, "
                f"between {share(row['variance_between'])}"
            )


def _per_label(scores: dict[str, Any]) -> Table:
    table = Table(title_justify="left", box=None, pad_edge=False)
    table.add_column("label")
    for column in ("precision", "recall", "f1", "support"):
        table.add_column(column, justify="right")
    for row in scores["per_label"]:
        cells = [share(row[name]) for name in ("precision", "recall", "f1")]
        table.add_row(escape(row["label"]), *cells, str(row["support"]))
    for name in ("macro", "weighted"):
        cells = [share(scores[name][column]) for column in ("precision", "recall", "f1")]
        table.add_row(f"({name})", *cells, str(scores["n_scored"]), style="dim")
    return table


def _confusion(confusion: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("expected \\ predicted")
    for label in confusion["labels"]:
        table.add_column(escape(label), justify="right")
    for label, row in zip(confusion["labels"], confusion["matrix"], strict=True):
        table.add_row(escape(label), *(str(count) if count else "." for count in row))
    return table
