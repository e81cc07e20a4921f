"""Numbers in prose as values: thousands separators, scale words, currencies, percent and units of time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

from layers.folding import normal

SYMBOLS = {"$": "$", "€": "eur", "£": "gbp", "¥": "¥", "₹": "inr", "₩": "krw", "₽": "rub", "₿": "btc", "₺": "try"}
"""Currency signs; `$` and `¥` belong to several currencies and stay what they are."""

SHARED_SIGNS = {
    "$": frozenset({"usd", "cad", "aud", "nzd", "sgd", "hkd", "mxn", "twd"}),
    "¥": frozenset({"jpy", "cny"}),
}

CURRENCIES = frozenset(
    {
        "usd", "eur", "gbp", "jpy", "chf", "cad", "aud", "nzd", "sek", "nok", "dkk", "cny", "hkd", "sgd", "inr", "brl",
        "mxn", "zar", "krw", "twd", "pln", "czk", "huf", "ils", "aed", "thb", "idr", "myr", "php", "rub", "uah",
        "btc", "eth", "usdt", "usdc",
    }
)  # fmt: skip
"""Codes that are no everyday words: `SAR` in a compliance text is a report, `TRY` and `ALL` are words."""

WORDS_OF_MONEY = {
    "dollar": "$", "dollars": "$", "us dollars": "usd", "euro": "eur", "euros": "eur", "pound": "gbp", "pounds": "gbp",
    "yen": "jpy", "francs": "chf", "rupees": "inr",
}  # fmt: skip

SCALES = {
    "hundred": 2, "k": 3, "thousand": 3, "lakh": 5, "m": 6, "mn": 6, "mm": 6, "mln": 6, "mio": 6, "million": 6,
    "millions": 6, "crore": 7, "b": 9, "bn": 9, "bln": 9, "billion": 9, "billions": 9, "t": 12, "tn": 12,
    "trillion": 12,
}  # fmt: skip
"""Powers of ten. Single letters count only where they touch the number or where a currency stands before it."""

PERCENT = frozenset({"%", "percent", "per cent", "pct"})

TIMES = {
    unit + plural: unit for unit in ("second", "minute", "hour", "day", "week", "month", "year") for plural in ("", "s")
}

NEARNESS = Decimal("0.05")
"""A number may be written rounded, but never so coarsely that it is off by more than this share of itself."""

_ONE = Decimal(1)
_LONGEST = 40
_MARKS = bytes(ord("0") if chr(code) in "0123456789" else ord(" ") for code in range(256))
_NUMBER = re.compile(r"[0-9]{1,3}(?: [0-9]{3}){1,6}(?![0-9.,])|[0-9]+(?:[.,'][0-9]+)*")
_SCALE = re.compile(
    r"(?:\s{0,3}-?(hundred|thousand|lakh|millions?|crore|billions?|trillion|mln|mio|bln)|(\s?)(mm|mn|bn|tn|[kmbt]))(?!\w)"
)
_UNIT = re.compile(r"\s{0,3}(?:(%)|-?(percent|per cent|pct|bps|basis points|us dollars|[a-z]{3,8})(?!\w))")
_MEASURE = re.compile(
    r"\s{0,3}-?(?:%|per ?cent|pct|bps|basis|us d|hundred|thousand|lakh|million|crore|billion|trillion|m(?:ln|io)|bln"
    + "|" + "|".join(sorted({*CURRENCIES, *WORDS_OF_MONEY})) + "|[" + "".join(SYMBOLS) + "])"
    r"|\s?(?:mm|mn|bn|tn|[kmbt])(?!\w)"
)  # fmt: skip
"""What makes a number before it one of an amount or a percentage, and perhaps more."""
_SEPARATORS = frozenset(", '")
_JOINED = re.compile(r"(?!x\b)[^\W\d]")
_PLAIN = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_GROUPED = re.compile(r"[0-9]{1,3}(?:([, '])[0-9]{3})(?:\1[0-9]{3})*(?:\.[0-9]+)?")
_CONTINENTAL = re.compile(r"[0-9]{1,3}(?:\.[0-9]{3})+(?:,[0-9]+)|[0-9]{1,3}(?:\.[0-9]{3}){2,}|[0-9]+,[0-9]{1,2}")


class Numeral(NamedTuple):
    """A number in a text. `step` is the size of its last written digit, scale applied: 10,000 for `$1.25M`.

    `unit` is a currency code or sign, `%`, a unit of time or None. `sized` = written like an amount: with a currency,
    a scale or thousands separators. `signed` = a minus stands before it.
    """

    value: Decimal
    unit: str | None
    step: Decimal
    sized: bool
    signed: bool
    start: int
    end: int


def numerals(lower: str, *, measured: bool = False) -> Iterator[Numeral]:
    """Every number in a normalised, lower-case text, in order. Digits inside codes (`t1078`) are none.

    `measured` passes over most of those that are neither sized nor a percentage, which is much faster.
    """
    end = 0
    for at in _digits(lower):
        if at < end:
            continue
        match = _NUMBER.match(lower, at)
        if match is None:
            continue
        if measured and not _may_be_measured(lower, match):
            end = match.end()
            continue
        numeral, end = _read(lower, match)
        if numeral is not None:
            yield numeral


@lru_cache(maxsize=512)
def written(text: str) -> Numeral | None:
    """The number that a short text such as `$890M` writes."""
    return next(numerals(normal(text).lower), None)


def has_digit(text: str) -> bool:
    """Whether a plain digit stands in the text. Ten searches for a character are faster than one for a pattern."""
    return any(digit in text for digit in "0123456789")


def _digits(lower: str) -> list[int]:
    """Where runs of plain digits begin. Searches for one byte are several times faster than a pattern's."""
    marked = lower.encode("ascii", "replace").translate(_MARKS)
    found: list[int] = []
    at = marked.find(b"0")
    while at >= 0:
        found.append(at)
        end = marked.find(b" ", at)
        at = marked.find(b"0", end) if end >= 0 else -1
    return found


def _may_be_measured(lower: str, match: re.Match[str]) -> bool:
    """False only for a number with no sign, scale, currency or percentage beside it, and no separator inside."""
    start, end = match.span()
    if _MEASURE.match(lower, end) or not _SEPARATORS.isdisjoint(lower[start:end]):
        return True
    before = lower[max(0, start - 5) : start].rstrip(" ")
    return bool(before) and (before[-1] in SYMBOLS or before[-3:] in CURRENCIES or before[-4:] in CURRENCIES)


def _read(lower: str, match: re.Match[str]) -> tuple[Numeral | None, int]:
    start, end = match.span()
    prefix, unit = _currency_before(lower, start)
    if prefix is None:
        return None, end
    text = match.group()
    if " " in text and unit is None and _currency_after(lower, end) is None:
        # `12 345` is one number only beside a currency; otherwise it is two.
        end = start + text.index(" ")
        text = lower[start:end]
    number = _decimal(text)
    if number is None:
        return None, end
    value, step = number
    power, end = _scale(lower, end, unit is not None)
    suffix, unit, end = _unit_after(lower, end, unit)
    if not suffix and _JOINED.match(lower, end):
        return None, end
    sized = power > 0 or (unit is not None and _is_currency(unit)) or (len(text) > 4 and bool(_GROUPED.fullmatch(text)))
    if unit == "bps":
        unit, power = "%", -2
    if power:
        value, step = value.scaleb(power), step.scaleb(power)
    start, signed = _sign(lower, prefix)
    return Numeral(value, unit, step, sized, signed, start, end), end


def _decimal(text: str) -> tuple[Decimal, Decimal] | None:
    """The value and the size of its last written digit, or None where the digits are not one number (`1.2.3`)."""
    if len(text) > _LONGEST:
        return None
    if text.isdigit() or _PLAIN.fullmatch(text):
        plain = text
    elif _GROUPED.fullmatch(text):
        plain = text.replace(",", "").replace("'", "").replace(" ", "")
    elif _CONTINENTAL.fullmatch(text):
        plain = text.replace(".", "").replace(",", ".")
    else:
        return None
    dot = plain.find(".")
    return Decimal(plain), _ONE if dot < 0 else _ONE.scaleb(dot + 1 - len(plain))


def _currency_before(lower: str, start: int) -> tuple[int | None, str | None]:
    """Where the number with its currency begins, and the currency; None where the digits belong to a code."""
    if start == 0:
        return start, None
    at = start - 1
    if lower[at] in SYMBOLS:
        return _before_symbol(lower, at)
    if lower[at] == "_" or (lower[at] == "-" and at > 0 and lower[at - 1].isalpha()):
        return None, None
    touching = lower[at].isalpha()
    if lower[at] == " ":
        at -= 1
        if at >= 0 and lower[at] in SYMBOLS:
            return _before_symbol(lower, at)
    if at < 0 or not lower[at].isalpha():
        return start, None
    for length in (3, 4):
        begin = at + 1 - length
        if begin >= 0 and lower[begin : at + 1] in CURRENCIES and not (begin and lower[begin - 1].isalnum()):
            return begin, lower[begin : at + 1]
    return (None, None) if touching else (start, None)


def _before_symbol(lower: str, at: int) -> tuple[int, str]:
    """A `$` with its country before it (`us$`) is one currency."""
    if lower[at] == "$" and at >= 2 and not (at > 2 and lower[at - 3].isalnum()):
        code = {"us": "usd", "ca": "cad", "au": "aud", "nz": "nzd", "hk": "hkd", "sg": "sgd"}.get(lower[at - 2 : at])
        if code:
            return at - 2, code
    return at, SYMBOLS[lower[at]]


def _scale(lower: str, end: int, has_currency: bool) -> tuple[int, int]:
    match = _SCALE.match(lower, end)
    if match is None:
        return 0, end
    word, gap, letters = match.groups()
    if word is None and not has_currency and (gap or letters in {"b", "t"}):
        return 0, end
    return SCALES[word or letters], match.end()


def _unit_after(lower: str, end: int, unit: str | None) -> tuple[bool, str | None, int]:
    match = _UNIT.match(lower, end)
    if match is None:
        sign = lower[end : end + 2].lstrip(" ")[:1]
        if unit is None and sign in SYMBOLS:
            return True, SYMBOLS[sign], lower.index(sign, end) + 1
        return False, unit, end
    found = _unit(match.group(1) or match.group(2))
    if found is None or (unit is not None and (found == "%" or found in TIMES.values())):
        return False, unit, end
    if unit is None or found in SHARED_SIGNS.get(unit, ()):
        return True, found, match.end()
    return True, unit, end


def _currency_after(lower: str, end: int) -> str | None:
    match = _UNIT.match(lower, _scale(lower, end, True)[1])
    if match is None:
        return SYMBOLS.get(lower[end : end + 2].lstrip(" ")[:1])
    found = _unit(match.group(1) or match.group(2))
    return found if found in CURRENCIES or found in SHARED_SIGNS else None


def _unit(word: str) -> str | None:
    if word in PERCENT:
        return "%"
    if word in {"bps", "basis points"}:
        return "bps"
    if word in CURRENCIES:
        return word
    return WORDS_OF_MONEY.get(word) or TIMES.get(word)


def _is_currency(unit: str) -> bool:
    return unit in CURRENCIES or unit in SHARED_SIGNS


def _sign(lower: str, start: int) -> tuple[int, bool]:
    if start and lower[start - 1] == "-" and (start == 1 or lower[start - 2] in " \t\n(["):
        return start - 1, True
    return start, False


def same_unit(left: str | None, right: str | None) -> bool:
    """Whether two units can be the same; an unnamed one can be any."""
    if left is None or right is None or left == right:
        return True
    return right in SHARED_SIGNS.get(left, ()) or left in SHARED_SIGNS.get(right, ())


def means(value: Decimal, unit: str | None, written: Numeral) -> bool:
    """Whether `written` is a fair way to write `value`: rounded at its last digit at most, and never by more than 5 %.

    85.19 may be written 85 % but not 86 %. A share in 0..1 without a unit may be written as a percentage.
    """
    if written.unit != "%" and unit != "%" and not is_near(abs(float(value)), abs(float(written.value))):
        return False
    if same_unit(unit, written.unit) and _near(value, written):
        return True
    if written.unit == "%" and unit is None and 0 <= value <= 1:
        return _near(value * 100, written)
    if unit == "%" and written.unit is None and 0 <= written.value <= 1:
        return _near(value / 100, written)
    return False


def is_near(size: float, written: float) -> bool:
    """False only where two amounts are too far apart for one to be the other rounded. Floats tell it quickly."""
    return abs(size - written) <= _ROUGHLY * size


_ROUGHLY = 0.051
"""A little more than `NEARNESS`, so that rounding to a float decides nothing."""


def _near(value: Decimal, written: Numeral) -> bool:
    target = -written.value if written.signed else written.value
    found = value if written.signed else abs(value)
    off = abs(found - target)
    return off <= written.step / 2 and off <= abs(found) * NEARNESS
