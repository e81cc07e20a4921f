"""`arbiter-l8 gate` and `arbiter-l8 compare`: judge a run by a policy, look at it beside another one."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NoReturn

import anyio
import httpx
import typer
from rich.table import Table

from app.cli.client import RequestFailed, get, no_answer, post, segment, service
from app.cli.console import err, escape, fail, out, write_text
from app.cli.exits import COULD_NOT_RUN, INTERRUPTED, answer
from app.cli.progress import ENDED, watch
from app.cli.running import read_settings
from app.errors import ServiceError
from app.gates.render_junit import render_junit
from app.gates.render_markdown import chance, number, probability, render_markdown
from app.settings import Settings
from layers.errors import ConfigurationError
from layers.model import JsonObject

LOOK_EVERY_S = 1.0
_STYLES = {"PASS": "green", "WARN": "yellow", "BLOCK": "red"}


def judged(work: Callable[[Settings], Awaitable[int]], server: str | None) -> NoReturn:
    """Run `work` and exit with what it answers. Whatever else happens is `COULD_NOT_RUN`, never taken for a verdict."""
    try:
        settings = read_settings(server)
        code = anyio.run(work, settings)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except Exception as exc:  # a crash must not look like a block
        first = exc
        while isinstance(first, ExceptionGroup):
            first = first.exceptions[0]
        if isinstance(first, typer.Exit):
            raise first from None
        fail(_sentence(first), COULD_NOT_RUN)
    raise typer.Exit(code)


def _sentence(exc: Exception) -> str:
    if isinstance(exc, (RequestFailed, ConfigurationError, ServiceError)):
        return str(exc)
    if isinstance(exc, httpx.HTTPError):
        return no_answer(exc)
    return f"{type(exc).__name__}: {exc}"


def read_policy(path: Path) -> str:
    """The policy's text; ends the program when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as exc:
        fail(f"{path} cannot be read: {exc.strerror}", COULD_NOT_RUN)
    except UnicodeDecodeError as exc:
        fail(f"{path} is not valid UTF-8 at byte {exc.start}", COULD_NOT_RUN)


async def gate(  # noqa: PLR0913 - one parameter per option
    settings: Settings,
    run_id: str,
    policy: Path,
    baseline: str | None,
    *,
    server: str | None,
    key: str | None,
    wait: bool,
    timeout: float | None = None,
    as_json: bool,
    files: dict[str, Path],
) -> int:
    """Judge a run, print and write the verdict. The exit code: 0 pass or warn, 1 block, 2 inconclusive or missing."""
    body = {"policy": read_policy(policy)} | ({"baseline": baseline} if baseline else {})
    async with service(settings, server, key, execute=False) as client:
        if wait:
            await _wait(client, run_id, live=server is not None, timeout=timeout)
        verdict = await post(client, f"/runs/{segment(run_id)}/gate", json=body)
    code = answer(verdict["verdict"])
    renderers: dict[str, Callable[[JsonObject], str]] = {"junit": render_junit, "markdown": render_markdown}
    for form, path in files.items():
        _write(path, renderers[form](verdict))
    write_text(json.dumps(verdict, indent=2)) if as_json else show_verdict(verdict)
    return code


async def _wait(client: httpx.AsyncClient, run_id: str, *, live: bool, timeout: float | None) -> None:
    """Until the run has ended, or for `timeout` seconds."""
    run = await get(client, f"/runs/{segment(run_id)}")
    with anyio.move_on_after(timeout) as waiting:
        await watch(client, run, label="run", live=live)
    if waiting.cancelled_caught:
        err.print(f"the run has not ended within {timeout:g} s: it is judged as it stands")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8", errors="replace", newline="\n")
    except OSError as exc:
        fail(f"{path} cannot be written: {exc.strerror}", COULD_NOT_RUN)


def show_verdict(verdict: JsonObject) -> None:
    """The verdict first, then a line for each rule."""
    status = verdict["verdict"]
    out.print(f"verdict: {status}", style=_STYLES.get(status))
    table = Table(box=None, pad_edge=False)
    for column in ("", "rule", "observed", "interval", "threshold", "n", "reason"):
        table.add_column(column, justify="right" if column in {"observed", "threshold", "n"} else "left")
    for rule in verdict["rules"]:
        interval = rule["interval"]
        needed = f" (needs {rule['n_needed']})" if rule.get("n_needed") is not None else ""
        table.add_row(
            rule["status"],
            printable(rule["name"]),
            number(rule["observed"]),
            f"[{number(interval['low'])}, {number(interval['high'])}]".replace("[", "\\[") if interval else "",
            number(rule["threshold"]),
            f"{rule['n']}{needed}",
            printable(rule["reason"]),
        )
    out.print(table)
    if comparison := verdict.get("comparison"):
        show_warnings(comparison)
        out.print(headline(comparison))


def show_warnings(comparison: JsonObject) -> None:
    """What is held against one of the runs, on standard error."""
    for warning in comparison.get("warnings", ()):
        err.print(f"warning: {printable(warning)}", style="yellow")


def printable(text: Any) -> str:
    """Text of others for a terminal: no control characters, no markup."""
    return escape("".join(char if char.isprintable() else "\ufffd" for char in str(text)))


def headline(comparison: JsonObject) -> str:
    """The comparison in one line."""
    strict, pairs = comparison["strict"], comparison["pairs"]
    pending = f", {pairs['n_pending']} pending" if pairs["n_pending"] else ""
    if strict["difference"] is None:
        return f"nothing to compare yet: {pairs['n_paired']} pairs{pending}"
    low, high = strict["interval"]["low"], strict["interval"]["high"]
    return (
        f"accuracy {strict['difference']:+.4f} ({low:+.4f} to {high:+.4f}) over {strict['n']} pairs{pending}: "
        f"{strict['corrected']} corrected, {strict['broke']} broke, {chance(strict['p_exact'])}, "
        f"{strict['verdict'].replace('_', ' ')}"
    )


async def compare(  # noqa: PLR0913 - one parameter per option
    settings: Settings,
    run_id: str,
    baseline: str,
    *,
    slices: list[str],
    alpha: float,
    server: str | None,
    key: str | None,
    watching: bool,
    as_json: bool,
) -> int:
    """Compare two runs once, or look again and again until both have ended or the e-process has decided."""
    params = {"baseline": baseline, "slice": slices, "alpha": alpha}
    async with service(settings, server, key, execute=False) as client:
        made = await get(client, f"/runs/{segment(run_id)}/comparison", **params)
        if watching:
            made = await _watch(client, run_id, params, made)
    write_text(json.dumps(made, indent=2)) if as_json else show_comparison(made)
    return 0


async def _watch(client: httpx.AsyncClient, run_id: str, params: dict[str, Any], made: JsonObject) -> JsonObject:
    """Every look counts: the largest e-value of all of them decides, and a decision stays."""
    from app.runs.statistics.sequential import EProcess

    process = EProcess()
    while True:
        seen = made["sequential"]
        process = EProcess(peak=max(process.peak, seen["peak_log"])).add(
            corrected=seen["corrected"], broke=seen["broke"]
        )
        decided = process.decided(made["alpha"])
        err.print(f"{headline(made)}; anytime {chance(process.p_value)}{', decided' if decided else ''}")
        if decided or all(made[side]["status"] in ENDED for side in ("candidate", "baseline")):
            return made
        await anyio.sleep(LOOK_EVERY_S)
        made = await get(client, f"/runs/{segment(run_id)}/comparison", **params)


def show_comparison(made: JsonObject) -> None:
    """Warnings and headline, what could not be paired, then labels, slices and axes."""
    show_warnings(made)
    out.print(headline(made))
    sequential = made["sequential"]
    out.print(f"anytime-valid {chance(sequential['p_value'])}{', decided' if sequential['decided'] else ''}")
    strict, pairs = made["strict"], made["pairs"]
    if strict["minimum_detectable"] is not None:
        out.print(f"smallest difference that this size would show: {strict['minimum_detectable']:.4f}")
    for name in ("missing", "added", "relabelled", "duplicates", "broke", "corrected"):
        if pairs[name]["count"]:
            ids = ", ".join(printable(text) for text in pairs[name]["ids"])
            out.print(f"{name}: {pairs[name]['count']} ({ids})")
    parts = [(f"label {row['label']}", row) for row in made["per_label"]]
    parts += [(f"{cut['path']} = {row['value']}", row) for cut in made["slices"] for row in cut["values"]]
    parts += [(f"axis {row['axis']}", row) for row in made["axes"]]
    if made["binary"]:
        parts.append(("binary labels", made["binary"]))
    out.print(_parts(parts))


def _parts(parts: list[tuple[str, JsonObject]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("part", "n", "difference", "corrected", "broke", "p", "p adjusted", ""):
        table.add_column(column, justify="left" if column in {"part", ""} else "right")
    for name, row in parts:
        shown = [number(row[key]) for key in ("difference", "corrected", "broke")]
        shown += [probability(row[key]) for key in ("p_exact", "p_adjusted")]
        table.add_row(printable(name), str(row["n"]), *shown, row["verdict"].replace("_", " "))
    return table
