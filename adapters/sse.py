"""Server-sent events, read from a whole body as the WHATWG standard describes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_LINE_END = re.compile(r"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `name` is `message` unless the server named it; `data` is never empty."""

    name: str
    data: str
    id: str | None = None


def parse_events(body: bytes) -> Iterator[Event]:
    """The events of an event stream, in order; comments, pings and events without data are passed over.

    Undecodable bytes become U+FFFD, as in the standard. An event that the end of the stream cuts off before its blank
    line is still given: whether it is whole is seen when its data is decoded.
    """
    name, event_id = "", None
    data: list[str] = []
    text = body.decode("utf-8", errors="replace").removeprefix("\ufeff")
    for line in (*_LINE_END.split(text), ""):
        if not line:
            if any(data):
                yield Event(name or "message", "\n".join(data), event_id)
            name, data = "", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data.append(value)
        elif field == "event":
            name = value
        elif field == "id" and "\0" not in value:
            event_id = value
