"""The commands and their options; each does its work in a module of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import anyio
import httpx
import typer
from typer import Argument, Option

from app.cli import critic_commands, gate_commands, verdict_commands
from app.cli.console import FAILED, USAGE, fail, out, write_text
from app.errors import ServiceError
from app.settings import Settings, load_settings
from app.store.engines import locate
from layers.errors import ConfigurationError

app = typer.Typer(
    help="Judge what other AI services decided: score labelled fixtures, serve /evaluate and /runs, prove records. "
    "Without a command, `arbiter-l8 --system NAME --fixture PATH` scores.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
runs_app = typer.Typer(help="List, look at and steer runs.", no_args_is_help=True, rich_markup_mode=None)
db_app = typer.Typer(help="Look after the database.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(runs_app, name="runs")
app.add_typer(db_app, name="db")
gate_commands.register(app)
critic_commands.register(app)
verdict_commands.register(app)


DRIVERS = "gemini|openrouter|ollama|vertexai"
Server = Annotated[
    str | None, Option("--server", metavar="URL", help="A running service; without it the local store is used.")
]
Key = Annotated[str | None, Option("--key", envvar="ARBITER_KEY", help="API key for --server.", show_envvar=True)]
AsJson = Annotated[bool, Option("--json", help="Print JSON instead of text.")]


def settings_or_exit() -> Settings:
    """The settings of this process; a wrong one ends it with a usage error that names it."""
    try:
        return load_settings()
    except ConfigurationError as exc:
        fail(str(exc), USAGE)


def run_async(work: Any, *args: Any) -> Any:
    """Run `work(*args)` on an event loop; what the operator can mend ends the program with one line."""
    try:
        return anyio.run(work, *args)
    except ConfigurationError as exc:
        fail(str(exc), USAGE)
    except ServiceError as exc:
        fail(str(exc), FAILED)
    except httpx.HTTPError as exc:
        from app.cli.client import no_answer

        fail(no_answer(exc), FAILED)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


@app.command()
def score(  # noqa: PLR0913, PLR0917 - one parameter per option
    system: Annotated[str, Option("--system", help="sentinel-l7, synapse-l4, recorded, or a system of your own.")],
    fixture: Annotated[Path, Option("--fixture", metavar="PATH", help="Labelled examples: .json, .ndjson or .csv.")],
    driver: Annotated[
        str | None,
        Option("--driver", metavar=DRIVERS, help="One of Sentinel's providers; for `judge`, a system."),
    ] = None,
    binary: Annotated[bool, Option("--binary", help="Also score the labels collapsed to two.")] = False,
    url: Annotated[str | None, Option("--url", help="Where the system listens, instead of the setting.")] = None,
    limit: Annotated[int | None, Option("--limit", min=1, help="Only the first N examples.")] = None,
    concurrency: Annotated[int | None, Option("--concurrency", min=1, max=1024, help="Calls at once.")] = None,
    name: Annotated[str | None, Option("--name", help="What to call the run.")] = None,
    pipeline: Annotated[
        str | None, Option("--pipeline", metavar="offline|critic", help="Put a classifier under its critic.")
    ] = None,
    as_json: AsJson = False,
    server: Server = None,
    key: Key = None,
) -> None:
    """Score a labelled fixture against a system and print accuracy, per-label figures and what failed.

    Exit codes: 0 done, 1 the target or the run failed, 2 usage.
    """
    from app.cli import score as work

    if server is not None and url is not None:
        fail("--url names a target for the local process; a service only calls the targets its operator set", USAGE)
    settings = settings_or_exit()
    if server is None:
        settings = work.aim(settings, system, url)
    options: dict[str, Any] = {
        "driver": driver,
        "binary": binary,
        "limit": limit,
        "concurrency": concurrency,
        "pipeline": pipeline,
    }
    options = {option: value for option, value in options.items() if value is not None}
    request = {"system": system, "options": options} | ({"name": name} if name else {})

    async def go() -> int:
        return await work.score(settings, fixture, request, server=server, key=key, as_json=as_json)

    raise typer.Exit(run_async(go))


@app.command()
def serve(
    host: Annotated[str | None, Option("--host", help="Address to bind (ARBITER_HOST).")] = None,
    port: Annotated[int | None, Option("--port", min=0, max=65535, help="Port to bind (ARBITER_PORT).")] = None,
    no_work: Annotated[
        bool, Option("--no-work", help="Leave what is accepted to `worker` processes (ARBITER_RUN_WORK).")
    ] = False,
) -> None:
    """Run the service."""
    from app.cli.serve import serve as work

    settings = settings_or_exit()
    if no_work:
        settings = settings.model_copy(update={"runs": settings.runs.model_copy(update={"work": False})})
    given: dict[str, Any] = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    server = settings.server.model_copy(update=given)
    try:
        work(settings.model_copy(update={"server": server}))
    except ConfigurationError as exc:
        fail(str(exc), USAGE)


@app.command()
def worker() -> None:
    """Do what services on the same store accept: runs, evaluations and adjudications. Start as many as you like."""
    from app.cli.worker import work

    try:
        work(settings_or_exit())
    except ConfigurationError as exc:
        fail(str(exc), USAGE)


@app.command()
def demo() -> None:
    """See the whole thing work, with stand-ins for the systems it judges: no server, no key, no model needed."""
    from app.demo.tour import tour

    raise typer.Exit(run_async(tour))


@app.command()
def openapi(
    output: Annotated[Path | None, Option("--output", "-o", help="Write to a file instead of standard output.")] = None,
) -> None:
    """Print the OpenAPI document of the service."""
    from app.openapi import document_text, export

    if output is None:
        write_text(document_text())
    else:
        export(output)


@app.command()
def version() -> None:
    """Print the version."""
    from app.telemetry.setup import service_version

    write_text(service_version())


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def verify(context: typer.Context) -> None:
    """Check a provenance bundle: `verify BUNDLE [--head OLDER_HEAD]`. Exit codes: 0 true, 1 differs, 3 usage."""
    from app.verify import main as work

    raise typer.Exit(int(work(context.args)))


@app.command()
def ingest(
    path: Annotated[Path, Argument(help="A Markdown file or folder of policies, or an NDJSON file of past verdicts.")],
    namespace: Annotated[str | None, Option("--namespace", help="Where to put it; policies by default.")] = None,
    server: Server = None,
    key: Key = None,
) -> None:
    """Fill the embedded index that grounding and consistency search."""
    from app.cli.ingest import ingest as work

    settings = settings_or_exit()

    async def go() -> int:
        done: int = await work(settings, path, namespace, server=server, key=key)
        return done

    raise typer.Exit(run_async(go))


def check_store(settings: Settings) -> None:
    """End with a usage error where there is no database to read: making an empty one would only hide the mistake."""
    location = locate(settings.store.url)
    if location.dialect == "sqlite" and not Path(str(location.url.database)).is_file():
        fail(f"there is no database at {location.url.database}; ARBITER_DATABASE_URL or --server names another", USAGE)


def _read_command(fetch: Any, server: str | None, key: str | None) -> Any:
    from app.cli.client import RequestFailed, service

    settings = settings_or_exit()
    if server is None:
        check_store(settings)

    async def go() -> Any:
        async with service(settings, server, key, execute=False) as client:
            try:
                return await fetch(client)
            except RequestFailed as exc:
                fail(str(exc), FAILED)

    return run_async(go)


@runs_app.command("list")
def runs_list(
    limit: Annotated[int, Option("--limit", min=1, max=500)] = 20,
    as_json: AsJson = False,
    server: Server = None,
    key: Key = None,
) -> None:
    """Show the latest runs."""
    from app.cli import runs as work
    from app.cli.client import get

    page = _read_command(lambda client: get(client, "/runs", limit=limit), server, key)
    if as_json:
        write_text(json.dumps(page["items"], indent=2))
    else:
        out.print(work.table(page["items"]) if page["items"] else "no runs yet")


@runs_app.command("show")
def runs_show(run_id: str, as_json: AsJson = False, server: Server = None, key: Key = None) -> None:
    """Show one run and its report so far."""
    from app.cli import runs as work

    run, report = _read_command(lambda client: work.with_report(client, run_id), server, key)
    if as_json:
        write_text(json.dumps({"run": run, "report": report}, indent=2, ensure_ascii=False))
    else:
        work.show(run, report)


@runs_app.command("report")
def runs_report(
    run_id: str,
    form: Annotated[
        str | None,
        Option("--format", metavar="html|markdown|json", help="By default as the file's name says, or Markdown."),
    ] = None,
    output: Annotated[Path | None, Option("--output", "-o", help="Write to a file instead of standard output.")] = None,
    baseline: Annotated[
        str | None, Option("--baseline", help="A run, or a baseline's name, to compare with.")
    ] = None,
    slices: Annotated[list[str] | None, Option("--slice", metavar="POINTER", help="Cut along `/input/...`.")] = None,
    server: Server = None,
    key: Key = None,
) -> None:
    """Write a run's report: one self-contained page of HTML, Markdown, or JSON."""
    from app.cli import report as work

    chosen = work.format_of(form, output)
    params = {"baseline": baseline, "slice": slices}
    text = _read_command(lambda client: work.fetch(client, run_id, chosen, params), server, key)
    write_text(text) if output is None else work.save(text, output)


@runs_app.command("cancel")
def runs_cancel(run_id: str, server: Server = None, key: Key = None) -> None:
    """Stop a run; what it recorded stays."""
    from app.cli.client import post, segment

    run = _read_command(lambda client: post(client, f"/runs/{segment(run_id)}/cancel"), server, key)
    write_text(f"{run['run_id']} {run['status']}")


@runs_app.command("retry")
def runs_retry(run_id: str, server: Server = None, key: Key = None) -> None:
    """Ask again about what failed in a run that has ended; successes stay."""
    from app.cli.client import post, segment

    run = _read_command(lambda client: post(client, f"/runs/{segment(run_id)}/retry"), server, key)
    write_text(f"{run['run_id']} {run['status']}")


@db_app.command("upgrade")
def db_upgrade() -> None:
    """Bring the database to the schema of this version."""
    from app.store.migrate import upgrade

    settings = settings_or_exit()
    try:
        upgrade(settings.store.url)
    except ConfigurationError as exc:
        fail(str(exc), FAILED)
    write_text("the database is current")


cli = typer.main.get_command(app)
