"""Stages 1 and 2 of narrative grounding against a route that does nothing; and how they grow up to a megabyte."""

from __future__ import annotations

import time

from app.systems import load_profiles
from layers.model import EvalPrediction
from layers.narrative_grounding import NarrativeGrounding, settle_all
from layers.ports import LayerInput, Skip
from layers.references import Ground
from tests.bench.noop_time import against_noop
from tests.bench.rows import Row, at_most

PROFILE = load_profiles()["sentinel-l7"]
REFERENCES = ["AML-BSA-001", "Bank Secrecy Act", "31 CFR 1010.311"]
INPUT = {"amount": 9900, "currency": "USD", "merchant": "Corner Books", "type": "deposit"}

ORDINARY = (
    "The customer, a retail account holder at the Harbour Street branch, made two cash deposits on the morning of the "
    "fifth, the first of {a} USD and the second of {b} USD at a branch across the river, less than four hours apart. "
    "Neither of them would have had to be reported on its own, yet together they would, and the pattern has been seen "
    "before: in the quarter before, several deposits of a similar size were made at other branches, each of them a "
    "little below the sum at which a form has to be filled in. The stated occupation of the customer, a part-time "
    "teacher with a modest declared income, does not explain sums of this size. Within a day of each deposit the money "
    "was sent on to a company abroad that was founded last year and has no web site, no staff that anybody could find, "
    "and an address that it shares with many others. When asked, the customer spoke of a loan to a relative and could "
    "not name the company's owner. The branch manager noted that the customer had asked how much could be paid in "
    "before questions were asked. Taken together this is consistent with structuring as described in AML-BSA-001 "
    "Section 4, and with the indicators that the branch is trained to look for. Under 31 CFR 1010.311 deposits may be "
    "added up where the bank knows that they are made for one person. The transfers amount to {c}% of what was paid "
    "in. Similar cases at this branch were escalated in the past year and two of them led to a report. There is no "
    "sign that the customer acts for anybody else, and no match on any list was found. On balance the risk is rated "
    "high: the amounts, their timing and the onward transfers point the same way, while the explanation given does "
    "not. The account remains open, further cash deposits are held until the review is done, and the relationship "
    "manager has been told not to discuss it with the customer."
)
"""About 2 KB with six claims: as a model writes it that was asked for a narrative."""

DENSE = (
    "Deposits of {a} USD and {b} USD exceed the $10,000 reporting threshold of 31 CFR 1010.311; structuring under 31 "
    "U.S.C. \u00a7 5324 is suspected, see AML-BSA-001 Section 4, FATF Recommendation 20 and GDPR Article 33. A SAR is "
    "due within 30 days, the beneficial owner is unknown, {c}% went abroad. "
)
"""Nothing but claims, thirteen in 300 characters."""


def main() -> list[Row]:
    """Measure; prints as it goes."""
    layer = NarrativeGrounding()

    def ground(template: str, number: int) -> None:
        # Driven by hand: without a source nothing in it waits, and an event loop's own time is not what is asked.
        try:
            layer(item(filled(template, number))).send(None)
        except (StopIteration, Skip):
            return

    found = against_noop(
        {
            "2 KB with six claims": lambda number: ground(ORDINARY, number),
            "2 KB of nothing but claims": lambda number: ground(DENSE * 7, number),
        }
    )
    print(f"2 KB of nothing but claims: {found['2 KB of nothing but claims']:.2f} of a no-op request (no target)")
    return [
        at_most("grounding stages 1 and 2 on 2 KB over a no-op request", found["2 KB with six claims"], 0.5),
        at_most("time for a character at 1 MB over that at 16 KB, the worst of two", _growth(), 2.0),
    ]


def filled(template: str, number: int) -> str:
    """Another narrative for each number."""
    return template.format(a=9000 + number % 997, b=8000 + number % 991, c=10 + number % 83)


def item(narrative: str) -> LayerInput:
    """A Sentinel verdict with this narrative."""
    raw = {
        "source": "cache_miss", "is_threat": True, "risk_level": "high", "confidence": 0.9, "narrative": narrative,
        "policy_refs": REFERENCES,
    }  # fmt: skip
    prediction = EvalPrediction.model_construct(id="t", raw_output=raw, label="high", confidence=0.9, metadata={})
    return LayerInput(prediction, PROFILE, INPUT, (), {})


def _growth() -> float:
    """How much longer a character takes in a megabyte than in 16 KB, at worst over an ordinary and a dense text."""
    worst = 0.0
    for template in (ORDINARY, DENSE):
        small, large = (_per_character(template, size) for size in (16_000, 1_000_000))
        print(f"16 KB {small * 16_000 * 1000:.1f} ms, 1 MB {large * 1_000_000 * 1000:.0f} ms, {large / small:.2f}")
        worst = max(worst, large / small)
    return worst


def _per_character(template: str, size: int) -> float:
    """Seconds of the processor's time, the least of a few: what else the machine does is not asked."""
    times = []
    for number in range(7):
        text = filled(template, number)
        text = (text * (size // len(text) + 1))[:size]
        raw_output = item(text).prediction.raw_output
        begun = time.process_time()
        settle_all(text, Ground(raw_output, INPUT, PROFILE))
        times.append((time.process_time() - begun) / size)
    return min(times)
