"""Datasets from files: three formats, one result, and refusals that name the place."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.runs.dataset import (
    DuplicateExampleIds,
    EmptyDataset,
    Source,
    example_bytes,
    examples_of,
    format_of,
    load_dataset,
    parse_dataset,
    read_examples,
    with_ids,
)
from app.runs.parsing import DatasetError
from layers.model import EvalDataset, EvalExample, EvalPrediction

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
EXAMPLE = st.fixed_dictionaries(
    {
        "expected_label": TEXT.filter(bool),
        "input": st.dictionaries(TEXT, st.one_of(st.integers(), TEXT, st.lists(TEXT, max_size=3)), max_size=4),
    }
)


class Dribble(io.RawIOBase):
    """A file that gives a few bytes at a time and remembers how far it was read."""

    def __init__(self, data: bytes, size: int) -> None:
        self._data = io.BytesIO(data)
        self._size = size

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._data.read(self._size)

    def tell(self) -> int:
        return self._data.tell()


@given(st.lists(EXAMPLE, min_size=1, max_size=8), st.integers(1, 40), st.sampled_from([None, 2]), st.booleans())
def test_json_in_any_pieces_gives_the_same_examples(examples, size, indent, wrapped) -> None:
    """Where blocks end must not matter, not even inside a character or an escape."""
    value = {"examples": examples} if wrapped else examples
    data = json.dumps(value, indent=indent, ensure_ascii=bool(indent)).encode()
    read = list(read_examples(Source(Dribble(data, size), "json")))
    assert [(example.input, example.expected_label) for example in read] == [
        (example["input"], example["expected_label"]) for example in examples
    ]
    assert [example.id for example in read] == [str(position) for position in range(len(examples))]


@given(st.lists(EXAMPLE, min_size=1, max_size=8))
def test_ndjson_and_json_agree(examples) -> None:
    lines = "\n\n".join(json.dumps(example) for example in examples).encode()
    assert parse_dataset(lines, "ndjson") == parse_dataset(json.dumps(examples).encode(), "json")


@given(st.binary(max_size=80), st.sampled_from(["json", "ndjson", "csv"]))
def test_any_bytes_give_a_dataset_or_the_one_error(data, form) -> None:
    """Hostile files are refused and never crash the reader."""
    try:
        parsed = parse_dataset(data, form)
    except DatasetError as exc:
        exc.detail.encode()
    else:
        assert parsed.examples


def test_csv_columns_become_nested_fields() -> None:
    """A number is a number, text that only looks like one stays text, an empty cell is left out."""
    data = (
        "\ufeffexpected_label,id,group,input.amount,input.raw.code,input.ok,input.note\r\n"
        'high,t1,g1,12.50,007,true,"a, ""b""\nc"\r\n'
        "low,,,-3,x,,NaN\r\n"
    )
    first, second = parse_dataset(data.encode(), "csv").examples
    assert first.input == {"amount": 12.5, "raw": {"code": "007"}, "ok": True, "note": 'a, "b"\nc'}
    assert (first.id, first.group, first.expected_label) == ("t1", "g1", "high")
    assert (second.id, second.group, second.input) == ("1", None, {"amount": -3, "raw": {"code": "x"}, "note": "NaN"})


def test_csv_input_may_hold_json() -> None:
    (example,) = parse_dataset(b'input,expected_label\n"{""a"": [1]}",high\n', "csv").examples
    assert example.input == {"a": [1]}


@pytest.mark.parametrize("form", ["json", "ndjson", "csv"])
def test_a_byte_order_mark_is_accepted(form) -> None:
    data = {"json": '[{"expected_label": "x"}]', "ndjson": '{"expected_label": "x"}', "csv": "expected_label\nx\n"}
    assert parse_dataset(b"\xef\xbb\xbf" + data[form].encode(), form).examples[0].expected_label == "x"


GOOD = '{"expected_label": "x"}'
EMPTY = f'[{GOOD},\n{{"expected_label": ""}}]'
TWICE = f'[{GOOD},\n{{"a": 1, "a": 2}}]'


@pytest.mark.parametrize(
    ("form", "text", "pointer", "says"),
    [
        pytest.param(
            "json", f'[{GOOD},\n{{"expected_label": ""}}]', "/examples/1/expected_label", "line 2", id="empty-label"
        ),
        pytest.param(
            "json", f'[{GOOD},\n{{"a": 1, "a": 2}}]', "/examples/1/a", "line 2.*duplicate key", id="duplicate-key"
        ),
        pytest.param("json", f'[{GOOD}, {{"input": {{"a": NaN}}}}]', "/examples/1/input/a", "NaN", id="nan"),
        pytest.param("json", f'[{GOOD}, {{"input": {{"a": 1e400}}}}]', "/examples/1/input/a", "range", id="overflow"),
        pytest.param("json", '[{"input": {"a": "\\ud800"}}]', "/examples/0/input/a", "surrogate", id="surrogate"),
        pytest.param("json", '[{"input": {"a": "\\u0000"}}]', "/examples/0/input/a", "NUL", id="nul"),
        pytest.param("json", '[{"input": ' + "[" * 100_000, "/examples/0", "ends inside", id="deep-and-cut"),
        pytest.param("json", '[{"input": ' + "[" * 99 + "]" * 99 + "}]", "/examples/0", "deeper", id="deep"),
        pytest.param("json", f"[{GOOD} {GOOD}]", "/examples/0", "expected , or ]", id="no-comma"),
        pytest.param("json", f"[{GOOD}", "/examples/0", "expected , or ]", id="cut"),
        pytest.param("json", f"[{GOOD},]", "/examples/1", "object", id="trailing-comma"),
        pytest.param("json", f"[{GOOD}] x", "", "after the end", id="rest"),
        pytest.param("json", '[{"expected_label": "x"', "/examples/0", "ends inside", id="cut-inside"),
        pytest.param("json", "[1]", "/examples/0", "object", id="number"),
        pytest.param("json", '{"items": []}', "", "examples", id="other-object"),
        pytest.param("json", '{"examples": [' + GOOD + '], "more": 1}', "", "one field", id="more-fields"),
        pytest.param("json", "", "", "examples", id="no-text"),
        pytest.param("json", '[{"expected_label": "x", "expect": 1}]', "/examples/0/expect", "", id="unknown-field"),
        pytest.param("ndjson", f"{GOOD}\n\n{{bad\n", "/examples/1", "line 3", id="ndjson-syntax"),
        pytest.param("ndjson", f"{GOOD}\n[1]\n", "/examples/1", "line 2.*object", id="ndjson-list"),
        pytest.param("csv", "id,input.a\n1,2\n", "", "no column expected_label", id="csv-missing-column"),
        pytest.param("csv", "expected_label,label\nx,y\n", "", "unknown column 'label'", id="csv-unknown-column"),
        pytest.param("csv", "expected_label,id,id\nx,1,1\n", "", "twice", id="csv-column-twice"),
        pytest.param("csv", "expected_label,input.a,input.a.b\nx,1,2\n", "", "both", id="csv-value-and-object"),
        pytest.param("csv", "expected_label,id\nx,1\ny\n", "/examples/1", "line 3.*1 cells", id="csv-short-row"),
        pytest.param("csv", "expected_label,id\n,1\n", "/examples/0/expected_label", "line 2", id="csv-empty-label"),
        pytest.param("csv", "expected_label,input.a\nx,1e400\n", "/examples/0/input/a", "range", id="csv-overflow"),
        pytest.param("csv", "expected_label,input.a\nx,a\0b\n", "/examples/0/input/a", "NUL", id="csv-nul"),
        pytest.param("csv", 'expected_label,input.a\nx,"a\n', "", "CSV", id="csv-open-quote"),
    ],
)
def test_refusals_name_the_place(form, text, pointer, says) -> None:
    """For programs by pointer, for people by line and sentence."""
    with pytest.raises(DatasetError, match=rf"(?s){says}") as caught:
        parse_dataset(text.encode(), form)
    assert caught.value.errors[0].pointer == pointer


@pytest.mark.parametrize("form", ["json", "ndjson", "csv"])
def test_undecodable_bytes_are_refused(form) -> None:
    data = {
        "json": b'[{"expected_label": "\xff"}]',
        "ndjson": b'{"expected_label": "\xff"}',
        "csv": b"expected_label\n\xff\n",
    }
    with pytest.raises(DatasetError, match="UTF-8"):
        parse_dataset(data[form], form)


@pytest.mark.parametrize(
    ("form", "text"), [("json", "[]"), ("json", '{"examples": [ ]}'), ("ndjson", " \n\n"), ("csv", "expected_label\n")]
)
def test_an_empty_dataset_is_refused(form, text) -> None:
    with pytest.raises(EmptyDataset):
        parse_dataset(text.encode(), form)


def test_duplicate_ids_are_listed_and_counted() -> None:
    """Twenty are named, the rest is a number; a default id can clash with a given one."""
    examples = [{"id": f"d{n}", "expected_label": "x"} for n in range(30)] * 2
    with pytest.raises(DuplicateExampleIds, match=r"'d0'.*and 10 more") as caught:
        parse_dataset(json.dumps(examples).encode(), "json")
    assert len(caught.value.errors) == 20
    with pytest.raises(DuplicateExampleIds, match="'1'"):
        parse_dataset(b'[{"id": "1", "expected_label": "x"}, {"expected_label": "x"}]', "json")


def test_reading_stays_behind_the_file() -> None:
    """An example is there before the rest of a large file was read."""
    one = json.dumps({"expected_label": "x", "input": {"text": "y" * 1000}})
    data = ("[" + ",".join([one] * 1000) + "]").encode()
    file = io.BytesIO(data)
    next(read_examples(Source(file, "json")))
    assert file.tell() < len(data) / 5


def test_more_examples_than_allowed_are_refused_on_the_way() -> None:
    source = Source(io.BytesIO(b'{"expected_label": "x"}\n' * 5), "ndjson")
    with pytest.raises(DatasetError, match="at most 3"):
        list(read_examples(source, max_examples=3))


def test_a_recorded_prediction_takes_the_examples_id() -> None:
    """A prediction that names no id belongs to its example."""
    text = b'[{"id": "t", "expected_label": "x", "prediction": {"raw_output": {}, "label": "x", "confidence": 1}}]'
    (example,) = parse_dataset(text, "json").examples
    assert example.prediction is not None
    assert example.prediction.id == "t"


def test_fields_left_out_do_not_change_the_bytes() -> None:
    """The same content has the same hash, whether a default was written out or not."""
    short = parse_dataset(b'[{"expected_label": "x"}]', "json").examples[0]
    long = parse_dataset(
        b'[{"id": "0", "input": {}, "expected_label": "x", "group": null, "metadata": {}, "prediction": null}]', "json"
    ).examples[0]
    assert example_bytes(short) == example_bytes(long) == b'{"expected_label":"x","id":"0","input":{}}'


def test_the_ending_tells_the_format(tmp_path) -> None:
    assert [format_of(name) for name in ("a.json", "A.NDJSON", "b.jsonl", "c.csv")] == [
        "json",
        "ndjson",
        "ndjson",
        "csv",
    ]
    with pytest.raises(DatasetError, match="ends in"):
        format_of("dataset.parquet")
    path = tmp_path / "set.csv"
    path.write_text("expected_label\nhigh\n")
    assert load_dataset(path).examples[0].expected_label == "high"


@pytest.mark.parametrize("form", ["json", "ndjson", "csv"])
def test_a_prediction_of_another_example_is_refused(form) -> None:
    """Whatever was said of another item is not scored under this one's name."""
    prediction = {"id": "b", "raw_output": {}, "label": "x", "confidence": 1}
    quoted = json.dumps(prediction).replace('"', '""')
    text = {
        "json": json.dumps([{"id": "a", "expected_label": "x", "prediction": prediction}]),
        "ndjson": json.dumps({"id": "a", "expected_label": "x", "prediction": prediction}),
        "csv": f'id,expected_label,prediction\na,x,"{quoted}"\n',
    }[form]
    with pytest.raises(DatasetError, match="the prediction 'b' is not of the example 'a'") as caught:
        parse_dataset(text.encode(), form)
    assert caught.value.errors[0].pointer == "/examples/0/prediction/id"


def test_an_example_without_id_lends_its_position_to_its_prediction() -> None:
    """It named no id that its prediction's could contradict."""
    prediction = EvalPrediction(id="b", raw_output={}, label="x", confidence=1)
    nameless = EvalExample(expected_label="x", prediction=prediction)
    (read,) = examples_of([nameless.model_dump()])
    (numbered,) = with_ids(EvalDataset(examples=(nameless,)))
    assert read == numbered
    assert (read.id, read.prediction.id) == ("0", "0")
