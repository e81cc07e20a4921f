"""Seats of processes that work on one store's runs, the same on SQLite and PostgreSQL."""

import subprocess
import sys
import time

import pytest
from sqlalchemy import make_url

from app.runs.seats import MAX_SEATS, Seats, seats_of
from app.settings import StoreSettings
from app.store.engines import locate
from layers.errors import ConfigurationError


@pytest.fixture
def url(store_settings: StoreSettings) -> str:
    return locate(store_settings.url).url.render_as_string(hide_password=False)


def seats(url: str) -> Seats:
    return seats_of(make_url(url))


def test_each_gets_a_seat_of_its_own_and_the_lowest_free_one(url: str) -> None:
    first, second, third = seats(url), seats(url), seats(url)
    assert (first.take(), second.take()) == (0, 1)
    assert [third.taken(number) for number in (0, 1, 2)] == [True, True, False]
    first.leave()
    assert not third.taken(0)
    assert third.take() == 0
    second.leave()
    third.leave()


def test_looking_takes_nothing(url: str) -> None:
    one = seats(url)
    assert not one.taken(0)
    assert one.take() == 0
    assert one.taken(0)
    one.leave()
    one.leave()


def test_a_dead_processs_seat_falls_free(url: str) -> None:
    """Whoever was killed had no time to say goodbye."""
    code = (
        "import os, signal, sys; from sqlalchemy import make_url; from app.runs.seats import seats_of\n"
        "seats_of(make_url(sys.argv[1])).take(); print('seated', flush=True); signal.pause()"
    )
    process = subprocess.Popen([sys.executable, "-c", code, url], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == b"seated"
    mine = seats(url)
    assert mine.taken(0)
    process.kill()
    process.wait()
    process.stdout.close()
    deadline = time.monotonic() + 10  # a server needs a moment to see that its client is gone
    while mine.taken(0):
        assert time.monotonic() < deadline
    assert mine.take() == 0
    mine.leave()


def test_there_is_an_end_of_seats(tmp_path) -> None:
    held = [seats(f"sqlite:///{tmp_path}/store.db") for _ in range(MAX_SEATS)]
    for each in held:
        each.take()
    with pytest.raises(ConfigurationError, match="64 processes"):
        seats(f"sqlite:///{tmp_path}/store.db").take()
    for each in held:
        each.leave()
