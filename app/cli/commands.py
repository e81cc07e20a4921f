"""The commands and their options; each does its work in a module of its own."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from app.cli import baseline_commands, critic_commands, gate_commands, runs_commands, verdict_commands
from app.cli.console import fail, write_text
from app.cli.exits import FAILED, USAGE
from app.cli.options import AsJson, Key, Server
from app.cli.running import run, run_async, settings_or_exit

app = typer.Typer(
    help="Judge what other AI services decided: score labelled fixtures, serve /evaluate and /runs, prove records. "
    "Without a command, `arbiter-l8 --system NAME --fixture PATH` scores.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
db_app = typer.Typer(help="Look after the database.", no_args_is_help=True, rich_markup_mode=None)
runs_commands.register(app)
app.add_typer(db_app, name="db")
gate_commands.register(app)
baseline_commands.register(app)
critic_commands.register(app)
verdict_commands.register(app)


DRIVERS = "gemini|openrouter|ollama|vertexai"


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
    repeats: Annotated[int | None, Option("--repeats", min=1, max=100, help="Times to ask each example.")] = None,
    priority: Annotated[
        int | None, Option("--priority", min=-100, max=100, help="Runs with a higher one go first.")
    ] = None,
    name: Annotated[str | None, Option("--name", help="What to call the run.")] = None,
    pipeline: Annotated[
        str | None, Option("--pipeline", metavar="offline|critic", help="Put a classifier under its critic.")
    ] = None,
    wait: Annotated[
        bool, Option("--wait/--no-wait", help="With --server: wait for the report, or leave the run to the service.")
    ] = True,
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
    if server is None and not wait:
        fail("--no-wait leaves the run to a service: name it with --server", USAGE)
    settings = settings_or_exit(server)
    if server is None:
        settings = work.aim(settings, system, url)
    options: dict[str, Any] = {
        "driver": driver,
        "binary": binary,
        "limit": limit,
        "concurrency": concurrency,
        "repeats": repeats,
        "priority": priority,
        "pipeline": pipeline,
    }
    options = {option: value for option, value in options.items() if value is not None}
    request = {"system": system, "options": options} | ({"name": name} if name else {})

    async def go() -> int:
        return await work.score(settings, fixture, request, server=server, key=key, as_json=as_json, wait=wait)

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

    def until_told() -> None:
        with suppress(KeyboardInterrupt):  # that is how it is told to stop
            work(settings.model_copy(update={"server": server}))

    run(until_told)


@app.command()
def worker() -> None:
    """Do what services on the same store accept: runs, evaluations and adjudications. Start as many as you like."""
    from app.cli.worker import work

    settings = settings_or_exit()
    run(lambda: work(settings))


@app.command()
def demo(
    stand_ins: Annotated[
        bool, Option("--stand-ins", help="Only run the stand-ins, until Ctrl-C: something to score against.")
    ] = False,
    sentinel_port: Annotated[int, Option("--sentinel-port", min=0, max=65535, help="With --stand-ins.")] = 8080,
    synapse_port: Annotated[int, Option("--synapse-port", min=0, max=65535, help="With --stand-ins.")] = 8000,
) -> None:
    """See the whole thing work, with stand-ins for the systems it judges: no server, no key, no model needed."""
    if stand_ins:
        from app.demo.stand_ins import stand_in

        run(lambda: stand_in(sentinel_port, synapse_port))
        return
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
        return
    try:
        export(output)
    except OSError as exc:
        fail(f"{output} cannot be written: {exc.strerror}", FAILED)


@app.command()
def version() -> None:
    """Print the version."""
    from app.version import service_version

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

    settings = settings_or_exit(server, some=True)  # where policies and verdicts go

    async def go() -> int:
        done: int = await work(settings, path, namespace, server=server, key=key)
        return done

    raise typer.Exit(run_async(go))


@db_app.command("upgrade")
def db_upgrade() -> None:
    """Bring the database to the schema of this version."""
    from app.store.migrate import upgrade

    settings = settings_or_exit()
    run(lambda: upgrade(settings.store.url))
    write_text("the database is current")


cli = typer.main.get_command(app)
