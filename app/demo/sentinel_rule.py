"""What the stand-in Sentinel thinks of a transaction: a small rule that is often right, and wrong in known ways.

Points: an amount of 10,000 or more 3, just below that (9,000 or more) 2, of 2,000 or more 1; a category that moves
cash quickly 2; a merchant whose name hides its owner 2. 0 or 1 point is low, 2 medium, 3 or 4 high, 5 or more critical.
It misses gift cards bought in bulk, and it takes any large invoice for a threat.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Transaction = Mapping[str, Any]
Opinion = Callable[[Transaction], int]
"""How many points a provider gives a transaction."""

QUICK_CASH = frozenset({"cash_deposit", "wire_transfer", "crypto_exchange", "gambling"})
_HIDDEN_OWNER = re.compile(r"\b(offshore|nominee|tumbler|mixer|bearer)\b", re.IGNORECASE)

_CONFIDENCE = (0.96, 0.81, 0.66, 0.58, 0.86, 0.94)
"""By points; the rule is least sure of itself where a class begins."""


def points(transaction: Transaction) -> int:
    """The rule as the module tells it."""
    return amount_points(transaction) + context_points(transaction)


def context_points(transaction: Transaction) -> int:
    """The part of the rule that does not look at the amount; the provider `ollama` goes by it alone."""
    category = 2 if transaction.get("category") in QUICK_CASH else 0
    return category + (2 if _HIDDEN_OWNER.search(transaction["merchant"]) else 0)


def amount_points(transaction: Transaction) -> int:
    """The part of the rule that looks at the amount."""
    amount = transaction["amount"]
    return 3 if amount >= 10_000 else 2 if amount >= 9_000 else 1 if amount >= 2_000 else 0


OPINIONS: Mapping[str, Opinion] = {
    "gemini": points,
    "openrouter": points,
    "ollama": context_points,
    "vertexai": points,
}


@dataclass(frozen=True)
class Policy:
    """A chunk of the stand-in's policy corpus."""

    id: str
    title: str
    text: str
    source: str
    domain: str


POLICIES = (
    Policy(
        "aml-reporting-0",
        "AML-4.2 Currency transaction reporting",
        "Section 4.2. A transaction of 10,000 USD or more is reported to the authority within 15 days. Splitting a sum "
        "into amounts just below 10,000 USD to avoid the report is structuring and is escalated as a high risk.",
        "aml_reporting.md",
        "aml",
    ),
    Policy(
        "aml-ownership-0",
        "AML-6.1 Beneficial ownership",
        "Section 6.1. Before a payment to an offshore or nominee company its beneficial owner is identified. Without "
        "an identified owner the payment is held and enhanced due diligence is opened.",
        "aml_ownership.md",
        "aml",
    ),
    Policy(
        "aml-crypto-0",
        "AML-7.3 Virtual assets",
        "Section 7.3. Transfers to a mixer or tumbler of virtual assets are critical. Transfers to a licensed exchange "
        "are monitored above 1,000 USD under the travel rule.",
        "aml_crypto.md",
        "aml",
    ),
    Policy(
        "aml-cash-0",
        "AML-5.4 Cash intensive activity",
        "Section 5.4. Cash deposits, wire transfers and gambling are reviewed weekly for velocity and for sums that do "
        "not fit the customer's profile.",
        "aml_cash.md",
        "aml",
    ),
    Policy(
        "gdpr-retention-0",
        "GDPR-3.1 Retention",
        "Section 3.1. Personal data of customers are erased or made anonymous when the purpose of their collection has "
        "ended, at the latest after 10 years.",
        "gdpr_retention.md",
        "gdpr",
    ),
)


def verdict(transaction: Transaction, opinion: Opinion) -> dict[str, Any]:
    """Risk level, narrative, confidence and policy references for a transaction."""
    score = opinion(transaction)
    level = "low" if score < 2 else "medium" if score < 3 else "high" if score < 5 else "critical"
    amount = f"{transaction['amount']:,.2f} {transaction['currency'].upper()}"
    category = transaction.get("category") or "unknown"
    found = _policies(transaction, score)
    narrative = f"A payment of {amount} to {transaction['merchant']} (category {category}) was rated {level}."
    if found:
        narrative += " It falls under " + " and ".join(f"Section {_section(policy)}" for policy in found) + "."
    return {
        "is_threat": level != "low",
        "message": "Threat detected" if level != "low" else "No threat detected",
        "risk_level": level,
        "narrative": narrative,
        "confidence": _CONFIDENCE[min(score, 5)],
        "policy_refs": [policy.title for policy in found],
    }


def fallback(transaction: Transaction) -> dict[str, Any]:
    """What the real Sentinel answers when no model does: an amount over 400 is high, without a confidence."""
    threat = transaction["amount"] > 400
    return {
        "is_threat": threat,
        "message": "Rule-based result",
        "risk_level": "high" if threat else "low",
        "narrative": None,
        "confidence": None,
        "policy_refs": [],
    }


def search(query: str, limit: int) -> list[dict[str, Any]]:
    """Policies by the share of the query's words that stand in them, at 0.70 or more, best first."""
    words = set(re.findall(r"[a-z0-9]+", query.lower()))
    hits: list[tuple[float, dict[str, Any]]] = []
    for policy in POLICIES:
        held = set(re.findall(r"[a-z0-9]+", f"{policy.title} {policy.text}".lower()))
        score = round(len(words & held) / len(words), 4) if words else 0.0
        if score >= 0.70:
            metadata = {"text": policy.text, "source": policy.source, "chunk": 0, "domain": policy.domain}
            hits.append((score, {"id": policy.id, "score": score, "metadata": metadata}))
    return [hit for _, hit in sorted(hits, key=lambda pair: (-pair[0], pair[1]["id"]))[:limit]]


def _policies(transaction: Transaction, score: int) -> list[Policy]:
    if score < 2:
        return []
    by_id = {policy.id: policy for policy in POLICIES}
    found = []
    if transaction["amount"] >= 9_000:
        found.append(by_id["aml-reporting-0"])
    if transaction.get("category") == "crypto_exchange":
        found.append(by_id["aml-crypto-0"])
    elif transaction.get("category") in QUICK_CASH:
        found.append(by_id["aml-cash-0"])
    if _HIDDEN_OWNER.search(transaction["merchant"]):
        found.append(by_id["aml-ownership-0"])
    return found


def _section(policy: Policy) -> str:
    return policy.title.split()[0].partition("-")[2]
