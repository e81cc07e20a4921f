"""Datasets over HTTP and in the service: stored once, named, compared, read in every form."""

from __future__ import annotations

import io
import json
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pyarrow.parquet as pq
import pytest
from sqlalchemy import func, select, update

from app.datasets.service import DatasetService
from app.runs.dataset import UnreadableExample, read_examples
from app.runs.dataset_store import BATCH
from app.runs.tables import dataset_examples
from app.settings import StoreSettings
from app.store.database import Database
from layers.canonical import sha256_of
from layers.model import EvalExample
from tests.runs import Scripted, ended, request, run_service

pytestmark = pytest.mark.anyio

NDJSON, CSV, PARQUET = "application/x-ndjson", "text/csv", "application/vnd.apache.parquet"
UNKNOWN = "sha256:" + "0" * 64


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = await Database.open(StoreSettings(url=f"sqlite:///{tmp_path}/store.db"))
    yield opened
    await opened.close()


@pytest.fixture
async def datasets(database: Database) -> DatasetService:
    return DatasetService(database, max_examples=10_000)


@pytest.fixture
async def http(api, datasets: DatasetService) -> AsyncIterator[httpx.AsyncClient]:
    async with api(datasets=datasets) as client:
        yield client


def lines(*examples: dict) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in examples)


def example(name: str, label: str = "low", **fields: object) -> dict:
    return {"id": name, "input": {"amount": 1}, "expected_label": label, **fields}


async def stored(http: httpx.AsyncClient, *examples: dict, name: str | None = None) -> dict:
    params = {"name": name} if name else {}
    response = await http.post("/datasets", content=lines(*examples), headers={"content-type": NDJSON}, params=params)
    assert response.status_code in {200, 201}, response.text
    return response.json()


# --- storing ----------------------------------------------------------------------------------------------------------


async def test_the_same_content_is_stored_once_whatever_form_it_came_in(http: httpx.AsyncClient, database) -> None:
    """JSON, NDJSON, CSV, as the body or in a form: one dataset, and only the first post says that it was made."""
    both = [example("a"), example("b", "high")]
    table = b"id,expected_label,input.amount\na,low,1\nb,high,1\n"
    responses = [
        await http.post("/datasets", json={"examples": both}),
        await http.post("/datasets", content=lines(*both), headers={"content-type": NDJSON}),
        await http.post("/datasets", content=table, headers={"content-type": CSV}),
        await http.post("/datasets", files={"dataset": ("d.json", json.dumps(both))}),
        await http.post("/datasets", files={"dataset": ("d.csv", table)}),
    ]
    assert [response.status_code for response in responses] == [201, 200, 200, 200, 200]
    assert len({response.json()["dataset_id"] for response in responses}) == 1
    assert [response.json()["created"] for response in responses] == [True, False, False, False, False]
    assert responses[0].headers["location"] == f"/datasets/{responses[0].json()['dataset_id']}"
    assert await database.read(lambda conn: conn.scalar(select(func.count()).select_from(dataset_examples))) == 2


async def test_a_run_takes_a_stored_dataset_by_its_hash(database: Database, datasets: DatasetService) -> None:
    added = await datasets.add_examples(iter([EvalExample(id="a", expected_label="high")]))
    async with run_service(database, Scripted()) as runs:
        run = await ended(runs, (await runs.submit(request(dataset_id=added.dataset_id))).run_id)
    assert (run.dataset_id, run.progress.n_scored) == (added.dataset_id, 1)


@pytest.mark.parametrize(
    ("content", "content_type", "kind"),
    [
        (b"", NDJSON, "empty-dataset"),
        (b'{"id": "a"}', NDJSON, "invalid-dataset"),
        (lines(example("a"), example("a")), NDJSON, "duplicate-example-id"),
        (b'{"examples": [', "application/json", "invalid-dataset"),
        (b"id\na\n", CSV, "invalid-dataset"),
        (b"x" * 300_000, NDJSON, "too-large"),
        (b"{}", "text/plain", "unsupported-media-type"),
    ],
)
async def test_a_bad_dataset_is_a_problem_and_leaves_nothing(
    http: httpx.AsyncClient, content: bytes, content_type: str, kind: str
) -> None:
    response = await http.post("/datasets", content=content, headers={"content-type": content_type})
    assert response.json()["type"] == f"/problems/{kind}", response.text
    assert (await http.get("/datasets")).json()["items"] == []


async def test_a_form_with_another_part_is_refused(http: httpx.AsyncClient) -> None:
    files = {"dataset": ("d.ndjson", lines(example("a"))), "request": (None, "{}")}
    response = await http.post("/datasets", files=files)
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, "/request")


async def test_a_stream_is_stored_without_holding_it(datasets: DatasetService, tmp_path: Path) -> None:
    """Examples are taken from the source as they are written: never more than one batch is ahead of the store."""
    ahead: list[int] = []

    def many() -> Iterator[EvalExample]:
        with closing(sqlite3.connect(tmp_path / "store.db", check_same_thread=False)) as look:
            for number in range(5_000):
                if number % 100 == 0:
                    (stored,) = look.execute("SELECT count(*) FROM dataset_examples").fetchone()
                    ahead.append(number - stored)
                yield EvalExample(id=str(number), expected_label="x")

    added = await datasets.add_examples(many())
    assert added.n_examples == 5_000
    assert max(ahead) <= BATCH <= 1_000


# --- names ------------------------------------------------------------------------------------------------------------


async def test_a_name_counts_its_versions(http: httpx.AsyncClient) -> None:
    """A new version needs other content than the newest one has; the same post again adds nothing."""
    one = await stored(http, example("a"), name="golden")
    again = await stored(http, example("a"), name="golden")
    two = await stored(http, example("b"), name="golden")
    assert [made["version"]["version"] for made in (one, again, two)] == [1, 1, 2]
    page = (await http.get("/datasets/names/golden")).json()
    assert [(row["version"], row["dataset_id"]) for row in page["items"]] == [
        (2, two["dataset_id"]),
        (1, one["dataset_id"]),
    ]
    back = await http.post("/datasets/names/golden", json={"dataset_id": one["dataset_id"]})
    assert (back.status_code, back.json()["version"]) == (201, 3)
    assert (await http.post("/datasets/names/golden", json={"dataset_id": one["dataset_id"]})).status_code == 200
    names = (await http.get("/datasets/names")).json()["items"]
    assert [(row["name"], row["version"], row["n_examples"]) for row in names] == [("golden", 3, 1)]
    found = (await http.get(f"/datasets/{one['dataset_id']}")).json()
    assert sorted(row["version"] for row in found["names"]) == [1, 3]


async def test_lists_are_paged_by_cursor(http: httpx.AsyncClient) -> None:
    for letter in "abc":
        await stored(http, example(letter), name=f"n-{letter}")
        await stored(http, example(letter), name="all")
    for path, key, expected in (
        ("/datasets", "n_examples", [1, 1, 1]),
        ("/datasets/names", "name", ["all", "n-a", "n-b", "n-c"]),
        ("/datasets/names/all", "version", [3, 2, 1]),
    ):
        found, cursor = [], None
        while True:
            page = (await http.get(path, params={"limit": 1, **({"cursor": cursor} if cursor else {})})).json()
            found += [row[key] for row in page["items"]]
            if (cursor := page["next_cursor"]) is None:
                break
        assert found == expected
    assert (await http.get("/datasets", params={"cursor": "x"})).status_code == 400


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"/datasets/{UNKNOWN}"),
        ("GET", "/datasets/latest"),
        ("GET", f"/datasets/{UNKNOWN}/examples"),
        ("GET", f"/datasets/{UNKNOWN}/diff/{UNKNOWN}"),
        ("GET", "/datasets/names/none"),
        ("GET", "/datasets/names/%00"),
        ("POST", "/datasets/names/none"),
    ],
)
async def test_what_is_not_there_is_not_found(http: httpx.AsyncClient, method: str, path: str) -> None:
    body = {"json": {"dataset_id": UNKNOWN}} if method == "POST" else {}
    assert (await http.request(method, path, **body)).status_code == 404


@pytest.mark.parametrize("name", ["", "a b", "-a", "x" * 129, "ä", "a/b"])
async def test_a_name_is_plain(http: httpx.AsyncClient, name: str) -> None:
    response = await http.post(
        "/datasets", content=lines(example("a")), headers={"content-type": NDJSON}, params={"name": name}
    )
    assert response.status_code == 400
    assert (await http.get("/datasets")).json()["items"] == []


# --- reading ----------------------------------------------------------------------------------------------------------

FULL = [
    example("a", group="g", metadata={"day": "mon"}, expected_labels={"risk": "low"}),
    example(
        "b", "high", prediction={"id": "b", "raw_output": {"x": [1, 2.5, "ü|\n,"]}, "label": "low", "confidence": 0.25}
    ),
    {"expected_label": "no id, 日本"},
]


async def read(http: httpx.AsyncClient, dataset: dict, accept: str) -> httpx.Response:
    response = await http.get(dataset["links"]["examples"], headers={"accept": accept})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith(accept)
    return response


async def test_ndjson_holds_the_bytes_that_were_hashed(http: httpx.AsyncClient) -> None:
    added = await stored(http, *FULL)
    assert sha256_of((await read(http, added, NDJSON)).content) == added["dataset_id"]


@pytest.mark.parametrize("form", [NDJSON, CSV])
async def test_what_was_read_can_be_stored_again_as_the_same_dataset(http: httpx.AsyncClient, form: str) -> None:
    added = await stored(http, *FULL)
    content = (await read(http, added, form)).content
    again = await http.post("/datasets", content=content, headers={"content-type": form})
    assert (again.status_code, again.json()["dataset_id"]) == (200, added["dataset_id"])


async def test_parquet_has_a_column_for_each_field(http: httpx.AsyncClient) -> None:
    added = await stored(http, *FULL)
    table = pq.read_table(io.BytesIO((await read(http, added, PARQUET)).content))
    rows = table.to_pylist()
    assert [row["id"] for row in rows] == ["a", "b", "2"]
    assert json.loads(rows[1]["prediction"])["raw_output"] == {"x": [1, 2.5, "ü|\n,"]}
    assert (rows[0]["group"], rows[1]["group"], rows[2]["expected_label"]) == ("g", None, "no id, 日本")


async def test_a_csv_cell_is_no_formula(http: httpx.AsyncClient) -> None:
    added = await stored(http, example("=1+1"))
    assert "\n'=1+1," in (await read(http, added, CSV)).text.replace("\r", "")


async def test_without_its_extra_parquet_is_refused_and_says_why(api, database: Database) -> None:
    datasets = DatasetService(database, max_examples=10, with_parquet=False)
    added = await datasets.add_examples(iter([EvalExample(id="a", expected_label="x")]))
    async with api(datasets=datasets) as http:
        response = await http.get(added.links.examples, headers={"accept": PARQUET})
    assert response.status_code == 406
    assert "arbiter-l8[parquet]" in response.json()["detail"]


async def test_pages_of_examples_go_through_all_of_them(http: httpx.AsyncClient) -> None:
    added = await stored(http, *(example(str(n)) for n in range(7)))
    ids, cursor = [], None
    while True:
        params = {"limit": 3, **({"cursor": cursor} if cursor else {})}
        page = (await http.get(added["links"]["examples"], params=params)).json()
        ids += [row["id"] for row in page["items"]]
        if (cursor := page["next_cursor"]) is None:
            break
    assert ids == [str(n) for n in range(7)]


# --- comparing --------------------------------------------------------------------------------------------------------


async def test_a_diff_names_what_was_added_removed_and_changed(http: httpx.AsyncClient) -> None:
    old = await stored(http, example("a"), example("b"), example("c"), example("d"))
    new = await stored(http, example("e"), example("d"), example("c", "high"), example("b", input={"amount": 2}))
    diff = (await http.get(f"/datasets/{old['dataset_id']}/diff/{new['dataset_id']}")).json()
    assert diff["counts"] == {"added": 1, "removed": 1, "changed": 2, "unchanged": 1}
    assert diff["moved"] is True
    assert [(row["id"], row["change"], row["fields"]) for row in diff["items"]] == [
        ("a", "removed", []),
        ("b", "changed", ["input"]),
        ("c", "changed", ["expected_label"]),
        ("e", "added", []),
    ]


async def test_a_diff_is_paged_and_can_be_narrowed(http: httpx.AsyncClient) -> None:
    old = await stored(http, *(example(f"{n:02}") for n in range(20)))
    new = await stored(http, *(example(f"{n:02}", "high" if n % 3 else "low") for n in range(5, 25)))
    path = f"/datasets/{old['dataset_id']}/diff/{new['dataset_id']}"
    whole = (await http.get(path, params={"limit": 500})).json()
    assert whole["next_cursor"] is None
    assert sum(whole["counts"].values()) == 25
    for change in (None, "added", "removed", "changed"):
        found, cursor = [], None
        while True:
            params = {"limit": 4, "change": change, "cursor": cursor}
            page = (await http.get(path, params={k: v for k, v in params.items() if v})).json()
            found += page["items"]
            assert page["counts"] == whole["counts"]
            if (cursor := page["next_cursor"]) is None:
                break
        assert found == [row for row in whole["items"] if change in {None, row["change"]}]


async def test_a_dataset_does_not_differ_from_itself(http: httpx.AsyncClient) -> None:
    one = (await stored(http, example("a")))["dataset_id"]
    diff = (await http.get(f"/datasets/{one}/diff/{one}")).json()
    assert (diff["counts"]["unchanged"], diff["items"], diff["moved"]) == (1, [], False)


def test_csv_reads_label_axes() -> None:
    from app.runs.dataset import Source

    data = b'id,expected_label,expected_labels\na,low,"{""risk"": ""high""}"\n'
    (one,) = read_examples(Source(io.BytesIO(data), "csv"))
    assert one.expected_labels == {"risk": "high"}


# --- what should never have been stored -------------------------------------------------------------------------------


async def poisoned(database: Database, position: int) -> str:
    """A dataset of 30 examples, one of which is as deep as some other way in once let it be."""
    deep = b'{"expected_label":"low","id":"p","input":' + b'{"a":' * 900 + b"1" + b"}" * 901
    added = await DatasetService(database, max_examples=100).add_examples(
        iter([EvalExample(id=str(n), expected_label="low") for n in range(30)])
    )
    spoil = update(dataset_examples).where(dataset_examples.c.position == position).values(example=deep)
    await database.write(lambda conn: conn.execute(spoil))
    return added.dataset_id


async def test_a_page_with_an_unreadable_example_is_a_problem_that_names_it(http: httpx.AsyncClient, database) -> None:
    """No failure of the service; NDJSON still gives what is stored."""
    dataset_id = await poisoned(database, 3)
    response = await http.get(f"/datasets/{dataset_id}/examples")
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, "/examples/3")
    assert "position 3 can't be read" in response.json()["detail"]
    whole = await http.get(f"/datasets/{dataset_id}/examples", headers={"accept": NDJSON})
    assert len(whole.text.splitlines()) == 30


async def test_a_run_on_an_unreadable_example_is_refused_where_it_is_seen_at_once(database) -> None:
    dataset_id = await poisoned(database, 3)
    async with run_service(database, Scripted()) as runs:
        with pytest.raises(UnreadableExample, match="position 3 can't be read"):
            await runs.submit(request(dataset_id=dataset_id))


async def test_a_run_that_comes_to_an_unreadable_example_says_so(database) -> None:
    """What was answered before is kept, and the run ends instead of breaking again and again."""
    dataset_id = await poisoned(database, 25)
    async with run_service(database, Scripted()) as runs:
        run = await ended(runs, (await runs.submit(request(dataset_id=dataset_id))).run_id)
    assert (run.status, run.progress.n_done) == ("failed", 25)
    assert "position 25 can't be read" in run.failure.message


@pytest.mark.parametrize("keys", [64, 900, 1_000])
async def test_no_way_in_takes_a_csv_that_is_too_deep(http: httpx.AsyncClient, keys: int) -> None:
    """As the body or in a form, for a dataset or for a run: refused by the column's name, and nothing is stored."""
    data = f"expected_label,input.{'.'.join('a' * keys)}\nx,1\n".encode()
    form = {"dataset": ("d.csv", data)}
    for response in (
        await http.post("/datasets", content=data, headers={"content-type": CSV}),
        await http.post("/datasets", files=form),
        await http.post("/runs", files={**form, "request": (None, '{"system": "recorded"}')}),
    ):
        assert (response.status_code, response.json()["type"]) == (422, "/problems/invalid-dataset")
        assert "column 'input.a.a." in response.json()["detail"]
    assert (await http.get("/datasets")).json()["items"] == []
