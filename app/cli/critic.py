"""`arbiter-l8 critic`: what a critic did in a run, from a service, the local store, or an audit trail alone."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from rich.table import Table

from app.cli.client import get, segment, service
from app.cli.console import escape, out, share, write_text
from app.cli.exits import answer
from app.settings import Settings
from layers.errors import ConfigurationError
from layers.model import JsonObject

_STYLES = {"ADOPT": "green", "DECLINE": "red", "INCONCLUSIVE": "yellow"}


async def report(
    settings: Settings,
    run_id: str,
    *,
    control: str | None,
    baseline: str | None,
    server: str | None,
    key: str | None,
    as_json: bool,
) -> int:
    """Print the report of a run; the exit code of its outcome."""
    async with service(settings, server, key, execute=False) as client:
        made = await get(client, f"/runs/{segment(run_id)}/critic", control_run_id=control, baseline_run_id=baseline)
    return show(made, as_json=as_json)


async def replayed(_: Settings, trail: Path, *, control: Path | None, baseline: Path | None, as_json: bool) -> int:
    """Print the report that audit trails tell; the exit code of its outcome."""
    from app.critic.replay import replay
    from app.critic.rows import AuditError

    with ExitStack() as files:

        def lines(path: Path | None) -> BinaryIO | None:
            return None if path is None else files.enter_context(path.open("rb"))

        try:
            made = replay(files.enter_context(trail.open("rb")), control=lines(control), baseline=lines(baseline))
        except AuditError as exc:
            raise ConfigurationError(f"this audit trail can't be replayed: {exc}") from None
        except OSError as exc:
            raise ConfigurationError(f"{exc.filename} cannot be read: {exc.strerror}") from None
    return show(json.loads(made.model_dump_json()), as_json=as_json)


def show(report: JsonObject, *, as_json: bool) -> int:
    """Print a report, the outcome first; its exit code."""
    outcome = report["outcome"]
    if as_json:
        write_text(json.dumps(report, indent=2))
        return answer(outcome)
    out.print(f"outcome: {outcome}", style=_STYLES.get(outcome))
    for reason in report["reasons"]:
        out.print(f"  {escape(reason)}")
    _numbers(report)
    out.print(_effects("axis", report["axes"]))
    if report["control"]:
        out.print("\non the control:")
        out.print(_effects("axis", report["control"]["axes"]))
    if report["clusters"]:
        out.print(_clusters(report["clusters"]))
    return answer(outcome)


def _numbers(report: JsonObject) -> None:
    states = ", ".join(f"{state} {count}" for state, count in report["states"].items() if count)
    per_row = report["calls_per_row"]
    out.print(
        f"rows: {report['n_rows']} of {report['n_total']} ({report['n_failed']} failed); {states or 'none ended'}"
    )
    for name, rate in (("raised", report["challenges_raised"]), ("admitted", report["challenges_admitted"])):
        flag = "  RED FLAG" if rate["red_flag"] else ""
        out.print(
            f"challenges {name}: {rate['challenges']} of {rate['rows']} rows, "
            f"{share(rate['rate'])} (declared {rate['expected']:.3f}){flag}"
        )
    out.print(f"calls per row: {'-' if per_row is None else f'{per_row:.2f}'}")


def _effects(name: str, effects: list[JsonObject]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(name)
    for column in ("n", "corrected", "broke", "before", "after", "p"):
        table.add_column(column, justify="right")
    table.add_column("effect")
    for row in effects:
        table.add_row(
            escape(row["axis"]),
            str(row["n"]),
            str(row["corrected"]["count"]),
            str(row["broke"]["count"]),
            share(row["accuracy_before"]),
            share(row["accuracy_after"]),
            f"{row['p_exact']:.3f}",
            row["effect"],
        )
    return table


def _clusters(clusters: list[JsonObject]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("cluster")
    for column in ("n", "wrong before", "corrected", "broke", "still wrong"):
        table.add_column(column, justify="right")
    for row in clusters:
        counts = (row["n"], row["wrong_before"], row["corrected"]["count"], row["broke"]["count"], row["still_wrong"])
        table.add_row(escape(f"{row['name']} ({row['axis']})"), *map(str, counts))
    return table
