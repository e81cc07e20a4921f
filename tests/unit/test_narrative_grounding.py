"""What a narrative cites stands in its references, its payload or the policies; otherwise somebody is told."""

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.errors import DependencyUnavailable
from layers.model import AnchorStatus, EvalPrediction, Evidence, EvidenceRole, SkipReason
from layers.narrative_grounding import (
    MOST_ANCHORS,
    NarrativeGrounding,
    sentence_around,
    settle_all,
)
from layers.ports import LayerInput, PolicyChunk, Skip
from layers.profile import SystemProfile
from layers.references import Ground

pytestmark = pytest.mark.anyio

PROFILE = SystemProfile(
    name="told",
    narrative_pointer="/narrative",
    references_pointer="/policy_refs",
    source_pointer="/source",
    fallback_sources=frozenset({"fallback"}),
)
REFERENCE, RETRIEVAL, UNGROUNDED, UNKNOWN = (
    AnchorStatus.BY_REFERENCE,
    AnchorStatus.BY_RETRIEVAL,
    AnchorStatus.UNGROUNDED,
    AnchorStatus.UNKNOWN,
)
ASK = None


class Policies:
    """A corpus of chunks, all of which are near every query; remembers what it was asked."""

    name = "memory"
    namespace = "policies"

    def __init__(self, *texts, score=0.9, error=None):
        self.chunks = [PolicyChunk(f"p{at}", score, text) for at, text in enumerate(texts)]
        self.error = error
        self.asked = []

    async def search(self, query, *, limit, threshold):
        self.asked.append((query, limit, threshold))
        await anyio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        return list(self.chunks[:limit])


class EmptyIndex(Policies):
    async def search(self, query, *, limit, threshold):
        await super().search(query, limit=limit, threshold=threshold)


class Notes:
    def __init__(self):
        self.found = []

    def note(self, stage, value):
        self.found.append((stage, value))


def item(narrative, refs=(), *, input=None, evidence=(), trace=None, **raw):
    payload = {"narrative": narrative, "policy_refs": list(refs), "source": "cache_miss", **raw}
    prediction = EvalPrediction(id="1", raw_output=payload, label="high", confidence=0.7)
    return LayerInput(prediction, PROFILE, input, tuple(evidence), {}, trace or Notes())


def statuses(narrative, refs=(), input=None, **raw):
    """Stage 2 alone: each claim with its status, None where it asks for stage 3."""
    one = item(narrative, refs, input=input, **raw)
    settled, _ = settle_all(narrative, Ground(one.prediction.raw_output, input, PROFILE))
    return {each.anchor.text: each.status for each in settled}


# --- stage 2 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("narrative", "refs", "expected"),
    [
        ("Breaks AML-BSA-001.", ["AML-BSA-001"], REFERENCE),
        ("Breaks AML\u2011BSA\u2011001.", ["aml-bsa-001"], REFERENCE),
        ("Breaks AML-BSA-001 Section 3.", ["AML-BSA-001"], REFERENCE),
        ("Breaks AML-BSA-001.", ["AML-BSA-001 Section 3"], REFERENCE),
        ("Breaks AML-BSA-001.", ["AML-BSA-001: Currency Transaction Reporting"], REFERENCE),
        ("Breaks AML-BSA-001.", ["policies/aml_bsa_001.md"], REFERENCE),
        ("Breaks AML-BSA-001.", "AML-BSA-001", REFERENCE),
        ("Breaks AML-BSA-001.", [{"id": "AML-BSA-001", "title": "Reporting"}], REFERENCE),
        ("Breaks AML-BSA-999.", ["AML-BSA-001"], UNGROUNDED),
        ("Breaks AML-BSA-001.", ["AML-BSA-0011"], UNGROUNDED),
        ("Breaks AML-BSA-001.", ["Wire Transfer Policy"], UNGROUNDED),
        ("Breaks AML-BSA-001.", ["Bank Secrecy Act"], ASK),
        ("Breaks AML-BSA-001.", [], ASK),
        ("Breaks AML-BSA-001.", None, ASK),
        ("Breaks AML-BSA-001.", [7, None, [], " "], ASK),
        ("Breaks the Bank Secrecy Act.", ["the bank secrecy act section 4"], REFERENCE),
        ("Breaks the Bank Secrecy Act.", ["AML-BSA-001"], REFERENCE),
        ("Breaks the Wire Transfer Policy.", ["AML-BSA-001"], ASK),
        ("Breaks the Wire Transfer Policy.", ["Bank Secrecy Act"], UNGROUNDED),
        ("Breaks the Wire Transfer Policy.", ["wire transfer"], REFERENCE),
        ("Art. 33(1) of the GDPR applies.", ["GDPR Article 33"], REFERENCE),
        ("Breaks 31 U.S.C. § 5324(a).", ["31 USC 5324"], REFERENCE),
        ("Breaks 31 U.S.C. § 5324.", ["31 U.S.C. § 5325"], UNGROUNDED),
        ("It looks like structuring.", ["Structuring guidance"], REFERENCE),
        ("It looks like structuring.", ["AML-BSA-001"], UNKNOWN),
        ("It looks like structuring.", [], ASK),
    ],
)
def test_the_decision_tree_against_references(narrative, refs, expected):
    payload = {"narrative": narrative, "policy_refs": refs}
    settled, _ = settle_all(narrative, Ground(payload, None, PROFILE))
    assert settled[0].status == expected


@pytest.mark.parametrize(
    ("narrative", "input", "raw", "expected"),
    [
        ("A payment of $1,500.", {"amount": 1500, "currency": "USD"}, {}, REFERENCE),
        ("A payment of $1,500.", {"amount": "1500.00"}, {}, REFERENCE),
        ("A payment of $1,500.", {"order": [{"amount": 1500}]}, {}, REFERENCE),
        ("A payment of $50.", {"amount": 1500}, {}, ASK),
        ("A payment of $1,500.", {"amount": 1500, "currency": "EUR"}, {}, ASK),
        ("A payment of €1,500.", {"amount": 1500, "currency": "EUR"}, {}, REFERENCE),
        ("A payment of $890M.", {"amount": 890_000_000}, {}, REFERENCE),
        ("A payment of $1,500.", {"message": "please send 1,500 USD"}, {}, REFERENCE),
        ("A risk of 85 %.", None, {"score": 85.19}, REFERENCE),
        ("A risk of 86 %.", None, {"score": 85.19}, ASK),
        ("A risk of 85 %.", None, {"confidence": 0.85}, REFERENCE),
        ("A payment of $1,500.", None, {"message": "It says 1,500 USD."}, ASK),
        ("A payment of $1,500.", None, {"total": "$1,500"}, REFERENCE),
        ("A payment of $1,500.", None, {}, ASK),
        ("A fee of $1.", {"urgent": True}, {"is_threat": True}, ASK),
        ("A fee of $1.", {"list": [1]}, {}, REFERENCE),
        ("A payment of $1,500.", {"at": "1500-01-01", "flag": True, "n": float("1500.9")}, {}, ASK),
    ],
)
def test_a_number_may_stand_in_the_payload(narrative, input, raw, expected):
    """The input counts with its prose; of the raw output only numbers do, because a model's text proves no other."""
    assert list(statuses(narrative, ["AML-BSA-001"], input, **raw).values()) == [expected]


def test_a_narrative_does_not_ground_itself():
    assert list(statuses("$1,500").values()) == [ASK]


def test_deep_and_wide_payloads_are_bounded():
    deep = {"amount": 1500}
    for _ in range(5_000):
        deep = {"x": deep}
    assert statuses("Paid $7.", input=deep) == {"$7": ASK}
    assert statuses("Paid $7.", input={"many": list(range(100, 200_000))}) == {"$7": ASK}


def test_the_same_claim_twice_is_one_anchor():
    assert list(statuses("AML-BSA-001 and aml-bsa-001", ["AML-BSA-001"])) == ["AML-BSA-001"]


@given(st.text(), st.lists(st.text(), max_size=3), st.dictionaries(st.text(), st.text() | st.floats() | st.integers()))
def test_no_text_breaks_stages_one_and_two(narrative, refs, input):
    settle_all(narrative + " $5 AML-BSA-001", Ground({"policy_refs": refs, "narrative": narrative}, input, PROFILE))


# --- the layer ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (item("Breaks AML-BSA-001.", source="fallback"), SkipReason.FALLBACK_PREDICTION),
        (item(None), SkipReason.NO_NARRATIVE),
        (item("  "), SkipReason.NO_NARRATIVE),
        (item(["AML-BSA-001"]), SkipReason.NO_NARRATIVE),
        (item("Looks routine."), SkipReason.NOTHING_TO_GROUND),
    ],
)
async def test_it_skips_what_has_no_claim_of_a_model(one, reason):
    with pytest.raises(Skip) as skipped:
        await NarrativeGrounding(Policies("AML-BSA-001"))(one)
    assert skipped.value.reason is reason


async def test_a_profile_without_a_narrative_is_skipped():
    one = item("Breaks AML-BSA-001.")
    with pytest.raises(Skip) as skipped:
        await NarrativeGrounding()(LayerInput(one.prediction, SystemProfile(name="mute"), None, (), {}))
    assert skipped.value.reason is SkipReason.NO_NARRATIVE


async def test_what_stage_two_settles_asks_nobody():
    policies = Policies("AML-BSA-001")
    finding = await NarrativeGrounding(policies)(item("Breaks AML-BSA-001 and AML-BSA-999.", ["AML-BSA-001"]))
    assert [anchor.status for anchor in finding.anchors] == [REFERENCE, UNGROUNDED]
    assert finding.ng_flagged
    assert finding.stage == 2
    assert policies.asked == []


@pytest.mark.parametrize("source", [None, EmptyIndex()])
async def test_without_policies_an_open_claim_is_unknown_and_not_flagged(source):
    finding = await NarrativeGrounding(source)(item("Breaks AML-BSA-001."))
    assert [anchor.status for anchor in finding.anchors] == [UNKNOWN]
    assert not finding.ng_flagged
    assert finding.stage == 2


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("Policy AML\u2011BSA\u2011001 applies to cash.", RETRIEVAL),
        ("Policy AML-BSA-002 applies to cash.", UNGROUNDED),
        ("Nothing of the kind.", UNGROUNDED),
    ],
)
async def test_a_retrieved_chunk_must_really_hold_the_claim(text, status):
    finding = await NarrativeGrounding(Policies(text))(item("Breaks AML-BSA-001."))
    assert [anchor.status for anchor in finding.anchors] == [status]
    assert finding.ng_flagged == (status is UNGROUNDED)
    assert finding.stage == 3


@pytest.mark.parametrize(("written", "status"), [("$10,000", RETRIEVAL), ("$50", UNGROUNDED), ("$10k", RETRIEVAL)])
async def test_amounts_are_looked_up_as_values(written, status):
    policies = Policies("Report whatever exceeds 10,000 USD, or 1500 in one day.")
    finding = await NarrativeGrounding(policies)(item(f"It exceeds the limit of {written}."))
    assert [anchor.status for anchor in finding.anchors] == [status]


async def test_nothing_retrieved_means_not_held():
    finding = await NarrativeGrounding(Policies())(item("Breaks AML-BSA-001."))
    assert [anchor.status for anchor in finding.anchors] == [UNGROUNDED]
    assert finding.ng_flagged


async def test_chunks_below_the_threshold_hold_nothing():
    finding = await NarrativeGrounding(Policies("AML-BSA-001", score=0.69))(item("Breaks AML-BSA-001."))
    assert [anchor.status for anchor in finding.anchors] == [UNGROUNDED]


async def test_the_name_of_the_document_counts_as_its_text():
    policies = Policies()
    policies.chunks = [PolicyChunk("c", 0.8, "Report large sums of cash.", source="aml_bsa_001.md", domain="aml")]
    finding = await NarrativeGrounding(policies)(item("Breaks AML-BSA-001."))
    assert [anchor.status for anchor in finding.anchors] == [RETRIEVAL]


async def test_a_failing_retrieval_is_a_failure_and_not_a_finding():
    failure = DependencyUnavailable("upstash", "timeout")
    with pytest.raises(DependencyUnavailable) as raised:
        await NarrativeGrounding(Policies(error=failure))(item("Breaks AML-BSA-001.\nBreaks AML-BSA-002."))
    assert raised.value is failure


async def test_a_keyword_with_an_unread_reference_is_looked_up_when_policies_are_read_anyway():
    policies = Policies("Structuring: the limit is $10,000.")
    one = item("Structuring below $10,000.", ["AML-BSA-001"])
    finding = await NarrativeGrounding(policies)(one)
    assert [anchor.status for anchor in finding.anchors] == [RETRIEVAL, RETRIEVAL]
    alone = await NarrativeGrounding(policies)(item("Structuring.", ["AML-BSA-001"]))
    assert [anchor.status for anchor in alone.anchors] == [UNKNOWN]
    assert not alone.ng_flagged


async def test_each_sentence_is_a_query_and_what_was_not_asked_about_stays_unknown():
    policies = Policies("nothing")
    narrative = "Breaks AML-BSA-001. Breaks AML-BSA-002. Breaks AML-BSA-003."
    finding = await NarrativeGrounding(policies, top_k=2, threshold=0.8, max_queries=2)(item(narrative))
    assert policies.asked == [("Breaks AML-BSA-001.", 2, 0.8), ("Breaks AML-BSA-002.", 2, 0.8)]
    assert [anchor.status for anchor in finding.anchors] == [UNGROUNDED, UNGROUNDED, UNKNOWN]


async def test_queries_are_asked_at_the_same_time():
    class Together(Policies):
        def __init__(self):
            super().__init__()
            self.arrived, self.all_here = 0, anyio.Event()

        async def search(self, query, *, limit, threshold):
            self.arrived += 1
            if self.arrived == 3:
                self.all_here.set()
            await self.all_here.wait()
            return []

    with anyio.fail_after(5):
        await NarrativeGrounding(Together())(item("AML-BSA-001 x. AML-BSA-002 x. AML-BSA-003 x."))


async def test_how_it_was_retrieved_is_noted():
    notes = Notes()
    policies = Policies("AML-BSA-001 says so.")
    await NarrativeGrounding(policies)(item("Breaks AML-BSA-001.", trace=notes))
    (plan_stage, plan), (chunk_stage, chunks) = notes.found
    assert (plan_stage, chunk_stage) == ("retrieval_plan", "policy_chunks")
    assert plan["queries"] == ["Breaks AML-BSA-001."]
    assert {plan["namespace"], plan["threshold"], plan["top_k"], plan["filter"]} == {"policies", 0.70, 5, None}
    assert chunks["chunks"] == [
        {"id": "p0", "score": 0.9, "text": "AML-BSA-001 says so.", "source": "", "domain": None}
    ]
    assert chunks["held"] == [{"anchor": "AML-BSA-001", "chunks": ["p0"]}]


async def test_anchors_point_to_the_evidence_that_grounds_them():
    evidence = [
        Evidence(id="E1", role=EvidenceRole.RAW_OUTPUT, pointer="/policy_refs/1", text="AML-BSA-001"),
        Evidence(id="E2", role=EvidenceRole.INPUT, pointer="/amount", text="1500"),
        Evidence(id="E3", role=EvidenceRole.RAW_OUTPUT, pointer="/amount", text="1500"),
    ]
    one = item("$1,500 breaks AML-BSA-001.", ["x", "AML-BSA-001"], input={"amount": 1500}, evidence=evidence)
    finding = await NarrativeGrounding()(one)
    assert [anchor.evidence_ids for anchor in finding.anchors] == [("E2",), ("E1",)]


async def test_more_claims_than_are_checked_flag_the_narrative():
    refs = [f"AML-BSA-{at:03}" for at in range(MOST_ANCHORS + 1)]
    assert not (await NarrativeGrounding()(item(" ".join(refs[:-1]), refs))).ng_flagged
    finding = await NarrativeGrounding()(item(" ".join(refs), refs))
    assert finding.ng_flagged
    assert len(finding.anchors) == MOST_ANCHORS


async def test_a_huge_narrative_is_read_beside_the_loop():
    finding = await NarrativeGrounding()(item("word " * 50_000 + "AML-BSA-001", ["AML-BSA-001"]))
    assert [anchor.status for anchor in finding.anchors] == [REFERENCE]


@given(st.text(min_size=1), st.data())
def test_a_sentence_is_short_and_never_empty(text, data):
    start = data.draw(st.integers(0, len(text) - 1))
    sentence = sentence_around(text, start, start + 1)
    assert 3 <= len(sentence) <= 410
