"""The fingerprint is the text that was embedded when the transaction was stored, letter for letter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.fingerprint import Entry, read_transaction_entry, transaction_entry_ids, transaction_fingerprint
from layers.model import EvalPrediction


def test_every_part_stands_in_its_place():
    transaction = {
        "id": "1", "amount": 150.5, "currency": "EUR", "type": "card", "category": "travel", "merchant": "Acme GmbH",
        "timestamp": "2024-05-01T14:30:00Z", "message": "ticket",
    }  # fmt: skip
    assert transaction_fingerprint(transaction) == (
        "Amount: medium EUR | Type: card | Category: travel | Merchant: Acme GmbH | Time: afternoon | Message: ticket"
    )


def test_what_is_missing_is_said():
    assert transaction_fingerprint({}) == (
        "Amount: N/A N/A | Type: N/A | Category: unknown | Merchant: N/A | Time: N/A | Message: N/A"
    )
    nulls = dict.fromkeys(("amount", "currency", "type", "category", "merchant", "timestamp", "message"))
    assert transaction_fingerprint(nulls) == transaction_fingerprint({})


@pytest.mark.parametrize(
    ("amount", "tier"),
    [
        (0, "micro"), (9.99, "micro"), (10, "small"), (99.99, "small"), (100, "medium"), (499.99, "medium"),
        (500, "large"), (1999.99, "large"), (2000, "very_large"), (10**400, "N/A"), ("150", "medium"),
        (True, "N/A"), ("much", "N/A"), (float("nan"), "N/A"), ([], "N/A"),
    ],
)  # fmt: skip
def test_the_tier_of_an_amount(amount, tier):
    assert transaction_fingerprint({"amount": amount}).startswith(f"Amount: {tier} N/A | ")


@pytest.mark.parametrize(
    ("timestamp", "part"),
    [
        ("2024-05-01T00:00:00Z", "night"), ("2024-05-01T05:59:59Z", "night"), ("2024-05-01T06:00:00Z", "morning"),
        ("2024-05-01T11:59:00Z", "morning"), ("2024-05-01 12:00", "afternoon"), ("2024-05-01T16:59:00", "afternoon"),
        ("2024-05-01T17:00:00+02:00", "evening"), ("2024-05-01T20:59:00Z", "evening"),
        ("2024-05-01T21:00:00.123456Z", "night"), (1714564800, "afternoon"), ("yesterday", "N/A"), ("", "N/A"),
        (True, "N/A"), (float("nan"), "N/A"), (1e300, "N/A"), ({}, "N/A"),
    ],
)  # fmt: skip
def test_the_part_of_the_day_is_that_of_the_stamp_itself(timestamp, part):
    assert f"| Time: {part} |" in transaction_fingerprint({"timestamp": timestamp})


@given(st.dictionaries(st.sampled_from(["amount", "currency", "type", "timestamp", "message"]), st.from_type(object)))
def test_no_transaction_is_without_a_fingerprint(transaction):
    assert transaction_fingerprint(transaction).count(" | ") >= 5


@pytest.mark.parametrize(
    ("metadata", "entry"),
    [
        ({"analysis": {"risk_level": "medium", "isThreat": True}, "policy_epoch": "7"}, Entry("medium", "7")),
        ({"analysis": {"isThreat": True}, "policy_epoch": 7}, Entry("high", "7")),
        ({"analysis": {"isThreat": False, "risk_level": None}}, Entry("low", None)),
        ({"label": "degraded", "policy_epoch": None}, Entry("degraded", None)),
        ({"analysis": {"isThreat": "yes"}}, None),
        ({"analysis": None}, None),
        ({}, None),
    ],
)
def test_an_entry_says_its_label_and_epoch(metadata, entry):
    assert read_transaction_entry(metadata) == entry


def test_the_ids_of_an_item_are_its_own_and_the_transactions():
    prediction = EvalPrediction(id="p", raw_output={}, label="low", confidence=1)
    assert transaction_entry_ids(prediction, {"id": 17}) == {"p", "txn_p", "17", "txn_17"}
    assert transaction_entry_ids(prediction, {"id": None}) == {"p", "txn_p"}
