"""How long a body may take: each piece, and all of it."""

from __future__ import annotations

import pytest
from starlette.requests import ClientDisconnect, Request

from app.api.body import Pace
from app.errors import TooSlow

pytestmark = pytest.mark.anyio


class Line:
    """A line that takes `seconds` for each piece; it is its own clock."""

    def __init__(self, piece: bytes, seconds: float) -> None:
        self.piece, self.seconds, self.now, self.sent = piece, seconds, 0.0, 0

    def __call__(self) -> float:
        return self.now

    async def receive(self) -> dict[str, object]:
        self.now += self.seconds
        self.sent += len(self.piece)
        return {"type": "http.request", "body": self.piece, "more_body": True}


async def listen(line: Line, own: float) -> None:
    """Read on for ever, with `own` seconds of work after each piece."""
    pace, request = Pace(20.0, 1_000.0, line), Request({"type": "http"}, line.receive)
    while line.sent < 10**9:
        await pace.receive(request)
        line.now += own


async def seconds_given(line: Line, *, own: float = 0.0) -> float:
    """How long a line was listened to until it was too slow, work between two pieces not counted."""
    with pytest.raises(TooSlow, match="slower than 1,000 bytes a second"):
        await listen(line, own)
    return line.now - own * line.sent / len(line.piece)


async def test_who_drips_is_given_up_soon_after_the_first_patience() -> None:
    """One byte in five seconds is never silence for twenty, and still no body."""
    assert 20 <= await seconds_given(Line(b"x", 5.0)) <= 26


@pytest.mark.parametrize("rate", [10, 500, 900])
async def test_the_nearer_a_line_is_to_the_least_rate_the_longer_it_is_given(rate: int) -> None:
    """At a rate r below the least rate R it takes patience / (1 - r / R), which is finite."""
    assert await seconds_given(Line(b"x" * rate, 1.0)) == pytest.approx(20 / (1 - rate / 1_000), abs=2)


async def test_what_is_done_between_two_pieces_is_not_the_callers_time() -> None:
    assert await seconds_given(Line(b"x", 5.0), own=100.0) == await seconds_given(Line(b"x", 5.0))


async def test_a_line_as_fast_as_asked_for_is_never_given_up() -> None:
    line = Line(b"x" * 1_000, 1.0)
    pace, request = Pace(20.0, 1_000.0, line), Request({"type": "http"}, line.receive)
    for _ in range(10_000):
        await pace.receive(request)
    assert line.sent == 10_000_000


async def test_who_hangs_up_is_told_nothing() -> None:
    async def gone() -> dict[str, object]:
        return {"type": "http.disconnect"}

    with pytest.raises(ClientDisconnect):
        await Pace(20.0, 1_000.0).receive(Request({"type": "http"}, gone))
