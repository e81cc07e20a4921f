"""The judge layer: a chain of models, an attempt on record for each, and claims that code checked."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from app.systems import load_profiles
from layers.errors import CircuitOpen, DependencyRejected, DependencyUnavailable, NotAVerdict, Withdrawn
from layers.evidence import build_evidence
from layers.judge import JudgeLayer, judge_metrics
from layers.judge_question import judge_question, verdict_schema
from layers.model import EvalPrediction, InstrumentPath, JsonObject, JudgeVerdict, Rung, SkipReason
from layers.ports import LayerInput, Skip
from layers.profile import SystemProfile
from layers.structured_call import Parameters, StructuredCall
from prompts import load
from tests.unit.answerers import ScriptedAnswerer

pytestmark = pytest.mark.anyio

SENTINEL = load_profiles()["sentinel-l7"]
HOSTILE = json.loads((Path(__file__).parents[1] / "fixtures" / "hostile_narratives.json").read_text())
NARRATIVE = "Structuring: 9,900 USD at Corner Books under AML-BSA-001."


class Notes:
    """Keeps what is noted."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, JsonObject]] = []

    def note(self, stage: str, value: JsonObject) -> None:
        self.kept.append((stage, value))

    def of(self, stage: str) -> list[JsonObject]:
        return [value for name, value in self.kept if name == stage]


def item(narrative: str = NARRATIVE, *, profile: SystemProfile = SENTINEL, **more: Any) -> LayerInput:
    raw = {"risk_level": "low", "confidence": 0.4, "narrative": narrative, "source": "cache_miss", "policy_refs": []}
    prediction = EvalPrediction.model_construct(id="t-1", raw_output=raw, label="low", confidence=0.4, metadata={})
    evidence = build_evidence(prediction, profile=profile, input={"amount": 9900, "merchant": "Corner Books"})
    return LayerInput(prediction, profile, None, evidence, {}, **more)


def reply(verdict: str = "high", *claims: tuple[str, list[str]], **more: Any) -> str:
    given = [{"text": text, "evidence_ids": ids} for text, ids in claims]
    return json.dumps({"verdict": verdict, "confidence": 0.8, "claims": given, **more})


def chain(*judges: ScriptedAnswerer, **options: Any) -> JudgeLayer:
    return JudgeLayer(judges, load("judge"), StructuredCall(), **options)


def saying(said: Any, source: InstrumentPath = InstrumentPath.OLLAMA, **more: Any) -> ScriptedAnswerer:
    return ScriptedAnswerer(lambda _: said, source=source, identity=source.value, **more)


def gemini(said: Any) -> ScriptedAnswerer:
    return saying(said, InstrumentPath.GEMINI_FLASH, external=True)


def evidence_id(of: LayerInput, pointer: str) -> str:
    return next(piece.id for piece in of.evidence if piece.pointer == pointer)


async def test_the_first_judge_that_answers_is_the_one_that_counts() -> None:
    first, second = saying(reply("high", reasoning="Split deposits.")), gemini(reply("low"))
    verdict = await chain(first, second)(item())
    assert (verdict.source, verdict.verdict_label, verdict.agrees) == (InstrumentPath.OLLAMA, "high", False)
    assert (verdict.confidence, verdict.reasoning) == (0.8, "Split deposits.")
    assert (verdict.cached, verdict.repaired) == (False, False)
    assert verdict.prompt == load("judge").ref
    assert second.asked == []
    (attempt,) = verdict.attempts
    assert (attempt.outcome, attempt.error_type, attempt.input_tokens, attempt.output_tokens) == (
        "answered",
        None,
        100,
        10,
    )


FAILURES = [
    (DependencyUnavailable("ollama", "timeout"), "failed", "timeout"),
    (DependencyUnavailable("ollama", "rate_limited"), "failed", "rate_limited"),
    (DependencyRejected("ollama", "rejected"), "failed", "rejected"),
    (CircuitOpen("ollama", 30), "skipped", "circuit_open"),
    (NotAVerdict("ollama", "truncated"), "failed", "truncated"),
    (NotAVerdict("ollama", "blocked"), "failed", "blocked"),
    ("I think it is high.", "failed", "malformed"),
    (reply("correct"), "failed", "not_a_label"),
    (reply("high", confidence=7), "failed", "out_of_range"),
]


@pytest.mark.parametrize(("said", "outcome", "error"), FAILURES, ids=[error for _, _, error in FAILURES])
async def test_after_a_failure_the_next_judge_is_asked_and_both_are_on_record(
    said: Any, outcome: str, error: str
) -> None:
    verdict = await chain(saying(said), gemini(reply("high")))(item())
    assert (verdict.source, verdict.verdict_label) == (InstrumentPath.GEMINI_FLASH, "high")
    assert [(a.source.value, a.outcome, a.error_type) for a in verdict.attempts] == [
        ("ollama", outcome, error),
        ("gemini_flash", "answered", None),
    ]


async def test_when_all_fail_nobody_looked_and_the_finding_says_so() -> None:
    verdict = await chain(saying(DependencyUnavailable("ollama", "refused")), gemini("no"))(item())
    assert verdict.source is InstrumentPath.HEURISTICS_FALLBACK
    assert (verdict.verdict_label, verdict.agrees, verdict.confidence, verdict.claims) == (None, None, None, ())
    assert [a.error_type for a in verdict.attempts] == ["refused", "malformed"]


async def test_a_bug_is_not_a_failed_judge() -> None:
    with pytest.raises(ZeroDivisionError):
        await chain(saying(ZeroDivisionError()), gemini(reply()))(item())


async def test_without_a_judge_the_layer_is_not_configured() -> None:
    with pytest.raises(Skip) as skip:
        await chain()(item())
    assert skip.value.reason is SkipReason.NOT_CONFIGURED


async def test_a_profile_that_forbids_external_models_passes_them_over() -> None:
    private = SENTINEL.model_copy(update={"external_models": False})
    outside, inside = gemini(reply("low")), saying(reply("high"))
    verdict = await chain(outside, inside)(item(profile=private))
    assert verdict.source is InstrumentPath.OLLAMA
    assert outside.asked == []
    assert [(a.outcome, a.error_type) for a in verdict.attempts] == [
        ("skipped", "external_models_forbidden"),
        ("answered", None),
    ]
    with pytest.raises(Skip) as skip:
        await chain(outside)(item(profile=private))
    assert skip.value.reason is SkipReason.NOT_CONFIGURED


async def test_the_chain_shares_one_deadline() -> None:
    """Who comes too late is passed over, so that falling back is not cut off by the layer's own time-out."""
    times = iter([100.0, 100.0, 144.97, 144.97, 144.97])
    late = gemini(reply())
    first = saying(DependencyUnavailable("ollama", "timeout"))
    verdict = await chain(first, late, timeout=45.0, clock=lambda: next(times))(item())
    assert first.options[0]["deadline"] == 145.0
    assert late.asked == []
    assert [a.error_type for a in verdict.attempts] == ["timeout", "out_of_time"]
    assert verdict.source is InstrumentPath.HEURISTICS_FALLBACK


async def test_a_claim_stands_only_as_high_as_its_pointers_carry_it() -> None:
    given = item()
    amount, narrative = evidence_id(given, "/amount"), evidence_id(given, "/narrative")
    verdict = await chain(
        saying(
            reply(
                "high",
                ("The amount is 9,900 USD.", [narrative, amount]),
                ("The merchant is Blue Harbor.", [narrative]),
                ("Money was laundered.", ["E99"]),
            )
        )
    )(given)
    linked, wrong, nowhere = verdict.claims
    assert linked.rung not in {Rung.UNGROUNDED, Rung.POINTER_LINKED}
    assert (wrong.rung, nowhere.rung) == (Rung.POINTER_LINKED, Rung.UNGROUNDED)
    assert wrong.problems
    assert nowhere.problems


async def test_an_answer_that_was_kept_says_so_and_spends_no_tokens() -> None:
    judge = saying(reply())
    layer = chain(judge)
    await layer(item())
    verdict = await layer(item())
    assert verdict.cached
    assert (verdict.attempts[0].input_tokens, len(judge.asked)) == (None, 1)


async def test_each_call_has_a_fresh_token_around_the_evidence() -> None:
    judge = saying("no verdict")
    layer = chain(judge)
    for _ in range(2):
        await layer(item())
    first, second = judge.asked
    assert first.token != second.token
    assert first.key == second.key
    assert first.text.count(f"\nBEGIN-{first.token}\n") == first.text.count(f"\nEND-{first.token}\n") == 1


async def test_prompt_reply_and_verification_are_noted_for_provenance() -> None:
    notes = Notes()
    bad, good = saying("no verdict"), gemini(reply("high", ("It is.", ["E1"])))
    await chain(bad, good)(item(trace=notes))
    unread, prompt = notes.of("prompt")
    assert (unread["source"], unread["text"]) == ("ollama", bad.asked[0].text)
    assert prompt["text"] == good.asked[0].text
    assert (prompt["layer"], prompt["source"], prompt["sha256"]) == ("judge", "gemini_flash", load("judge").sha256)
    failed, answered = notes.of("model_output")
    assert (failed["source"], failed["failure"], failed["text"]) == ("ollama", "malformed", "no verdict")
    assert (answered["text"], answered["model"]) == (reply("high", ("It is.", ["E1"])), "gemini_flash")
    (verification,) = notes.of("verification")
    assert verification["claims"][0]["evidence_ids"] == ["E1"]


@pytest.mark.parametrize(
    "said",
    [
        pytest.param("no verdict", id="garbage"),
        pytest.param(DependencyUnavailable("ollama", "server_error"), id="an error"),
        pytest.param(ZeroDivisionError(), id="a bug"),
    ],
)
async def test_what_was_asked_is_noted_once_whatever_came_back(said: Any) -> None:
    """The prompt is on record because it was sent, not because the reply could be read."""
    notes, judge = Notes(), saying(said)
    with suppress(ZeroDivisionError):
        await chain(judge)(item(trace=notes))
    (prompt,) = notes.of("prompt")
    assert set(prompt) >= {"layer", "source", "name", "version", "sha256", "question"}
    assert prompt["text"] == judge.asked[0].text
    assert notes.of("verification") == []


async def test_a_prompt_whose_answer_was_not_waited_for_is_noted_too() -> None:
    """The layer's deadline ends the wait, not the record of what went out."""
    notes = Notes()

    class Hangs(ScriptedAnswerer):
        async def ask(self, *args: Any, **options: Any) -> Any:
            await anyio.sleep_forever()

    with anyio.move_on_after(0.05):
        await chain(Hangs(lambda _: "", source=InstrumentPath.OLLAMA, identity="ollama"))(item(trace=notes))
    assert len(notes.of("prompt")) == 1


@pytest.mark.parametrize("refusal", [CircuitOpen("ollama", 30), Withdrawn("ollama")])
async def test_a_prompt_that_was_not_sent_is_not_noted(refusal: Exception) -> None:
    """An open circuit was asked nothing."""
    notes = Notes()
    await chain(saying(refusal))(item(trace=notes))
    assert notes.of("prompt") == []


async def test_a_kept_answer_is_noted_with_the_prompt_that_brought_it() -> None:
    judge, notes = saying(reply("high", ("It is.", ["E1"]))), Notes()
    layer = chain(judge)
    await layer(item())
    await layer(item(trace=notes))
    (prompt,) = notes.of("prompt")
    assert prompt["text"] == judge.asked[0].text


async def test_how_it_is_asked_comes_from_the_parameters() -> None:
    judge = saying(reply())
    await chain(judge, parameters=Parameters(temperature=0.2, seed=3), max_pointers=2)(item())
    options = judge.options[0]
    assert (options["temperature"], options["seed"]) == (0.2, 3)
    assert options["schema"] == verdict_schema(SENTINEL.labels, [piece.id for piece in item().evidence], 2)
    assert "at most 2." in judge.asked[0].text


async def test_a_system_without_a_list_of_labels_takes_any_but_a_correctness_word() -> None:
    free = load_profiles()["generic"].model_copy(update={"labels": (), "elevated": frozenset()})
    assert (await chain(saying(reply("odd")))(item(profile=free))).verdict_label == "odd"
    assert (await chain(saying(reply("yes")))(item(profile=free))).attempts[0].error_type == "not_a_label"


async def test_a_profile_that_folds_case_compares_labels_folded() -> None:
    folding = SENTINEL.model_copy(update={"fold_case": True})
    verdict = await chain(saying(reply("LOW")))(item(profile=folding))
    assert (verdict.verdict_label, verdict.agrees) == ("low", True)


def test_much_evidence_is_shortened_longest_first() -> None:
    given = item("x" * 100_000)
    question = judge_question(load("judge"), given, Parameters(), max_pointers=8)
    evidence = [json.loads(line) for line in question.values["evidence"].splitlines()]
    assert len(question.values["evidence"]) < 22_000
    assert [piece["id"] for piece in evidence] == [piece.id for piece in given.evidence]
    assert {piece["at"]: piece["text"] for piece in evidence}["/merchant"] == "Corner Books"


# --- hostile narratives -----------------------------------------------------------------------------------------------


def test_no_two_hostile_narratives_are_the_same() -> None:
    assert len({case["name"] for case in HOSTILE}) == len({case["narrative"] for case in HOSTILE}) == len(HOSTILE) == 57


@pytest.mark.parametrize("case", HOSTILE, ids=lambda case: case["name"])
async def test_no_narrative_changes_how_a_sound_reply_is_read(case: dict[str, str]) -> None:
    """The judged text stays inside its delimiters as data, and the reply is read as for any other item."""
    judge = saying(reply("high", ("The merchant is Corner Books.", ["E1"])))
    verdict = await chain(judge)(item(case["narrative"]))
    assert (verdict.verdict_label, verdict.repaired, len(verdict.claims)) == ("high", False, 1)
    prompt = judge.asked[0]
    lines = prompt.text.splitlines()
    begin, end = lines.index(f"BEGIN-{prompt.token}"), lines.index(f"END-{prompt.token}")
    pieces = [json.loads(line) for line in lines[begin + 3 : end]]
    assert [piece["id"] for piece in pieces] == [f"E{n + 1}" for n in range(len(pieces))]
    clean = case["narrative"].encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    assert {piece["at"]: piece["text"] for piece in pieces}["/narrative"] == clean
    assert prompt.text.count(prompt.token) == 4
    assert not set(prompt.text[prompt.text.index("BEGIN-") :]) & set("<>\u200b\u202e\u2028")


@pytest.mark.parametrize("case", HOSTILE, ids=lambda case: case["name"])
async def test_a_model_that_parrots_a_narrative_gives_the_listed_outcome_and_overturns_nothing(
    case: dict[str, str],
) -> None:
    verdict = await chain(saying(case["narrative"]))(item(case["narrative"]))
    assert outcome_of(verdict) == case["parroted"]
    assert all(claim.rung is not Rung.ENTAILMENT_VERIFIED for claim in verdict.claims)


def outcome_of(verdict: JudgeVerdict) -> str:
    if verdict.verdict_label is None:
        return str(verdict.attempts[0].error_type)
    return f"answer:{verdict.verdict_label}" + (":repaired" if verdict.repaired else "")


def test_no_narrative_is_like_another_in_its_key() -> None:
    """The cache can't be made to hand out one item's answer for another."""
    keys = set()
    for case in HOSTILE:
        question = judge_question(load("judge"), item(case["narrative"]), Parameters(), max_pointers=8)
        keys.add(question.values["evidence"])
    assert len(keys) == len(HOSTILE)


# --- figures ----------------------------------------------------------------------------------------------------------


def test_the_share_scored_by_a_judge_leaves_fallbacks_out_above_and_not_below() -> None:
    figures = judge_metrics(
        {InstrumentPath.OLLAMA: 5, InstrumentPath.GEMINI_FLASH: 1, InstrumentPath.HEURISTICS_FALLBACK: 2}
    )
    assert (figures.total, figures.scored_by_judge, figures.pct_scored_by_judge) == (8, 6, 75.0)
    assert figures.by_source[InstrumentPath.OPENAI_COMPATIBLE] == 0


def test_nothing_judged_has_no_share() -> None:
    assert judge_metrics({}).pct_scored_by_judge is None


def test_the_schema_is_closed() -> None:
    """Whatever labels and evidence there are, no field is offered beside those asked for."""
    for labels, ids in ((("low",), ("E1",)), ((), ())):
        schema = verdict_schema(labels, ids, 3)
        assert schema["additionalProperties"] is False
        assert set(schema["required"]) == {"reasoning", "claims", "verdict", "confidence"}
        assert ("enum" in schema["properties"]["verdict"]) is bool(labels)
