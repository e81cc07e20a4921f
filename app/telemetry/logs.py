"""Structured logs: JSON for machines, one readable line for a terminal; the trace id in each that belongs to one."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal

from app.telemetry.place import trace_id_now

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}

_OWN_FIELDS = frozenset({"time", "level", "logger", "message", "trace_id", "exception"})


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


class JsonFormatter(logging.Formatter):
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


class PrettyFormatter(logging.Formatter):
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
