"""When a run waits, when it goes on, and when it gives up."""

from collections import Counter

import anyio
import pytest

from app.runs.asking import Asker, Item
from app.runs.gate import Gate, Stopped
from app.runs.limits import Limits, Standing
from app.runs.session import Meter
from layers.errors import CircuitOpen, DependencyUnavailable
from layers.model import EvalExample
from tests.runs import PROFILE, Scripted, prediction

pytestmark = pytest.mark.anyio

LIMITS = Limits("sentinel-l7", n_total=1000)


def standing(scored: int = 0, **failures: int) -> Standing:
    return Standing(scored, Counter(failures))


def item(n: int = 0) -> Item:
    return Item(n, 0, EvalExample(id=f"e{n}", expected_label="high"))


@pytest.mark.parametrize(
    ("limits", "seen", "waiting", "kind"),
    [
        pytest.param(LIMITS, standing(refused=19), False, None, id="19-unreachable"),
        pytest.param(LIMITS, standing(refused=19, timeout=1), False, "unreachable", id="20-unreachable"),
        pytest.param(LIMITS, standing(1, refused=30), False, None, id="reached-once"),
        pytest.param(LIMITS, standing(rejected=1, refused=20), False, None, id="somebody-answered"),
        pytest.param(Limits("s", n_total=3), standing(refused=3), False, "unreachable", id="all-of-a-small-dataset"),
        pytest.param(LIMITS, standing(refused=5), True, "unreachable", id="own-failures-opened-the-circuit"),
        pytest.param(LIMITS, standing(), True, None, id="circuit-was-open-before"),
        pytest.param(LIMITS, standing(1, refused=5), True, None, id="outage-in-the-middle"),
        pytest.param(LIMITS, standing(49, rejected=50), False, None, id="too-few-to-judge"),
        pytest.param(LIMITS, standing(50, rejected=50), False, None, id="exactly-the-share"),
        pytest.param(LIMITS, standing(49, rejected=51), False, "too_many_failures", id="over-the-share"),
        pytest.param(
            Limits("s", n_total=3), standing(1, rejected=2), False, "too_many_failures", id="small-at-its-end"
        ),
        pytest.param(Limits("s", n_total=4), standing(1, rejected=2), False, None, id="small-before-its-end"),
    ],
)
def test_when_a_run_gives_up(limits, seen, waiting, kind) -> None:
    failure = limits.broken(seen, waiting=waiting)
    assert (failure.kind if failure else None) == kind


def test_giving_up_is_one_clear_sentence() -> None:
    seen = standing(refused=20)
    seen.said = "it refused the connection"
    failure = LIMITS.broken(seen)
    assert failure is not None
    assert failure.message == (
        "sentinel-l7 could not be reached: the first 20 examples failed (refused: 20); "
        "the last one: it refused the connection"
    )


async def test_while_held_one_asks_and_the_others_wait() -> None:
    """A probe that succeeds opens the gate for all."""
    system, probes = Scripted(), []

    async def script(example: EvalExample) -> object:
        if len(probes) < 3:
            probes.append(example.id)
            raise CircuitOpen("x", retry_after=0.0)
        return prediction("high")

    system.script = script
    asker = Asker(system, PROFILE, Gate(), standing())
    async with anyio.create_task_group() as group:
        for n in range(10):
            group.start_soon(asker.ask, item(n))
    # Ten ask at first at most; afterwards one at a time, until one gets through.
    assert sum(system.asked.values()) == 10 + 3
    assert not asker.gate.held


async def test_a_throttle_is_waited_out() -> None:
    answers = [DependencyUnavailable("x", "rate_limited", retry_after=0.0)]

    async def script(_: EvalExample) -> object:
        if answers:
            raise answers.pop()
        return prediction("high")

    seen = standing()
    record = await Asker(Scripted(script), PROFILE, Gate(), seen).ask(item())
    assert record.status == "scored"
    assert seen.reached


async def test_a_failing_probe_is_not_an_examples_result_once_the_system_had_answered() -> None:
    answers = [CircuitOpen("x", 0.0), DependencyUnavailable("x", "refused", retry_after=0.0)]

    async def script(_: EvalExample) -> object:
        if answers:
            raise answers.pop(0)
        return prediction("high")

    assert (await Asker(Scripted(script), PROFILE, Gate(), standing(1)).ask(item())).status == "scored"


async def test_a_failing_probe_is_a_result_when_the_system_never_answered() -> None:
    """Else a run against a dead system would wait for ever."""
    answers = [CircuitOpen("x", 0.0), DependencyUnavailable("x", "refused")]

    async def script(_: EvalExample) -> object:
        raise answers.pop(0)

    asker = Asker(Scripted(script), PROFILE, Gate(), standing())
    record = await asker.ask(item())
    assert record.error is not None
    assert record.error.kind == "refused"
    assert asker.gate.held


async def test_stopping_turns_everyone_away() -> None:
    """Those who wait for a held gate, the probe that waits its time, and those who come later."""
    gate = Gate()
    gate.hold(3600, probe=False)
    turned_away = []

    async def enter() -> None:
        try:
            await gate.enter()
        except Stopped:
            turned_away.append(True)

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(enter)
        await anyio.wait_all_tasks_blocked()
        gate.stop()
    await enter()
    assert len(turned_away) == 4


async def test_a_cancelled_probe_leaves_the_gate_to_the_next() -> None:
    """Cancellation is no evidence: somebody else may try at once."""
    gate = Gate()
    gate.hold(0.0, probe=False)

    async def script(_: EvalExample) -> object:
        await anyio.sleep_forever()

    with anyio.move_on_after(0.2):
        await Asker(Scripted(script), PROFILE, gate, standing()).ask(item())
    with anyio.fail_after(5):
        assert await gate.enter() is True


async def test_unknown_waits_grow_and_start_anew_after_success() -> None:
    now = [0.0]
    gate = Gate(clock=lambda: now[0])
    waits = []
    for probe in (False, True, True):
        gate.hold(None, probe=probe)
        waits.append(gate._until)
    gate.release(probe=True)
    gate.hold(None, probe=False)
    waits.append(gate._until)
    assert waits == [1.0, 2.0, 4.0, 1.0]


def test_the_rate_is_that_of_late() -> None:
    """Seconds long gone do not count, and without progress there is no rate."""
    now = [0.0]
    meter = Meter(clock=lambda: now[0])
    meter.mark(0)
    assert meter.rate() is None
    for second in range(1, 101):
        now[0] = float(second)
        meter.mark(second if second < 50 else 49 + 10 * (second - 49))
    assert meter.rate() == pytest.approx(10.0)
