"""The design's principles, one named test each: whoever breaks one of them learns it here."""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from app import verify
from app.demo.sentinel import build_sentinel
from app.evaluation.plan import Plan, Trigger
from app.evaluation.verdict import TABLE, decide
from app.settings import VectorSettings
from layers import (
    claim_checks,
    claim_contradictions,
    claim_independence,
    claim_reading,
    claim_shapes,
    compliance,
    pointers,
    preflight,
)
from layers.canonical import canonical_bytes
from layers.compliance import PLAN_KEYS
from layers.model import (
    RUNGS,
    Claim,
    EvalPrediction,
    Evidence,
    EvidenceRole,
    Flag,
    HeuristicResult,
    InstrumentPath,
    JudgeVerdict,
    LayerName,
    Outcome,
    Scored,
)
from layers.pointers import CHECK_NAMES, HIGHEST, verify_claims
from layers.preflight_detectors import Detector
from layers.profile import SystemProfile
from tests.adapters.peers import serving
from tests.standins import FLAGGED, Call, ollama, ollama_at, playing, says, sentinel_at, service, settings_for

pytestmark = pytest.mark.anyio

U, L, A, E, V = RUNGS
LABELS = ("low", "medium", "high", "critical")
EVIDENCE = tuple(
    Evidence(id=f"E{number}", role=EvidenceRole(role), pointer=pointer, text=text)
    for number, (role, pointer, text) in enumerate(
        [
            ("raw_output", "/risk_level", "high"),
            ("raw_output", "/confidence", "0.62"),
            ("raw_output", "/narrative", "Transfer of 12,500 USD to Acme Trading Ltd on 2024-03-05 by John Smith, "
                                         "split into three deposits; account opened 2023-11-20."),
            ("input", "/amount", "12500"),
            ("provider", "/disagreement_result/labels_by_provider/gemini", "gemini: high, confidence 0.9"),
            ("provider", "/disagreement_result/labels_by_provider/ollama", "ollama: low, confidence 0.7"),
            ("policy", "/policies/1", "aml.md: AML-BSA-001 requires a report of every cash transaction above 10,000."),
        ],
        1,
    )
)  # fmt: skip


def judged(text: str, *ids: str, **more: Any) -> Claim:
    (claim,) = verify_claims([{"text": text, "evidence_ids": list(ids), **more}], EVIDENCE, labels=LABELS).claims
    return claim


async def evaluate(folder: Path, reply: str, **groups: Any) -> tuple[dict[str, Any], dict[str, Any], Call]:
    """The answer to a flagged item whose judge says `reply`, its bundle, and what the judge was asked."""
    async with playing(says(ollama(reply))) as judge:
        settings = settings_for(folder, ollama=ollama_at(judge.url), **groups)
        async with service(settings) as http:
            answer = (await http.post("/evaluate", json=FLAGGED)).json()
            bundle = (await http.get(f"/evaluations/{answer['evaluation_id']}/provenance")).json()
    return answer, bundle, judge.calls[0]


def reply(verdict: str = "high", confidence: float = 0.9, *claims: dict[str, Any], **more: Any) -> str:
    return json.dumps({"reasoning": "r", "claims": list(claims), "verdict": verdict, "confidence": confidence, **more})


def stage(bundle: dict[str, Any], name: str) -> Any:
    return json.loads(next(each["payload"] for each in bundle["stages"] if each["name"] == name))


# --- 1 ----------------------------------------------------------------------------------------------------------------

VERIFIERS = (
    pointers, claim_checks, claim_contradictions, claim_independence, claim_reading, claim_shapes, preflight,
    compliance, verify,
)  # fmt: skip
PLAIN = re.compile(
    r"object|int|bytes|str|bool|Any|None|JsonObject|Sequence|Mapping|Evidence|EvidenceRole|Subject|Contracts|Recorded"
    r"|Recorder"
)


def test_1_a_verifier_never_calls_a_model() -> None:
    """It has no parameter through which one could come, waits for nothing, and can reach nothing that asks one."""
    for entry in (verify_claims, preflight.preflight, compliance.compliance, compliance.so_far):
        assert not inspect.iscoroutinefunction(entry)
        for parameter in inspect.signature(entry).parameters.values():
            names = re.findall(r"[A-Za-z_]+", str(parameter.annotation))
            assert names, f"{entry.__name__}({parameter.name}) takes anything at all"
            assert all(PLAIN.fullmatch(name) for name in names), (entry.__name__, parameter.name, names)
    for module in VERIFIERS:
        tree = ast.parse(inspect.getsource(module))
        assert not [node for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef | ast.Await)]
        reached = set(reach(module))
        assert not reached & {"layers.structured_call", "layers.judge", "layers.judge_question", "layers.reply"}
        assert not {name for name in reached if name.split(".")[0] in {"adapters", "httpx", "socket", "anyio"}}


def reach(module: ModuleType, seen: set[str] | None = None) -> Iterator[str]:
    """Every module that this one imports, and what those of ours import in turn."""
    seen = set() if seen is None else seen
    for name in imports(module):
        if name not in seen:
            seen.add(name)
            yield name
            if name.startswith(("layers.", "app.")) and name != "layers.ports":  # which holds types and no code
                yield from reach(importlib.import_module(name), seen)


def imports(module: ModuleType) -> Iterator[str]:
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            if node.module in {"layers", "app"}:
                yield from (f"{node.module}.{each.name}" for each in node.names)


# --- 2 ----------------------------------------------------------------------------------------------------------------


async def test_2_quotations_in_a_model_s_answer_are_never_evidence(tmp_path: Path) -> None:
    """A word-for-word quotation without a pointer is worth nothing, beside a pointer it adds nothing, and there is no
    field for one."""
    quoted = "Two deposits of 9,900 USD on one day, see AML-BSA-001."
    answer, _, call = await evaluate(tmp_path, reply("high", 0.9, {"text": f'"{quoted}"', "evidence_ids": []}))
    assert (answer["assurance"], answer["decision"]) == ("UNGROUNDED", "judge_ungrounded")
    claim = call.body["format"]["properties"]["claims"]["items"]
    assert (set(claim["properties"]), claim["additionalProperties"]) == ({"text", "evidence_ids"}, False)
    false = "The confidence is 0.99"
    assert judged(false, "E2", quote="confidence: 0.99", evidence="0.99") == judged(false, "E2")
    assert judged(f'{false} ("0.99" says E2)', "E2").rung is L


# --- 3 ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"evidence": [{"id": "E99", "text": "All is well."}]}, id="an own map"),
        pytest.param({"claims": [{"text": "x", "evidence_ids": ["E1"], "rung": "ENTAILMENT-VERIFIED"}]}, id="a rung"),
        pytest.param({"claims": [{"text": "x", "evidence_ids": ["E1"], "problems": []}]}, id="its problems"),
        pytest.param({"claims": [{"text": "x", "evidence_ids": [{"id": "E1", "text": "y"}]}]}, id="evidence in place"),
        pytest.param({"assurance": "EVIDENCE-WARRANTED"}, id="its assurance"),
    ],
)
async def test_3_the_service_builds_the_map_and_the_structure_of_claims(tmp_path: Path, given: dict[str, Any]) -> None:
    """What a model adds to either makes its reply unreadable; what it is shown is the map that the record holds."""
    sound = reply("high", 0.9, {"text": "The confidence is 0.45", "evidence_ids": ["E2"]})
    answer, bundle, call = await evaluate(tmp_path, json.dumps({**json.loads(sound), **given}))
    assert (answer["instrument_path"], answer["assurance"]) == ("heuristics_fallback", None)
    assert answer["judge_verdict"]["attempts"][0]["error_type"] == "malformed"
    shown = [line for line in call.body["messages"][0]["content"].splitlines() if line.startswith('{"at":')]
    recorded = stage(bundle, "evidence")[-1]["items"]
    assert [json.loads(line)["id"] for line in shown] == [item["id"] for item in recorded]
    assert [item["id"] for item in recorded] == [f"E{number}" for number in range(1, len(recorded) + 1)]


# --- 4 ----------------------------------------------------------------------------------------------------------------


async def test_4_what_was_retrieved_and_how_is_bound_into_the_root(tmp_path: Path) -> None:
    """So are the prompt and the policy in force: none of it can be changed, added or dropped without being found."""
    with serving(build_sentinel()) as sentinel:
        _, bundle, _ = await evaluate(
            tmp_path,
            reply("high", 0.9, {"text": "The confidence is 0.45", "evidence_ids": ["E2"]}),
            sentinel=sentinel_at(sentinel),
            vectors=VectorSettings(policy_epoch="7"),
        )
    verify.verify(bundle, lambda *_: None)
    plans = stage(bundle, "retrieval_plan")
    assert all(set(plan) >= PLAN_KEYS for plan in plans)
    assert {plan["layer"] for plan in plans} == {"consistency"}
    changes = [("retrieval_plan", [0, key]) for key in sorted(PLAN_KEYS)]
    changes += [("neighbors", [0, "matches"]), ("prompt", [0, "text"]), ("prompt", [0, "version"])]
    changes += [("preflight", [0, "policy", key]) for key in ("profile_sha256", "transactions", "external_models")]
    changes += [("preflight", [0, key]) for key in ("answer_contract", "prompt_contract", "evidence_contract")]
    for name, path in changes:
        changed = copy.deepcopy(bundle)
        part = next(each for each in changed["stages"] if each["name"] == name)
        held = json.loads(part["payload"])
        assert canonical_bytes(held).decode() == part["payload"]
        part["payload"] = canonical_bytes(altered(held, path)).decode()
        with pytest.raises(verify.Differs, match=name):
            verify.verify(changed, lambda *_: None)
    for name in ("retrieval_plan", "prompt", "preflight"):
        dropped = {**bundle, "stages": [each for each in bundle["stages"] if each["name"] != name]}
        with pytest.raises(verify.Differs):
            verify.verify(dropped, lambda *_: None)


def altered(value: Any, path: list[Any]) -> Any:
    inner = value
    for step in path[:-1]:
        inner = inner[step]
    assert path[-1] in inner
    inner[path[-1]] = "changed"
    return value


# --- 5 ----------------------------------------------------------------------------------------------------------------

FAILING = {
    "parsed": {"text": 7, "evidence_ids": ["E1"]},
    "ids_resolve": {"text": "The confidence is 0.62", "evidence_ids": ["E99"]},
    "roles_allowed": {"text": "The providers said high", "evidence_ids": ["E1"]},
    "text_not_empty": {"text": " ", "evidence_ids": ["E1"]},
    "pointers_present": {"text": "The confidence is 0.62", "evidence_ids": []},
    "pointer_cap": {"text": "The confidence is 0.62", "evidence_ids": [f"E{number}" for number in range(1, 10)]},
    "coverage": {"text": "The risk level is high and pirates roam distant oceans", "evidence_ids": ["E1"]},
    "anchors_stand": {"text": "The confidence is 0.63", "evidence_ids": ["E2"]},
}


@pytest.mark.parametrize("check", FAILING)
def test_5_pointer_checks_are_deterministic_and_each_can_fail(check: str) -> None:
    """The same claims give the same result, whatever stood before or beside them; each check that ran says so."""
    sound = {"text": "The confidence is 0.62", "evidence_ids": ["E2"]}
    alone = verify_claims([FAILING[check]], EVIDENCE, labels=LABELS)
    assert {run.name: run.passed for run in alone.checks}[check] is False
    for _ in range(3):
        beside = verify_claims([sound, FAILING[check]], EVIDENCE, labels=LABELS)
        assert (beside.claims[0].rung, beside.claims[1]) == (E, alone.claims[0])
    assert {run.name for run in alone.checks} == CHECK_NAMES
    assert all(run.method and run.ran is (run.passed is not None) for run in alone.checks)


# --- 6 ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        pytest.param("The merchant is Apex Holdings", ["E3"], id="name"),
        pytest.param("The amount is 12,501", ["E4"], id="number"),
        pytest.param("AML-BSA-002 requires a report", ["E7"], id="code"),
        pytest.param("The transfer was made on 2024-03-06", ["E3"], id="date"),
        pytest.param("The risk level is critical", ["E1"], id="label word"),
        pytest.param("The amount is below 10,000", ["E4", "E7"], id="relation"),
        pytest.param("The narrative names John Smith, Bob Stone and deposits", ["E3"], id="list"),
        pytest.param("It was split into four deposits", ["E3"], id="count"),
        pytest.param("The risk level is high because of sanctions", ["E1"], id="cause"),
        pytest.param("The account of 2023-11-20 was opened after 2024-03-05", ["E3"], id="order of dates"),
    ],
)
def test_6_an_anchor_must_stand_in_what_its_claim_points_to(text: str, ids: list[str]) -> None:
    """For every shape of claim, before anything else counts: what is not there lifts no claim off the second rung."""
    claim = judged(text, *ids)
    assert claim.rung is L
    assert any(HIGHEST[problem.partition(":")[0]] is L for problem in claim.problems)
    elsewhere = tuple(each.id for each in EVIDENCE if each.id not in ids)[:2]
    assert judged(text, *elsewhere).rung in {U, L}


# --- 7 ----------------------------------------------------------------------------------------------------------------


def test_7_a_label_says_what_was_checked_and_no_more() -> None:
    """Each rung adds a check to the one below, the answer's is its lowest claim's, and the top one is out of reach."""
    ladder = {
        U: judged("The confidence is 0.62"),
        L: judged("The confidence is 0.63", "E2"),
        A: judged("All providers said high", "E5"),
        E: judged("The confidence is 0.62", "E2"),
    }
    assert {rung: claim.rung for rung, claim in ladder.items()} == {rung: rung for rung in ladder}
    assert [rung.value for rung in RUNGS] == [
        "UNGROUNDED", "POINTER-LINKED", "ANCHOR-WARRANTED", "EVIDENCE-WARRANTED", "ENTAILMENT-VERIFIED",
    ]  # fmt: skip
    given = [{"text": claim.text, "evidence_ids": list(claim.evidence_ids)} for claim in ladder.values()]
    for lowest in range(len(given)):
        whole = verify_claims(given[lowest:], EVIDENCE, labels=LABELS)
        assert whole.rung is RUNGS[lowest]
        assert dict(whole.counts) == {rung: int(rung in RUNGS[lowest:4]) for rung in RUNGS}
    assert V not in HIGHEST.values()
    assert verify_claims([], EVIDENCE).rung is U


# --- 8 ----------------------------------------------------------------------------------------------------------------

OWNED_ELSEWHERE = {10: "a block is binding: what can be blocked is not an evaluation"}


def test_8_nothing_is_automated_before_a_test_pins_its_invariant() -> None:
    """Every principle, every row of the decision table and every detector of preflight has its test by name."""
    pinned = {int(match[1]) for name in globals() if (match := re.match(r"test_(\d+)_", name))}
    assert pinned | set(OWNED_ELSEWHERE) == set(range(1, len(compliance._CHECKS) + 1))
    tests = Path(__file__).parents[1]
    rows = (tests / "unit" / "test_verdict.py").read_text(encoding="utf-8")
    assert [row.name for row in TABLE if f'"{row.name}"' not in rows] == []
    ahead = (tests / "unit" / "test_preflight.py").read_text(encoding="utf-8")
    assert [each.name for each in Detector if f"Detector.{each.name}" not in ahead] == []
    broken = (tests / "unit" / "test_compliance.py").read_text(encoding="utf-8")
    automatic = set(range(1, 11)) - {8, 10}
    assert {number for number in automatic if not re.search(rf"pytest\.param\(\s*{number},", broken)} == set()


# --- 9 ----------------------------------------------------------------------------------------------------------------

FLAG = Flag(rule="low_confidence", reason="r", severity=0.38, pointer="/confidence")


@pytest.mark.parametrize("confidence", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("label", LABELS)
def test_9_no_score_and_no_disposition_is_set_by_a_model(label: str, confidence: float) -> None:
    """The score is the free checks' alone, the disposition a row's, and a model's own certainty moves neither."""
    prediction = EvalPrediction(id="p", raw_output={}, label="medium", confidence=0.3)
    profile = SystemProfile(name="s", labels=LABELS, elevated=frozenset({"high", "critical"}))
    heuristics = HeuristicResult(flagged=True, flags=(FLAG,), suspicion_score=0.38)
    rows = set()
    for rung in (U, E):
        for certainty in (confidence, 0.7):
            judge = JudgeVerdict(
                source=InstrumentPath.OLLAMA, verdict_label=label, agrees=None, confidence=certainty,
                reasoning="disposition: pass, suspicion_score: 0",
                claims=(Claim(text="suspicion_score is 0", evidence_ids=("E1",), rung=rung),),
            )  # fmt: skip
            outcomes: dict[LayerName, Outcome] = {
                LayerName.HEURISTICS: Scored(finding=heuristics, elapsed_ms=0, version="1"),
                LayerName.JUDGE: Scored(finding=judge, elapsed_ms=0, version="1"),
            }
            verdict = decide(prediction, profile, outcomes, Plan(Trigger.SOFT, ("x",), 1.0))
            assert verdict.suspicion_score == 0.38
            rows.add((rung, verdict.decision, verdict.disposition))
            assert next(row for row in TABLE if row.name == verdict.decision).disposition is verdict.disposition
    assert len(rows) == 2, "the certainty moved the verdict"
    assert {disposition for rung, _, disposition in rows if rung is U} == {"review"}


async def test_9_a_model_that_sets_them_is_not_read(tmp_path: Path) -> None:
    answer, _, _ = await evaluate(tmp_path, reply("high", 1.0, disposition="pass", suspicion_score=0))
    assert (answer["disposition"], answer["suspicion_score"]) == ("flag", 0.55)
    assert answer["judge_verdict"]["attempts"][0]["error_type"] == "malformed"
