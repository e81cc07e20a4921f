"""The words of datasets: what is stored, under which names, and how two of them differ."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, StringConstraints

from layers.model import JsonObject, Label, Value

DatasetName: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
DatasetId: TypeAlias = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
Change: TypeAlias = Literal["added", "removed", "changed"]
Form: TypeAlias = Literal["ndjson", "csv", "parquet"]


class DatasetVersion(Value):
    """One version of a name; versions count from 1 and never change."""

    name: str
    version: int
    dataset_id: str
    created_at: str


class NamedDataset(DatasetVersion):
    """A name as it stands: its newest version."""

    n_examples: int


class DatasetLinks(Value):
    """Where the rest of a dataset is."""

    examples: str


class Dataset(Value):
    """A stored dataset. `names`: the versions that point at it, newest first, at most a hundred."""

    dataset_id: str
    n_examples: int
    created_at: str
    names: tuple[DatasetVersion, ...]
    links: DatasetLinks


class AddedDataset(Dataset):
    """What became of an upload. `created` False = the content was there already; `version` null = it was not named."""

    created: bool
    version: DatasetVersion | None


class StoredExample(Value):
    """An example as it is stored: it always has an id, and what was left out is left out."""

    id: str
    input: JsonObject
    expected_label: Label
    expected_labels: dict[str, Label] | None = None
    prediction: JsonObject | None = None
    group: str | None = None
    metadata: JsonObject | None = None


class ExampleChange(Value):
    """One example that differs. `fields`: of a changed one, the fields that are not the same, top level only."""

    id: str
    change: Change
    fields: tuple[str, ...] = ()


class DiffCounts(Value):
    """How many examples there are of each kind; the sum without `removed` is the size of the second dataset."""

    added: int
    removed: int
    changed: int
    unchanged: int


class DatasetDiff(Value):
    """The way from one dataset to another, example by example, paired by id; items stand in the order of their ids.

    `moved`: the same examples stand in another order where both have them.
    """

    from_id: str
    to_id: str
    counts: DiffCounts
    moved: bool
    items: tuple[ExampleChange, ...]
    next_cursor: str | None


class NameRequest(Value):
    """Which stored dataset a name shall point at."""

    dataset_id: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]


def links_of(dataset_id: str) -> DatasetLinks:
    """A dataset's own addresses, relative to the service."""
    return DatasetLinks(examples=f"/datasets/{dataset_id}/examples")


def changed_fields(before: dict[str, Any], after: dict[str, Any]) -> tuple[str, ...]:
    """The top-level fields in which two examples differ, by name."""
    names = sorted(before.keys() | after.keys())
    return tuple(name for name in names if before.get(name) != after.get(name) or (name in before) != (name in after))
