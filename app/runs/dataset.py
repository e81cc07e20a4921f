"""Labelled datasets: from a file or decoded JSON to validated examples with ids."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from app.errors import FieldError
from app.runs.parse_csv import read_csv
from app.runs.parse_json import read_json
from app.runs.parsing import DatasetError, Raw, bad, read_ndjson
from layers.canonical import canonical_bytes
from layers.model import EvalDataset, EvalExample, JsonObject

M = TypeVar("M", bound=BaseModel)

Format: TypeAlias = Literal["json", "ndjson", "csv"]

MAX_LISTED = 20
"""Duplicate ids that an error lists; the rest is a number."""

_READERS: dict[Format, Callable[[BinaryIO], Iterator[Raw]]] = {
    "json": read_json,
    "ndjson": read_ndjson,
    "csv": read_csv,
}
_SUFFIXES: dict[str, Format] = {".json": "json", ".ndjson": "ndjson", ".jsonl": "ndjson", ".csv": "csv"}


class EmptyDataset(DatasetError):
    """There is nothing to run."""

    def __init__(self) -> None:
        super().__init__("the dataset has no examples", [FieldError("/examples", "must not be empty")])


class DuplicateExampleIds(DatasetError):
    """Two examples share an id, so that their records could not be told apart. `ids` holds some of them."""

    def __init__(self, ids: Iterable[str], count: int) -> None:
        self.ids = tuple(ids)[:MAX_LISTED]
        more = f" and {count - len(self.ids)} more" if count > len(self.ids) else ""
        shown = ", ".join(repr(text[:80]) for text in self.ids)
        super().__init__(
            f"example ids must be unique; these are not: {shown}{more}",
            [FieldError("/examples", f"duplicate id {text[:80]!r}") for text in self.ids],
        )


class UnreadableExample(DatasetError):
    """A stored example is not what this version takes: too deep, say, from before that was refused."""


@dataclass(frozen=True, slots=True)
class Source:
    """A dataset file, read once from its position to its end, in blocks."""

    file: BinaryIO
    format: Format


def format_of(name: str) -> Format:
    """The format that a file name's ending stands for. Raises `DatasetError` for one that is not read."""
    try:
        return _SUFFIXES[Path(name).suffix.lower()]
    except KeyError:
        raise DatasetError(f"a dataset file ends in {', '.join(_SUFFIXES)}") from None


def read_examples(source: Source, *, max_examples: int | None = None) -> Iterator[EvalExample]:
    """Validated examples in file order, one at a time; an example without id gets its position.

    Raises `DatasetError` at the first example that is wrong, `EmptyDataset` at the end of a file without any.
    Duplicate ids are left to the caller, who knows how to remember a million of them.
    """
    return _validated(_READERS[source.format](source.file), max_examples)


def examples_of(value: Any, *, max_examples: int | None = None) -> Iterator[EvalExample]:
    """The same from decoded JSON: `{"examples": [...]}` or a list."""
    if isinstance(value, dict):
        if set(value) != {"examples"}:
            raise DatasetError('a dataset has the one field "examples"')
        value = value["examples"]
    if not isinstance(value, list):
        raise DatasetError("the examples must be a list", [FieldError("/examples", "must be a list")])
    return _validated((Raw(item, None) for item in value), max_examples)


def with_ids(dataset: EvalDataset) -> Iterator[EvalExample]:
    """The examples of a validated dataset, each with an id."""
    if not dataset.examples:
        raise EmptyDataset
    for position, example in enumerate(dataset.examples):
        yield example if example.id is not None else _numbered(example, str(position))


def _numbered(example: EvalExample, name: str) -> EvalExample:
    """An example that named none, and so contradicts no id of its prediction, under its position."""
    prediction = example.prediction
    own = None if prediction is None else prediction.model_copy(update={"id": name})
    return example.model_copy(update={"id": name, "prediction": own})


def load_dataset(source: Source | Path) -> EvalDataset:
    """A whole dataset in memory. Raises `DatasetError`, and for a path `OSError`."""
    if isinstance(source, Path):
        with source.open("rb") as file:
            return load_dataset(Source(file, format_of(source.name)))
    examples = tuple(read_examples(source))
    check_unique(example.id or "" for example in examples)
    return EvalDataset(examples=examples)


def parse_dataset(data: bytes, form: Format) -> EvalDataset:
    """A whole dataset from bytes. Raises `DatasetError`."""
    return load_dataset(Source(io.BytesIO(data), form))


def check_unique(ids: Iterable[str]) -> None:
    """Raise `DuplicateExampleIds` unless all ids differ."""
    seen: set[str] = set()
    twice: dict[str, None] = {}
    for text in ids:
        if text in seen:
            twice[text] = None
        seen.add(text)
    if twice:
        raise DuplicateExampleIds(twice, len(twice))


def read_stored(data: bytes, position: int, model: type[M]) -> M:
    """An example as it is stored at `position` of its dataset. Raises `UnreadableExample`."""
    try:
        return model.model_validate_json(data)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False, include_context=False)[0]
        message = first["msg"].removeprefix("Value error, ")[:200]
        detail = f"the stored example at position {position} can't be read: {message}; as NDJSON it is had as it stands"
        raise UnreadableExample(detail, [FieldError(f"/examples/{position}", message)]) from None


def example_bytes(example: EvalExample) -> bytes:
    """The canonical bytes of an example that is stored and hashed; fields left out stay out."""
    value: JsonObject = {"id": example.id, "input": example.input, "expected_label": example.expected_label}
    if example.expected_labels is not None:
        value["expected_labels"] = example.expected_labels
    if example.prediction is not None:
        value["prediction"] = example.prediction.model_dump()
    if example.group is not None:
        value["group"] = example.group
    if example.metadata:
        value["metadata"] = example.metadata
    return canonical_bytes(value)


def _validated(raws: Iterator[Raw], max_examples: int | None) -> Iterator[EvalExample]:
    position = -1
    for position, raw in enumerate(raws):
        if max_examples is not None and position >= max_examples:
            raise DatasetError(f"a dataset may have at most {max_examples} examples")
        yield _example(raw, position)
    if position < 0:
        raise EmptyDataset


def _example(raw: Raw, position: int) -> EvalExample:
    value = raw.value
    if not isinstance(value, dict):
        raise DatasetError("an example must be a JSON object", [FieldError(f"/examples/{position}", "not an object")])
    prediction = value.get("prediction")
    if isinstance(prediction, dict) and "id" not in prediction:
        name = str(position) if value.get("id") is None else value["id"]
        value = {**value, "prediction": {**prediction, "id": name}}
    try:
        example = EvalExample.model_validate(value)
    except ValidationError as exc:
        raise _explain(exc, raw, position) from None
    if example.id is None:
        return _numbered(example, str(position))
    if example.prediction is not None and example.prediction.id != example.id:
        raise _foreign(example.prediction.id, example.id, raw, position)
    return example


def _foreign(given: str, name: str, raw: Raw, position: int) -> DatasetError:
    message = f"the prediction {given[:80]!r} is not of the example {name[:80]!r}: give it the same id, or none"
    return bad(message, pointer=f"/examples/{position}/prediction/id", line=raw.line)


def _explain(exc: ValidationError, raw: Raw, position: int) -> DatasetError:
    where = f"line {raw.line}: " if raw.line is not None else ""
    errors = [
        FieldError("/".join(["", "examples", str(position), *map(_token, error["loc"])]), where + error["msg"])
        for error in exc.errors(include_url=False, include_input=False, include_context=False)
    ]
    first = errors[0]
    return DatasetError(f"example {position} is not valid: {first.pointer}: {first.message}", errors[:MAX_LISTED])


def _token(part: int | str) -> str:
    return str(part).replace("~", "~0").replace("/", "~1")
