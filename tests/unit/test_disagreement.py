"""Every provider is asked at the same time; what one does costs its own answer only."""

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.disagreement import Disagreement, compare
from layers.errors import CircuitOpen, DependencyUnavailable, NotAVerdict, ToolFailed
from layers.model import EvalPrediction, SkipReason
from layers.ports import Fruitless, LayerInput, Skip
from layers.profile import SystemProfile

pytestmark = pytest.mark.anyio

PROFILE = SystemProfile(name="asked")
INPUT = {"amount": 7}


def prediction(label="high", confidence=0.7, **metadata):
    return EvalPrediction(id="1", raw_output={"said": label}, label=label, confidence=confidence, metadata=metadata)


class Says:
    """Answers with what it was made of, or raises it; remembers what it was asked."""

    def __init__(self, answer):
        self.answer = answer
        self.asked = []

    async def predict(self, example):
        self.asked.append(example)
        await anyio.lowlevel.checkpoint()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Silent:
    """Never answers."""

    async def predict(self, example):
        await anyio.sleep_forever()


class Notes:
    def __init__(self):
        self.found = []

    def note(self, stage, value):
        self.found.append((stage, value))


def item(*, input=INPUT, profile=PROFILE, trace=None):
    return LayerInput(prediction(), profile, input, (), {}, trace or Notes())


def layer(providers, **options):
    return Disagreement(lambda _: providers, **options)


def labels(*pairs, asked=None, profile=PROFILE):
    answers = {f"p{at}": prediction(label, confidence) for at, (label, confidence) in enumerate(pairs)}
    for at in range(len(pairs), asked or 0):
        answers[f"p{at}"] = DependencyUnavailable("p", "timeout")
    return compare(answers, profile)


async def test_each_provider_is_asked_about_the_original_input():
    providers = {"a": Says(prediction("high", 0.9)), "b": Says(prediction("high", 0.6))}
    finding = await layer(providers)(item())
    assert finding.labels_by_provider == {"a": "high", "b": "high"}
    assert finding.confidence_by_provider == {"a": 0.9, "b": 0.6}
    assert finding.confidence_spread == pytest.approx(0.3)
    assert (finding.agreed, finding.errors_by_provider) == (True, {})
    assert [example.input for each in providers.values() for example in each.asked] == [INPUT, INPUT]


async def test_a_failing_provider_is_an_error_by_name_and_makes_agreement_unknown():
    providers = {
        "a": Says(prediction("high")),
        "b": Says(DependencyUnavailable("sentinel.b", "rate_limited", "over its limit")),
        "c": Says(ToolFailed("sentinel.c", "tool_failed", "no such model")),
        "d": Says(RuntimeError("secret")),
        "e": Says(CircuitOpen("sentinel.e")),
    }
    finding = await layer(providers)(item())
    assert finding.labels_by_provider == {"a": "high"}
    assert {name: error.kind for name, error in finding.errors_by_provider.items()} == {
        "b": "rate_limited", "c": "tool_failed", "d": "internal", "e": "circuit_open",
    }  # fmt: skip
    assert finding.errors_by_provider["b"].message == "over its limit"
    assert "secret" not in finding.errors_by_provider["d"].message
    assert (finding.agreed, finding.confidence_spread) == (None, None)


async def test_all_are_asked_at_the_same_time():
    """Each waits for the others to arrive: one after another, nobody would ever answer."""
    arrived, all_here = [], anyio.Event()

    class Waits(Says):
        async def predict(self, example):
            arrived.append(self)
            if len(arrived) == 3:
                all_here.set()
            await all_here.wait()
            return self.answer

    with anyio.fail_after(5):
        finding = await layer({name: Waits(prediction()) for name in "abc"})(item())
    assert finding.agreed is True


async def test_a_slow_provider_costs_its_own_answer_only():
    with anyio.fail_after(5):
        finding = await layer({"slow": Silent(), "fast": Says(prediction("low"))}, provider_timeout=0.01)(item())
    assert finding.labels_by_provider == {"fast": "low"}
    assert finding.errors_by_provider["slow"].kind == "timeout"
    assert finding.agreed is None


async def test_cancellation_goes_through():
    cancelled = False
    with anyio.move_on_after(0.01) as scope:
        try:
            await layer({"a": Silent(), "b": Silent()})(item())
        except anyio.get_cancelled_exc_class():
            cancelled = True
            raise
    assert cancelled
    assert scope.cancelled_caught


async def test_answers_come_in_the_order_of_the_providers():
    class Late(Says):
        async def predict(self, example):
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
            return self.answer

    finding = await layer({"z": Late(prediction("low")), "a": Says(prediction("high"))})(item())
    assert list(finding.labels_by_provider) == ["z", "a"]


async def test_the_layer_is_open_when_every_circuit_is():
    providers = {"a": Says(CircuitOpen("a", retry_after=9)), "b": Says(CircuitOpen("b", retry_after=3))}
    with pytest.raises(CircuitOpen) as raised:
        await layer(providers)(item())
    assert raised.value.dependency == "b"


async def test_the_layer_fails_where_nobody_gave_a_label():
    """The commonest cause stands for it, with the dependency that first had it; each error stays on the finding."""
    notes = Notes()
    providers = {
        "a": Says(NotAVerdict("sut.a", "skipped")),
        "b": Says(CircuitOpen("sut.b")),
        "c": Says(DependencyUnavailable("sut.c", "server_error", "HTTP 500")),
        "d": Says(DependencyUnavailable("sut.d", "server_error", "HTTP 502")),
        "e": Says(CircuitOpen("sut.e")),
        "f": Says(CircuitOpen("sut.f")),
    }
    with pytest.raises(Fruitless) as raised:
        await layer(providers)(item(trace=notes))
    error = raised.value
    assert (error.dependency, error.kind) == ("sut.c", "server_error")
    assert error.message.startswith("no provider gave a label: a skipped, b circuit_open, c server_error, d server_")
    assert {name: each.kind for name, each in error.finding.errors_by_provider.items()} == {
        "a": "skipped", "b": "circuit_open", "c": "server_error", "d": "server_error", "e": "circuit_open",
        "f": "circuit_open",
    }  # fmt: skip
    assert error.finding.labels_by_provider == {}
    assert [stage for stage, _ in notes.found] == ["model_output"], "what was said is on record all the same"


async def test_of_causes_as_common_the_first_one_stands():
    providers = {"a": Says(ToolFailed("a", "tool_failed")), "b": Says(DependencyUnavailable("b", "timeout"))}
    with pytest.raises(Fruitless) as raised:
        await layer(providers)(item())
    assert (raised.value.dependency, raised.value.kind) == ("a", "tool_failed")


async def test_one_label_beside_failures_is_a_finding_that_does_not_know():
    """With the original there are two opinions: the layer has looked, and says that it can't tell whether all agree."""
    providers = {"a": Says(prediction("low")), "b": Says(DependencyUnavailable("b", "timeout"))}
    finding = await layer(providers)(item())
    assert (finding.labels_by_provider, finding.agreed) == ({"a": "low"}, None)
    assert set(finding.errors_by_provider) == {"b"}


@pytest.mark.parametrize(
    ("one", "providers", "reason"),
    [
        (item(input=None), {"a": Says(prediction())}, SkipReason.NO_INPUT),
        (item(input={}), {"a": Says(prediction())}, SkipReason.NO_INPUT),
        (item(), {}, SkipReason.NOT_CONFIGURED),
        (
            item(profile=SystemProfile(name="x", replay_has_side_effects=True)),
            {"a": Says(prediction())},
            SkipReason.SIDE_EFFECTS,
        ),
    ],
)
async def test_it_asks_nobody_when_it_must_not(one, providers, reason):
    with pytest.raises(Skip) as skipped:
        await layer(providers)(one)
    assert skipped.value.reason is reason
    assert all(provider.asked == [] for provider in providers.values())


async def test_side_effects_are_accepted_only_on_purpose():
    one = item(profile=SystemProfile(name="x", replay_has_side_effects=True))
    finding = await layer({"a": Says(prediction()), "b": Says(prediction())}, allow_side_effects=True)(one)
    assert finding.agreed is True


@pytest.mark.parametrize(
    ("found", "asked", "agreed"),
    [
        ((("high", 0.5), ("high", 0.5)), 2, True),
        ((("high", 0.5), ("low", 0.5)), 2, False),
        ((("high", 0.5), ("High", 0.5)), 2, False),
        ((("high", 0.5), ("high", 0.5)), 3, None),
        ((("high", 0.5), ("low", 0.5)), 3, False),
        ((("high", 0.5),), 1, None),
        ((("high", 0.5),), 2, None),
        ((), 2, None),
    ],
)
def test_agreement_needs_every_answer_and_disagreement_needs_two(found, asked, agreed):
    assert labels(*found, asked=asked).agreed is agreed


def test_labels_are_compared_as_the_profile_folds_them():
    folding = SystemProfile(name="folds", fold_case=True)
    assert labels(("high", 0.5), ("High", 0.5), profile=folding).agreed is True


def test_a_confidence_that_was_not_given_is_left_out():
    answers = {"a": prediction("high", 0.0, confidence_missing=True), "b": prediction("high", 0.6)}
    finding = compare(answers, PROFILE)
    assert (finding.confidence_by_provider, finding.confidence_spread) == ({"b": 0.6}, None)
    assert compare({"b": prediction()}, SystemProfile(name="x", confidence_means="none")).confidence_by_provider == {}


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 1)), max_size=5), st.integers(0, 2))
def test_only_unanimity_of_all_is_agreement(found, failed):
    finding = labels(*found, asked=len(found) + failed)
    unanimous = len({label for label, _ in found}) == 1
    assert (finding.agreed is True) == (unanimous and failed == 0 and len(found) > 1)
    if finding.confidence_spread is not None:
        assert 0 <= finding.confidence_spread <= 1


async def test_what_was_said_is_noted():
    notes = Notes()
    providers = {"a": Says(prediction("low", 0.4)), "b": Says(DependencyUnavailable("b", "timeout"))}
    await layer(providers)(item(trace=notes))
    assert notes.found == [
        (
            "model_output",
            {
                "layer": "disagreement",
                "answers": {
                    "a": {"label": "low", "confidence": 0.4, "raw_output": {"said": "low"}},
                    "b": {"error": {"kind": "timeout", "message": "timeout"}},
                },
            },
        )
    ]
