"""How a command does its work: with settings, on an event loop, and with one exit code for each way to go wrong."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from app.cli.console import fail
from app.cli.exits import FAILED, INTERRUPTED, USAGE
from app.errors import ServiceError
from layers.errors import ConfigurationError

if TYPE_CHECKING:
    import httpx

    from app.settings import Settings

T = TypeVar("T")


def own_variables() -> frozenset[str]:
    """The environment variables that the commands' own options are read from, as the commands declare them."""
    from app.cli.commands import cli

    def variables(command: Any) -> Iterator[str]:
        for option in command.params:
            declared = option.envvar or ()
            yield from (declared,) if isinstance(declared, str) else declared
        for inner in getattr(command, "commands", {}).values():
            yield from variables(inner)

    return frozenset(variables(cli))


def read_settings(server: str | None = None, *, some: bool = False) -> Settings:
    """The settings of this process. With a `server` the defaults: its settings count, and none of here are looked at.

    `some`: the command needs one or another of them even so; names that are none are then nobody's business. Raises
    `ConfigurationError`.
    """
    from app.settings import Settings, load_settings

    if server is None:
        return load_settings(others=own_variables())
    return load_settings(others=None) if some else Settings()


def settings_or_exit(server: str | None = None, *, some: bool = False) -> Settings:
    """`read_settings`; a wrong one ends the program with a usage error that names it."""
    try:
        return read_settings(server, some=some)
    except ConfigurationError as exc:
        fail(str(exc), USAGE)


def run_async(work: Callable[[], Awaitable[T]]) -> T:
    """Run `work()` on an event loop; what the operator can mend ends the program with one line."""
    import anyio

    return run(lambda: anyio.run(work))


def run(work: Callable[[], T]) -> T:
    """Do `work`; what the operator can mend ends the program with one line."""
    try:
        return work()
    except ConfigurationError as exc:
        fail(str(exc), USAGE)
    except ServiceError as exc:
        fail(str(exc), FAILED)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except Exception as exc:
        import httpx

        from app.cli.client import no_answer

        if isinstance(exc, httpx.HTTPError):
            fail(no_answer(exc), FAILED)
        raise


def check_store(settings: Settings) -> None:
    """End with a usage error where there is no database to read: making an empty one would only hide the mistake."""
    from app.store.engines import locate

    location = locate(settings.store.url)
    if location.dialect == "sqlite" and not Path(str(location.url.database)).is_file():
        fail(f"there is no database at {location.url.database}; ARBITER_DATABASE_URL or --server names another", USAGE)


def ask(fetch: Callable[[httpx.AsyncClient], Awaitable[Any]], server: str | None, key: str | None) -> Any:
    """What `fetch` makes of a service, or of the local store; a refusal ends the program."""
    from app.cli.client import WRONGLY_ASKED, RequestFailed, service

    settings = settings_or_exit(server)
    if server is None:
        run(lambda: check_store(settings))

    async def go() -> Any:
        async with service(settings, server, key, execute=False) as client:
            try:
                return await fetch(client)
            except RequestFailed as exc:
                fail(str(exc), USAGE if exc.status in WRONGLY_ASKED else FAILED)

    return run_async(go)
