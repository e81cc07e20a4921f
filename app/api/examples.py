"""Examples shown in the API document; made up, and without secrets."""

from __future__ import annotations

from typing import Any

EVALUATE_REQUEST: dict[str, Any] = {
    "id": "txn-1",
    "system": "sentinel-l7",
    "raw_output": {
        "source": "cache_miss",
        "is_threat": True,
        "risk_level": "high",
        "narrative": "Amount far above the customer's usual range; see AML policy 4.2.",
        "confidence": 0.45,
        "policy_refs": ["AML policy 4.2"],
        "elapsed_ms": 5210,
        "message": "High risk",
    },
    "input": {"amount": 9200.0, "currency": "EUR", "merchant": "Harbour Trade", "id": "txn-1"},
}

NDJSON_BATCH = (
    '{"id":"txn-1","system":"generic","raw_output":{},"label":"low","confidence":0.9}\n'
    '{"id":"txn-2","system":"generic","raw_output":{},"label":"high","confidence":0.5}\n'
)

RUN_REQUEST: dict[str, Any] = {
    "system": "synapse-l4",
    "name": "nightly",
    "dataset": {
        "examples": [
            {
                "id": "e1",
                "input": {"source_id": "ci", "payload": {"raw": {"payload": {"status": "passed"}}}},
                "expected_label": "nominal",
            }
        ]
    },
    "options": {"limit": 100, "concurrency": 8},
    "labels": {"release": "2026-11"},
}

GATE_REQUEST: dict[str, Any] = {
    "policy": '[[floors]]\nmetric = "accuracy"\nmin = 0.9\n\n[[regressions]]\ntolerated = 0.01\n',
    "baseline": "production",
}

INDEX_REQUEST: dict[str, Any] = {
    "items": [
        {"id": "aml-4.2", "text": "Transfers above 10,000 EUR need a second review.", "metadata": {"domain": "aml"}},
        {"id": "txn-0", "input": {"amount": 12.5, "currency": "EUR", "merchant": "Corner Shop"}, "label": "low"},
    ]
}

DATASET: dict[str, Any] = {
    "examples": [
        {"id": "t-1", "input": {"amount": 12.5, "currency": "EUR"}, "expected_label": "low"},
        {"id": "t-2", "input": {"amount": 9200, "currency": "EUR"}, "expected_label": "high", "group": "customer-7"},
    ]
}

HYPOTHESIS_REQUEST: dict[str, Any] = {
    "text": "The model overlooks transfers that are split into several parts.",
    "importance": 70,
    "by": {"kind": "person", "name": "reviewer"},
}

EVIDENCE_REQUEST: dict[str, Any] = {
    "text": "Of 40 split transfers in the March sample, 31 were labelled low.",
    "source": "march-sample",
}

ADJUDICATION_REQUEST: dict[str, Any] = {
    "hypothesis_ids": ["01933d2c-0000-7000-8000-000000000001"],
    "evidence_ids": ["01933d2c-0000-7000-8000-000000000002"],
    "objective": "Look for counter-evidence.",
}
