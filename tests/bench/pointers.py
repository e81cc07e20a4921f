"""Verifying a judge's claims and binding the stages, for forty pieces of evidence, against a no-op route."""

from __future__ import annotations

import os

from layers.canonical import canonical_bytes
from layers.model import Evidence, EvidenceRole
from layers.pointers import verify_claims
from layers.provenance import Recorder, Stage
from tests.bench.noop_time import against_noop
from tests.bench.rows import Row, at_most

LABELS = ("low", "medium", "high", "critical")
FIELDS = 24
CLAIMS = [
    ("The risk level is high", ["E1"]),
    ("The confidence is 0.62", ["E2"]),
    ("The amount is {amount}", ["E26"]),
    ("Two providers said high: gemini and openrouter", ["E30", "E32"]),
    ("Both neighbours were labelled low", ["E33", "E34"]),
    ("AML-BSA-001 requires a report of every cash transaction above 10,000", ["E35"]),
    ("The narrative names John Smith, Acme Trading Ltd and 2024-03-05", ["E3"]),
    ("Flagged because the high label has a confidence below 0.65", ["E28"]),
]
"""The most that a judge is asked for; it gives about half as many."""
USUAL = 4
VARIANTS = 64


def main() -> list[Row]:
    """Measure; prints as it goes."""
    maps = [evidence(number) for number in range(VARIANTS)]
    found = against_noop(
        {
            "pointers and provenance": lambda number: _verify_and_bind(maps, number, CLAIMS[:USUAL]),
            "with eight claims": lambda number: _verify_and_bind(maps, number, CLAIMS),
        }
    )
    print(f"with eight claims: {found['with eight claims']:.2f} of a no-op request (no target)")
    return [
        at_most(
            "pointer verification and provenance, 40 evidence items, over a no-op request",
            found["pointers and provenance"],
            2.0,
        )
    ]


def _verify_and_bind(maps: list[list[Evidence]], number: int, asked: list[tuple[str, list[str]]]) -> str:
    """What happens once a judge has answered: claims checked, nine stages serialised, hashed and bound."""
    variant = number % VARIANTS
    pieces = maps[variant]
    claims = [{"text": text.format(amount=12_000 + variant), "evidence_ids": ids} for text, ids in asked]
    verification = verify_claims(claims, pieces, labels=LABELS)
    recorder = Recorder(os.urandom)
    recorder.note_bytes(Stage.INPUT, b'{"id":"t","raw_output":"' + b"x" * 2_000 + b'"}')
    recorder.note(Stage.PREFLIGHT, {"status": "clear", "policy": {"profile": "sentinel-l7"}})
    recorder.note(Stage.RETRIEVAL_PLAN, {"layer": "consistency", "queries": ["q"], "top_k": 5})
    recorder.note(Stage.NEIGHBORS, {"layer": "consistency", "matches": [{"id": "txn_1", "score": 0.95}]})
    shown = [{"id": e.id, "role": e.role.value, "pointer": e.pointer, "text": e.text} for e in pieces]
    recorder.note(Stage.EVIDENCE, {"items": shown, "incomplete": [], "cut": []})
    recorder.note(Stage.PROMPT, {"layer": "judge", "text": "p" * 6_000, "sha256": "sha256:00"})
    recorder.note(Stage.MODEL_OUTPUT, {"layer": "judge", "text": "o" * 1_500})
    recorder.note(Stage.VERIFICATION, {"layer": "judge", **verification.as_json()})
    return recorder.finish(canonical_bytes({"disposition": "pass", "padding": "v" * 3_000})).root


def evidence(number: int) -> list[Evidence]:
    """Forty pieces; the amount is another one for each number."""
    narrative = (
        "Transfer to Acme Trading Ltd on 2024-03-05, split into three deposits by John Smith; account opened "
        "2023-11-20. Some of it went abroad."
    )
    rows = [("raw_output", "/risk_level", "high"), ("raw_output", "/confidence", "0.62")]
    rows += [("raw_output", "/narrative", narrative)]
    rows += [("raw_output", f"/field_{n}", f"value {n} of the payload") for n in range(FIELDS - len(rows))]
    rows += [("input", "/merchant", "Acme Trading Ltd"), ("input", "/amount", str(12_000 + number % 997))]
    rows += [("input", "/currency", "USD")]
    rows += [("flag", "/confidence", "elevated_label_low_confidence: high with confidence below 0.65")]
    rows += [("flag", "/raw_output/narrative", "narrative: long")]
    rows += [
        ("provider", f"/disagreement_result/labels_by_provider/{name}", f"{name}: {label}, confidence 0.8")
        for name, label in (("gemini", "high"), ("ollama", "low"), ("openrouter", "high"))
    ]
    rows += [
        ("neighbor", f"/consistency_result/neighbors/{n}", f"txn_{n}: low, similarity 0.9{5 - n}") for n in range(2)
    ]
    policy = "aml.md: AML-BSA-001 requires a report of every cash transaction above 10,000 USD."
    rows += [("policy", f"/policies/{n}", policy + " Further text of the policy." * 10) for n in range(40 - len(rows))]
    return [
        Evidence.model_construct(id=f"E{at}", role=EvidenceRole(role), pointer=pointer, text=text)
        for at, (role, pointer, text) in enumerate(rows, 1)
    ]
