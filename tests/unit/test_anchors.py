"""Anchors: found in linear time, compared as what they mean."""

import time
from decimal import Decimal
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from layers.anchors import Held, find_anchors, find_claims, fold, holds
from layers.folding import normal, squash, without_section
from layers.names import proper_names
from layers.numerals import numerals


def anchor(text, names=False):
    """The one anchor of a text."""
    found = find_anchors(text, names=names)
    assert len(found) == 1, found
    return found[0]


def numbers(text):
    return [(numeral.value, numeral.unit) for numeral in numerals(normal(text).lower)]


# --- numbers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("50", "50", None),
        ("1,500", "1500", None),
        ("890,000,000", "890000000", None),
        ("$890M", "890000000", "$"),
        ("$ 890 million", "890000000", "$"),
        ("US$10k", "10000", "usd"),
        ("USD 1,234.56", "1234.56", "usd"),
        ("1,234.56 EUR", "1234.56", "eur"),
        ("€5bn", "5000000000", "eur"),
        ("12,50 €", "12.50", "eur"),
        ("10.000,50 EUR", "10000.50", "eur"),
        ("1 234 567 USD", "1234567", "usd"),
        ("CHF 1'000'000", "1000000", "chf"),
        ("5 million dollars", "5000000", "$"),
        ("2.5 crore", "25000000", None),
        ("85.19 %", "85.19", "%"),
        ("85 percent", "85", "%"),
        ("50 bps", "0.5", "%"),
        ("72 hours", "72", "hour"),
        ("30-day", "30", "day"),
        ("１２３", "123", None),
        ("3.5x", "3.5", None),
    ],
)
def test_a_number_is_read_with_its_scale_and_unit(text, value, unit):
    assert numbers(text) == [(Decimal(value), unit)]


@pytest.mark.parametrize("text", ["T1078", "AML-BSA-001", "1.2.3", "a1", "x_7", "12ab", "9" * 41, "v2"])
def test_digits_of_codes_are_no_numbers(text):
    assert numbers(text) == []


@pytest.mark.parametrize("text", ["call 12 345 times", "12 345"])
def test_digits_with_a_blank_between_are_two_numbers_unless_a_currency_stands_there(text):
    assert [value for value, _ in numbers(text)] == [12, 345]


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("85 %", "the score is 85.19"),
        ("85.2 %", "85.19"),
        ("85 %", "a share of 0.8519"),
        ("0.85", "85 %"),
        ("$890M", "a total of 890,000,000"),
        ("890,000,000", "$890M was moved"),
        ("$890M", "890,400,000 USD"),
        ("$500", "amount: 500 USD"),
        ("$500", "500 CAD"),
        ("1500", "exactly 1,500."),
        ("50", "49.6"),
        ("-5", "it fell by -5 points"),
        ("5", "it is -5"),
    ],
)
def test_a_number_is_held_by_what_it_may_be_written_for(written, text):
    assert holds(text, anchor(written))


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("50", "1500"),
        ("50", "50,000"),
        ("86 %", "85.19"),
        ("85.1 %", "85.19"),
        ("$890M", "890"),
        ("$890M", "$890k"),
        ("890,400,000", "$890M"),
        ("$500", "500 EUR"),
        ("€500", "$500"),
        ("5 %", "5 USD"),
        ("72 hours", "72 days"),
        ("$1M", "1,400,000"),
        ("2", "2.4"),
        ("-5", "it is 5"),
        ("50", "T50 and AML-50"),
        ("50", ""),
    ],
)
def test_a_number_is_not_held_by_another_value_unit_or_scale(written, text):
    assert not holds(text, anchor(written))


@given(st.decimals(min_value="0.01", max_value="1e12", places=2), st.integers(0, 2))
def test_a_number_is_held_by_its_own_text_however_it_is_grouped(value, style):
    text = (f"{value}", f"{value:,}", f"USD {value:,}")[style]
    assert holds(f"paid {text} yesterday", anchor(text))


@given(st.decimals(min_value="0.01", max_value="1e9", places=2))
def test_a_number_a_tenth_larger_is_never_held(value):
    assert not holds(f"{value}", anchor(f"{value * Decimal('1.1') + 1:.2f}"))


# --- citations, dates, names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("AML\u2011BSA\u2011001", "AML-BSA-001"),
        ("aml\u2013bsa\u2013001", "AML-BSA-001"),
        ("AML-\u200bBSA-00\u00ad1", "AML-BSA-001"),
        ("the file aml_bsa_001.md", "AML-BSA-001"),
        ("Art. 33(1) of the GDPR", "GDPR Article 33"),
        ("31\u00a0USC\u202f5324", "31 U.S.C. § 5324(a)(3)"),
        ("HIPAA § 164.312", "§ 164.312(a)"),
        ("smurfing was seen", "structuring"),
        ("a Suspicious Activity Report", "SAR"),
        ("on 2023-01-15T09:00:00Z", "15 January 2023"),
        ("January 15, 2023", "2023-01-15"),
        ("the BANK SECRECY ACT", "Bank Secrecy Act"),
    ],
)
def test_a_citation_is_held_however_it_is_written(text, cited):
    assert holds(text, anchor(cited))


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("AML-BSA-0011", "AML-BSA-001"),
        ("XAML-BSA-001", "AML-BSA-001"),
        ("GDPR Article 3", "GDPR Article 33"),
        ("GDPR Article 333", "GDPR Article 33"),
        ("31 U.S.C. § 5325", "31 U.S.C. § 5324"),
        ("restructuring", "structuring"),
        ("2023-01-16", "15 January 2023"),
        ("15 2023 January", "15 January 2023"),
    ],
)
def test_a_citation_is_not_held_by_one_that_looks_like_it(text, cited):
    assert not holds(text, anchor(cited))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("The payment went to Acme Corp in Zurich.", ["Acme Corp", "Zurich"]),
        ("Transaction flagged. Acme paid.", ["Acme"]),
        ("Flagging was right.", []),
        ("the Bank of England and Zorblax", ["Bank of England", "Zorblax"]),
        ("It's low risk", []),
        ("Élodie met Jean-Luc", ["Élodie", "Jean-Luc"]),
        ("paid by A", []),
        ("", []),
    ],
)
def test_names_are_capitalised_words_that_do_not_merely_open_a_sentence(text, names):
    assert [text[start:end] for start, end in proper_names(text)] == names


def test_names_and_codes_are_anchors_only_where_asked_for():
    text = "Acme sent TXN-12 and AML-BSA-001"
    assert [token.kind for token in find_claims(text)] == ["citation"]
    assert [token.kind for token in find_anchors(text)] == ["code", "citation"]
    assert [token.kind for token in find_anchors(text, names=True)] == ["name", "code", "citation"]


PIECES = [
    "$", "usd ", " usd", "12", "1,250", "0.5", " ", " %", "%", "-", "k", " million", " bps", "€", " days", ".", "a",
    "us$", " per cent", "1.2.3", " x", " per", "\u00a7", " us dollars", " eur", "\n", "'", "7", "m ", " bn", " lakh",
]  # fmt: skip


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=3)), max_size=14))
def test_looking_for_measured_numbers_only_finds_all_of_them(pieces):
    """The quick way passes over none that is sized or a percentage, and reads each as the thorough way does."""
    text = normal("".join(pieces)).lower
    thorough = [number for number in numerals(text) if number.sized or number.unit == "%"]
    quick = [number for number in numerals(text, measured=True) if number.sized or number.unit == "%"]
    assert quick == thorough


@given(st.text(alphabet="abc \u00a7\u0301\u2014\u00e9\U0001f600\ud800", max_size=60))
def test_folding_is_the_same_whether_foreign_characters_are_few_or_many(text):
    """How they are found makes no difference."""
    padded = text + "x" * 17 * len(text)
    assert normal(padded).plain == normal(text).plain + "x" * 17 * len(text)


def test_the_same_citation_in_two_forms_is_one_anchor():
    first, second = find_claims("GDPR Article 33 and Art. 33 of the GDPR")
    assert first.key == second.key


def test_a_trailing_section_is_no_part_of_a_title():
    assert without_section("Wire Transfer Policy Section 4.2") == without_section("Wire Transfer Policy § 9")
    assert without_section("Section 4") == "section 4"


# --- folding --------------------------------------------------------------------------------------------------------

hostile = st.text(
    st.characters()
    | st.sampled_from("\u200b\u2011\u0301\u0316\ufb01\u00bd\u0130\u00df\u2033\u202f\u00a7$€%,.-_ 0123456789AZaz")
)


@given(hostile)
@example("\u0301" * 600 + "a")
@example("e\u200b\u0301")
def test_folding_twice_changes_nothing_more(text):
    assert fold(fold(text)) == fold(text)


def test_a_mark_stays_with_its_letter_where_a_long_run_is_cut():
    for length in range(505, 520):
        assert fold("я" * length + "е\u0308") == "я" * length + "ё"


@given(hostile)
def test_positions_index_the_text_that_was_searched(text):
    for token in find_anchors(text, names=True):
        assert 0 <= token.start < token.end <= len(text)
        assert token.text == text[token.start : token.end]


@given(hostile)
@example("\ufdfa AML-BSA-001")
def test_what_is_found_after_folded_text_is_where_it_stands(prefix):
    text = f"{prefix}\n(AML-BSA-777)"
    found = [token for token in find_claims(text) if token.key == "id:aml bsa 777"]
    assert [token.text for token in found] == ["AML-BSA-777"]


@given(hostile)
def test_a_text_holds_its_own_anchors(text):
    held = Held(text)
    for token in find_claims(text):
        assert held.has(token), token


@given(hostile, hostile)
def test_anchors_do_not_overlap_and_come_in_order(left, right):
    tokens = find_anchors(left + " $5 " + right, names=True)
    assert all(first.end <= second.start for first, second in pairwise(tokens))


@given(hostile)
def test_squashing_leaves_words_with_single_blanks(text):
    assert squash(text) == " ".join(squash(text).split())


# --- time -----------------------------------------------------------------------------------------------------------

PIECES = [
    "AML-BSA-001, 31 U.S.C. § 5324; GDPR Article 33 $1,234.56 ",
    "A", "A ", "a-", "A-", "AA-", "1", "1,", "1.", "1 ", "123 ", "$", "$1", "§ ", "(a) ", "§ 1 (a)(b)(c)(d)(e)(f)", " ",
    "\n", "\t", "u.s.c.", "article 1 ", "Article ", "Section 3", "policy-", "aml-a-", "aml_", "iso", "T1", "A0", "CC1.",
    "amld ", "Bank of the Policy ", "Bank of ", "The Act ", "of the ", "Act", "X" * 40 + " ", "money ", "data breach ",
    "\u0301", "\u0301\u0316", "\u200b", "\ufdfa", "ß", "\u2011", "９", "1e", "-1", "--", "2023-01-", "15 january ",
    "january 15 ", "1'000", "1 000 ", "usd ", "usd 1 ", "% ", "5 % ", "million ", "1 million ", "A1-", "a1.", "x_", "'",
    "A'", "A&",
]  # fmt: skip


def seconds(text):
    """Processor time, which other processes do not lengthen."""
    begin = time.process_time()
    find_anchors(text, names=True)
    Held(text).has(anchor("AML-BSA-001"))
    squash(text)
    return time.process_time() - begin


@pytest.mark.parametrize("piece", PIECES, ids=ascii)
def test_time_grows_with_the_length_and_not_with_its_square(piece):
    """Sixteen times the text costs about sixteen times the time; a square would be 256 times."""
    short, long = piece * (1_000 // len(piece)), piece * (16_000 // len(piece))
    seconds(short)
    base = max(min(seconds(short) for _ in range(3)), 1e-4)
    assert any(seconds(long) / base < 80 for _ in range(4))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join))
def test_no_mixture_of_pieces_is_slow(piece):
    assert seconds((piece * 10_000)[:10_000]) < 1.0


@pytest.mark.slow
@pytest.mark.parametrize("piece", PIECES, ids=ascii)
def test_a_megabyte_takes_seconds(piece):
    text = (piece * 1_000_000)[:1_000_000]
    begin = time.perf_counter()
    find_claims(text)
    assert time.perf_counter() - begin < 10
