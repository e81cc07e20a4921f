"""CSV datasets: no way around the limits, no more work than the file is long, and a lossless way out and back in."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.datasets.export import csv_text
from app.runs.dataset import Source, example_bytes, parse_dataset, read_examples
from app.runs.parse_csv import MAX_COLUMNS, read_csv
from app.runs.parsing import MAX_EXAMPLE, DatasetError
from layers.canonical import canonical_bytes
from layers.model import EvalExample, EvalPrediction
from layers.strict_json import DEFAULT_MAX_DEPTH

pytestmark = pytest.mark.anyio

# --- limits -----------------------------------------------------------------------------------------------------------


def test_a_path_may_be_as_deep_as_the_same_example_in_json_may_be() -> None:
    """What CSV takes can be written as NDJSON and read back."""
    path = ".".join(["input", *"a" * (DEFAULT_MAX_DEPTH - 1)])
    (one,) = parse_dataset(f"expected_label,{path}\nx,1\n".encode(), "csv").examples
    assert example_bytes(parse_dataset(example_bytes(one), "ndjson").examples[0]) == example_bytes(one)


@pytest.mark.parametrize("keys", [DEFAULT_MAX_DEPTH, 900, 1000, 100_000])
@pytest.mark.parametrize("prefix", ["input", "metadata"])
def test_a_path_that_is_deeper_is_refused_and_named(prefix: str, keys: int) -> None:
    data = f"expected_label,{prefix}.{'.'.join('a' * keys)}\nx,1\n".encode()
    with pytest.raises(DatasetError, match=rf"column '{prefix}\.a\.a.*nested deeper than 64 levels"):
        parse_dataset(data, "csv")


@pytest.mark.parametrize("column", ["input", "metadata", "prediction", "expected_labels"])
def test_json_in_a_cell_is_no_deeper_than_in_json(column: str) -> None:
    """The example around the cell is a level too: 63 are left for what is in it."""
    deep = '{"a":' * DEFAULT_MAX_DEPTH + "1" + "}" * DEFAULT_MAX_DEPTH
    file = io.StringIO()
    csv.writer(file).writerows([["expected_label", column], ["x", deep]])
    with pytest.raises(DatasetError, match="nested deeper") as caught:
        parse_dataset(file.getvalue().encode(), "csv")
    assert caught.value.errors[0].pointer == f"/examples/0/{column}"


def test_a_header_has_so_many_columns_and_no_more() -> None:
    found = parse_dataset(wide(MAX_COLUMNS), "csv").examples[0].input
    assert len(found) - 1 + len(found["o"]) == MAX_COLUMNS - 1
    with pytest.raises(DatasetError, match="20,000 columns; there may be at most 1,000"):
        parse_dataset(wide(20_000), "csv")


def test_a_columns_name_is_bounded() -> None:
    with pytest.raises(DatasetError, match="more than 512 characters"):
        parse_dataset(f"expected_label,input.{'a' * 600}\nx,1\n".encode(), "csv")


def test_a_cell_may_be_as_long_as_an_example_and_a_row_too() -> None:
    """As in the other forms, wherever the row's lines end."""
    long = "a" * 1_000_000
    assert parse_dataset(f"expected_label,input.a\nx,{long}\n".encode(), "csv").examples[0].input == {"a": long}
    for filler in ("a", "\n"):
        rest = filler * (MAX_EXAMPLE + 1)
        with pytest.raises(DatasetError, match=f"a row has more than {MAX_EXAMPLE} characters"):
            parse_dataset(f'expected_label,input.a\nx,"{rest}"\n'.encode(), "csv")


# --- work -------------------------------------------------------------------------------------------------------------


def wide(columns: int) -> bytes:
    """One row; each second column lies inside an object that several share."""
    names = ["expected_label", *(f"input.{'o.' if n % 2 else ''}k{n}" for n in range(columns - 1))]
    return f"{','.join(names)}\n{','.join('1' * columns)}\n".encode()


def steps(data: bytes) -> int:
    """Calls made while a file is read: a measure of work that no busy machine changes."""
    count = 0

    def see(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(see)
    try:
        list(read_csv(io.BytesIO(data)))
    finally:
        sys.setprofile(None)
    return count


def test_the_work_for_a_header_grows_as_its_length_does() -> None:
    """Twice the columns, twice the steps: also where a value and an object of one name are looked for."""
    steps(wide(10))
    assert steps(wide(1000)) < 2.2 * steps(wide(500)) < 2.2 * 2.2 * steps(wide(250))


# --- the way back -----------------------------------------------------------------------------------------------------

RISKY = st.text("=+-@\t\r\n'\"＝1a, ", max_size=6)
TEXT = st.one_of(RISKY, st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20))
OBJECT = st.dictionaries(TEXT, st.one_of(TEXT, st.integers(), st.none(), st.booleans()), max_size=3)


def full(name: str, label: str, group: str | None, axes: dict[str, str] | None, inner: dict) -> EvalExample:
    return EvalExample(
        id=name,
        expected_label=label,
        group=group,
        expected_labels=axes,
        input=inner,
        metadata=inner,
        prediction=EvalPrediction(id=name, raw_output=inner, label=label, confidence=0.5) if inner else None,
    )


EXAMPLES = st.builds(
    full,
    TEXT.filter(bool),
    TEXT.filter(bool),
    st.none() | TEXT,
    st.none() | st.dictionaries(TEXT.filter(bool), TEXT.filter(bool), max_size=2),
    OBJECT,
)


async def exported(examples: Sequence[EvalExample]) -> bytes:
    async def batches() -> AsyncIterator[list[bytes]]:
        yield [example_bytes(one) for one in examples]

    return b"".join([piece async for piece in csv_text(batches())])


@given(st.lists(EXAMPLES, min_size=1, max_size=5))
@example([full("'", "+1", "", {}, {}), full("''=1", "'+1", "'", None, {"'": "=1"})])
async def test_an_exported_dataset_comes_back_as_it_was(examples: list[EvalExample]) -> None:
    """Byte for byte, whatever its texts begin with: so its hash and every figure stay the same."""
    back = read_examples(Source(io.BytesIO(await exported(examples)), "csv"))
    assert [example_bytes(one) for one in back] == [example_bytes(one) for one in examples]


@given(TEXT.filter(bool))
async def test_no_cell_of_an_export_runs_in_a_spreadsheet(text: str) -> None:
    """A plain number is no formula."""
    for row in csv.reader(io.StringIO((await exported([full(text, text, text, None, {})])).decode(), newline="")):
        for cell in row:
            if cell[:1] in set("=+-@\t\r\n＝＋－＠") - {""}:
                float(cell)


def test_a_file_that_is_not_ours_keeps_its_apostrophes() -> None:
    """They are undone only where the header says that they were put there."""
    (one,) = parse_dataset(b"expected_label,input.a\n'+1,'x\n", "csv").examples
    assert (one.expected_label, one.input) == ("'+1", {"a": "'x"})


def test_with_the_mark_one_apostrophe_is_taken_off_in_every_column() -> None:
    """What had one is text, even where it looks like a number."""
    data = "expected_label,id,input.a,input.b,csv_quoting=apostrophe\n'+1,''x,'1,1,\n"
    (one,) = parse_dataset(data.encode(), "csv").examples
    assert (one.expected_label, one.id, one.input) == ("+1", "'x", {"a": "1", "b": 1})


@pytest.mark.parametrize("header", ["csv_quoting", "csv_quoting=none", "csv_quoting.a"])
def test_an_unknown_quoting_is_refused(header: str) -> None:
    with pytest.raises(DatasetError, match="csv_quoting=apostrophe"):
        parse_dataset(f"expected_label,{header}\nx,\n".encode(), "csv")


def test_the_column_that_tells_of_quoting_holds_nothing() -> None:
    with pytest.raises(DatasetError, match="must be empty"):
        parse_dataset(b"expected_label,csv_quoting=apostrophe\nx,1\n", "csv")


def test_canonical_bytes_are_what_is_compared() -> None:
    """The oracle of the round trip: two examples that differ have other bytes."""
    one, other = full("a", "b", "", None, {}), full("a", "b", None, None, {})
    assert example_bytes(one) != example_bytes(other)
    assert json.loads(example_bytes(one)) == json.loads(canonical_bytes(json.loads(example_bytes(one))))
