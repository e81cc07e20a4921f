"""Writes `sentinel_l7_ground_truth.json`: 200 invented transactions of which 10 are high, the same ones every time.

Run `python -m app.demo.generate_fixtures`. The other fixtures are written by hand.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parent / "fixtures"
SENTINEL = FIXTURES / "sentinel_l7_ground_truth.json"

SEED = 20260117
TOTAL = 200
DEMO = 25
"""The first so many are what the demo sends; the kinds in `_DEMO_HIGH` are among them."""

Kind = tuple[str, tuple[str, ...], tuple[float, float]]
"""Category, merchants, range of the amount."""

_LOW: tuple[Kind, ...] = (
    ("groceries", ("Green Basket", "Mercado Sol", "Hofladen Brandt", "Corner Pantry"), (6, 180)),
    ("restaurants", ("Noodle Bar Kyo", "Trattoria Lucia", "Bistro Nord", "Taco Verde"), (9, 140)),
    ("fuel", ("Helios Fuel", "Autobahn Rast 12", "Coastline Petrol"), (25, 120)),
    ("subscriptions", ("Cloudlane Hosting", "Papertrail News", "Tonic Music"), (5, 60)),
    ("utilities", ("Stadtwerke Lindau", "Clearwater Utility", "Fibra Telecom"), (40, 320)),
    ("electronics", ("Pixel & Sons", "Lumen Audio", "Kabelhaus"), (60, 1900)),
    ("travel", ("Skybridge Airlines", "Hotel Marisol", "Nordic Rail"), (80, 1800)),
    ("payroll", ("Atelier Weiss Payroll", "Harbor Clinic Payroll"), (2100, 5800)),
)
_LARGE_INVOICE: Kind = ("capital_goods", ("Kranbau Ostsee", "Sierra Machine Tools"), (11_000, 42_000))
"""Ordinary for the firm that pays it, whatever a rule about large amounts says."""

_STRUCTURING: Kind = ("cash_deposit", ("Branch 14 Counter", "Night Safe 3"), (9_100, 9_990))
_SHELL: Kind = ("wire_transfer", ("Blue Harbor Offshore Ltd", "Meridian Nominee Holdings"), (18_000, 95_000))
_MIXER: Kind = ("crypto_exchange", ("Quiet Tumbler", "CoinMixer One"), (2_500, 8_900))
_GIFT_CARDS: Kind = ("gift_cards", ("Prepaid Kiosk 24", "Card Carousel"), (900, 1_950))

_DEMO_HIGH = (_STRUCTURING, _SHELL, _GIFT_CARDS)
_LATER_HIGH = (_MIXER, _STRUCTURING, _SHELL, _GIFT_CARDS, _MIXER, _STRUCTURING, _SHELL)
_LATER_INVOICES = 5
_CURRENCIES = ("USD", "EUR", "GBP", "CHF")


def sentinel_examples() -> list[dict[str, Any]]:
    """The examples in order. The same seed gives the same list on every platform and version of Python."""
    rng = random.Random(SEED)
    demo = _places(rng, range(DEMO), (*_DEMO_HIGH, _LARGE_INVOICE))
    later = _places(rng, range(DEMO, TOTAL), (*_LATER_HIGH, *(_LARGE_INVOICE,) * _LATER_INVOICES))
    special = {**demo, **later}
    return [_example(rng, index, special.get(index)) for index in range(TOTAL)]


def render(examples: list[dict[str, Any]]) -> bytes:
    """The file: one example per line, so that a change is one line in a diff."""
    lines = ",\n".join(json.dumps(example, ensure_ascii=False) for example in examples)
    return f'{{"examples": [\n{lines}\n]}}\n'.encode()


def _places(rng: random.Random, where: range, kinds: tuple[Kind, ...]) -> dict[int, Kind]:
    left = list(where)
    # random() alone is promised to be the same everywhere; sample() and choice() are not.
    return {left.pop(int(rng.random() * len(left))): kind for kind in kinds}


def _example(rng: random.Random, index: int, special: Kind | None) -> dict[str, Any]:
    category, merchants, (least, most) = special or _pick(rng, _LOW)
    name = f"txn-{index + 1:04d}"
    transaction = {
        "id": name,
        "amount": round(least + rng.random() * (most - least), 2),
        "currency": _pick(rng, _CURRENCIES),
        "merchant": _pick(rng, merchants),
        "category": category,
    }
    high = special is not None and special is not _LARGE_INVOICE
    return {"id": name, "input": transaction, "expected_label": "high" if high else "low"}


def _pick(rng: random.Random, items: tuple[Any, ...]) -> Any:
    return items[int(rng.random() * len(items))]


def main() -> None:
    """Write the file."""
    SENTINEL.write_bytes(render(sentinel_examples()))


if __name__ == "__main__":
    main()
