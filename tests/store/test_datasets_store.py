"""Names and differences of datasets, the same on SQLite and PostgreSQL."""

from __future__ import annotations

import anyio
import pytest

from app.datasets.service import DatasetService
from app.store.database import Database
from layers.model import EvalExample

pytestmark = pytest.mark.anyio


def examples(*pairs: tuple[str, str]) -> list[EvalExample]:
    return [EvalExample(id=name, expected_label=label) for name, label in pairs]


async def test_a_diff_counts_and_lists_in_one_order(database: Database) -> None:
    """Whatever order the database gives texts, each example comes once on the pages, and the counts agree."""
    datasets = DatasetService(database, max_examples=100)
    names = ["B", "a", "_", "é", "10", "9", "a-b", "ab", "Z z", "z"]
    old = await datasets.add_examples(iter(examples(*((name, "low") for name in names[:8]))))
    new = await datasets.add_examples(iter(examples(*((name, "high" if name < "a" else "low") for name in names[2:]))))
    found, cursor = [], None
    while True:
        page = await datasets.diff(old.dataset_id, new.dataset_id, limit=2, cursor=cursor)
        found += [(item.id, item.change) for item in page.items]
        if (cursor := page.next_cursor) is None:
            break
    expected = {("B", "removed"), ("a", "removed"), ("Z z", "added"), ("z", "added")}
    expected |= {(name, "changed") for name in names[2:8] if name < "a"}
    assert (len(found), set(found)) == (len(expected), expected)
    assert page.counts.model_dump() == {"added": 2, "removed": 2, "changed": 3, "unchanged": 3}
    assert page.moved is False


async def test_a_later_page_of_a_diff_is_no_slower_than_the_first(database: Database) -> None:
    """Where nothing is in common, too: no row of one dataset is held against every row of the other."""
    datasets = DatasetService(database, max_examples=20_000)
    names = [[(f"{letter}{n}", "low") for n in range(15_000)] for letter in "ab"]
    old, new = [await datasets.add_examples(iter(examples(*some))) for some in names]
    first = await datasets.diff(old.dataset_id, new.dataset_id, limit=1)
    with anyio.fail_after(4):
        page = await datasets.diff(old.dataset_id, new.dataset_id, limit=1, cursor=first.next_cursor)
    assert [(item.id, item.change) for item in page.items] == [("a1", "removed")]


async def test_versions_of_a_name_are_counted_without_gaps(database: Database) -> None:
    """Many writers at once take numbers one after another, and none twice."""
    datasets = DatasetService(database, max_examples=100)
    added = [await datasets.add_examples(iter(examples((str(n), "x")))) for n in range(6)]
    async with anyio.create_task_group() as group:
        for one in added:
            group.start_soon(datasets.name, "golden", one.dataset_id)
    page = await datasets.versions("golden", limit=10)
    assert [row.version for row in page.items] == [6, 5, 4, 3, 2, 1]
    assert {row.dataset_id for row in page.items} == {one.dataset_id for one in added}
    assert [row.name for row in (await datasets.names(limit=5)).items] == ["golden"]
