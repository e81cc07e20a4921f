"""Structured logs: JSON for machines, one readable line for a terminal; the trace id in each that belongs to one."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any, Literal

from sqlalchemy.exc import StatementError

from app.telemetry.place import trace_id_now

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}

_DATA = "22"
"""The class of PostgreSQL's errors about values: https://www.postgresql.org/docs/current/errcodes-appendix.html."""

_MESSAGE = "_str"
"""Where `TracebackException` keeps an exception's text; there is no public way to it."""

_OWN_FIELDS = frozenset({"time", "level", "logger", "message", "trace_id", "exception"})


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


class _Formatter(logging.Formatter):
    def formatException(self, ei: Any) -> str:
        """The traceback. Of what a database said it keeps what names no values: those are its callers' data."""
        shown = traceback.TracebackException(*ei)
        waiting: list[tuple[traceback.TracebackException | None, BaseException | None]] = [(shown, ei[1])]
        while waiting:
            part, exc = waiting.pop()
            if part is None or exc is None:
                continue
            if isinstance(exc, StatementError) or type(exc).__module__.startswith("psycopg"):
                setattr(part, _MESSAGE, _without_values(exc))
            waiting += [(part.__cause__, exc.__cause__), (part.__context__, exc.__context__)]
            waiting += zip(part.exceptions or (), getattr(exc, "exceptions", ()), strict=False)
        return "".join(shown.format()).removesuffix("\n")


def _without_values(exc: BaseException) -> str:
    """PostgreSQL quotes rows and values beneath the first line, and of values that it can't read in that line too."""
    if isinstance(exc, StatementError):
        said = "" if exc.orig is None else f"{type(exc.orig).__name__}: {_without_values(exc.orig)} "
        return f"{said}[SQL: {exc.statement}]"
    state = getattr(exc, "sqlstate", None)
    if state is not None and state.startswith(_DATA):
        return f"SQLSTATE {state}"
    return str(exc).split("\n", 1)[0]


class JsonFormatter(_Formatter):
    """One JSON object a line; always valid UTF-8."""

    def format(self, record: logging.LogRecord) -> str:
        """Render `record`. An extra field named like one of ours gets a trailing underscore."""
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "trace_id": trace_id_now(),
        }
        for name, value in _extras(record).items():
            entry[f"{name}_" if name in _OWN_FIELDS else name] = value
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str, ensure_ascii=True, skipkeys=True)


class PrettyFormatter(_Formatter):
    """One line for a person."""

    def format(self, record: logging.LogRecord) -> str:
        """Render `record`."""
        stamp = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        extras = " ".join(f"{name}={value}" for name, value in _extras(record).items())
        line = f"{stamp} {record.levelname.lower():<7} {record.getMessage()}" + (f"  [{extras}]" if extras else "")
        if (trace_id := trace_id_now()) is not None:
            line += f"  trace={trace_id}"
        return line + ("\n" + self.formatException(record.exc_info) if record.exc_info else "")


def configure_logging(level: str, fmt: Literal["auto", "json", "pretty"]) -> None:
    """Send all logs to standard error, in the form that suits where it goes."""
    handler = logging.StreamHandler(sys.stderr)
    pretty = fmt == "pretty" or (fmt == "auto" and sys.stderr.isatty())
    handler.setFormatter(PrettyFormatter() if pretty else JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in ("httpx", "httpcore", "alembic", "asyncio", "dbos"):
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
