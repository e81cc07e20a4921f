"""The text by which Sentinel's index finds a transaction again, and how its entries are read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from layers.model import EvalPrediction, JsonObject

MISSING = "N/A"

TIERS: tuple[tuple[float, str], ...] = ((10, "micro"), (100, "small"), (500, "medium"), (2000, "large"))
"""Amounts below each bound have its tier."""

PARTS_OF_DAY: tuple[tuple[int, str], ...] = ((6, "night"), (12, "morning"), (17, "afternoon"), (21, "evening"))
"""Hours below each bound have its part of the day."""


def transaction_fingerprint(transaction: JsonObject) -> str:
    """The fingerprint of a transaction, letter for letter as Sentinel-L7 stores it in its `transactions` namespace.

    `Amount: {tier} {currency} | Type: {type} | Category: {category} | Merchant: {merchant} | Time: {part of day} |
    Message: {message}`, with `N/A` for what is missing and `unknown` for a missing category.
    """
    return (
        f"Amount: {_tier(transaction.get('amount'))} {_text(transaction.get('currency'))}"
        f" | Type: {_text(transaction.get('type'))}"
        f" | Category: {_text(transaction.get('category'), 'unknown')}"
        f" | Merchant: {_text(transaction.get('merchant'))}"
        f" | Time: {_part_of_day(transaction.get('timestamp'))}"
        f" | Message: {_text(transaction.get('message'))}"
    )


def _text(value: Any, missing: str = MISSING) -> str:
    if isinstance(value, str):
        return value or missing
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else missing


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _tier(amount: Any) -> str:
    number = _number(amount)
    if number is None:
        return MISSING
    return next((tier for bound, tier in TIERS if number < bound), "very_large")


def _part_of_day(timestamp: Any) -> str:
    """By the hour that the time stamp itself names, in its own time zone; seconds since 1970 are UTC."""
    try:
        if isinstance(timestamp, str):
            hour = datetime.fromisoformat(timestamp.strip()).hour
        elif isinstance(timestamp, int | float) and not isinstance(timestamp, bool):
            hour = datetime.fromtimestamp(timestamp, UTC).hour
        else:
            return MISSING
    except (ValueError, OverflowError, OSError):
        return MISSING
    return next((part for bound, part in PARTS_OF_DAY if hour < bound), "night")


@dataclass(frozen=True, slots=True)
class Entry:
    """An earlier verdict as its index entry tells it. `epoch` is the policy epoch it was given under, where known."""

    label: str
    epoch: str | None


def read_transaction_entry(metadata: JsonObject) -> Entry | None:
    """Read the metadata that Sentinel-L7 stores with a verdict; None where there is no verdict in it.

    Entries from before there was a `risk_level` say `isThreat`: high or low. Our own entries carry `label` as it is.
    """
    epoch = metadata.get("policy_epoch")
    known = str(epoch) if isinstance(epoch, str | int) and not isinstance(epoch, bool) else None
    analysis = metadata.get("analysis")
    fields: Mapping[str, Any] = analysis if isinstance(analysis, dict) else metadata
    for key in ("risk_level", "label"):
        label = fields.get(key)
        if isinstance(label, str) and label:
            return Entry(label, known)
    threat = fields.get("isThreat")
    return Entry("high" if threat else "low", known) if isinstance(threat, bool) else None


def transaction_entry_ids(prediction: EvalPrediction, transaction: JsonObject) -> frozenset[str]:
    """The ids under which this very transaction may stand in the index: its own, and with the prefix `txn_`."""
    ids = {prediction.id}
    own = transaction.get("id")
    if isinstance(own, str | int) and not isinstance(own, bool):
        ids.add(str(own))
    return frozenset(ids | {f"txn_{each}" for each in ids})


@dataclass(frozen=True, slots=True)
class NeighborSpace:
    """How a system's items are found again in the index: what is embedded, what is the item itself, how to read."""

    namespace: str
    fingerprint: Callable[[JsonObject], str] = transaction_fingerprint
    entry_ids: Callable[[EvalPrediction, JsonObject], frozenset[str]] = transaction_entry_ids
    read: Callable[[JsonObject], Entry | None] = read_transaction_entry
