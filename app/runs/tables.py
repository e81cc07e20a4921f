"""The tables of runs: datasets by content hash, runs, and one insert-only record per example and attempt."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Float, Index, Integer, LargeBinary, String, Table, Text

from app.store.schema import metadata

# A number of ours stands for a dataset and for a run wherever rows are many: a million rows should not each carry
# a 71-character hash.
_Number = BigInteger().with_variant(Integer, "sqlite")

datasets = Table(
    "datasets",
    metadata,
    Column("dataset_no", _Number, primary_key=True, autoincrement=True),
    Column("dataset_id", String(71), nullable=True, unique=True),
    Column("n_examples", Integer, nullable=False),
    Column("created_at", String(27), nullable=False),
)
"""`dataset_id` is null while the examples are still coming in, and `created_at` then tells when the last ones came."""

dataset_examples = Table(
    "dataset_examples",
    metadata,
    Column("dataset_no", _Number, primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("example_id", String(512), nullable=False),
    Column("example", LargeBinary, nullable=False),
    Index("ix_dataset_examples_example_id", "dataset_no", "example_id"),
)

runs = Table(
    "runs",
    metadata,
    Column("run_no", _Number, primary_key=True, autoincrement=True),
    Column("run_id", String(36), nullable=False, unique=True),
    Column("name", String(256)),
    Column("system", String(512), nullable=False),
    Column("status", String(16), nullable=False),
    Column("failure", LargeBinary),
    Column("dataset_no", _Number, nullable=False),
    Column("dataset_id", String(71), nullable=False),
    Column("n_total", Integer, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("executor", String(64)),
    Column("config", LargeBinary, nullable=False),
    Column("created_at", String(27), nullable=False),
    Column("started_at", String(27)),
    Column("finished_at", String(27)),
    Column("priority", Integer, nullable=False, server_default="0"),
    Index("ix_runs_system", "system", "run_id"),
    Index("ix_runs_status", "status", "run_id"),
)
"""`config` is everything the run was asked to do, as canonical bytes. `executor` names the process that works on it,
and is null for a run that all who share the store work on; `generation` goes up when it goes on after a pause or with
another process, which is a new stretch of work."""

records = Table(
    "records",
    metadata,
    Column("run_no", _Number, primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("repeat", Integer, primary_key=True, autoincrement=False),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("status", String(8), nullable=False),
    Column("expected", Text, nullable=False),
    Column("scored", Text),
    Column("error_kind", String(64)),
    Column("confidence", Float(53)),
    Column("elapsed_ms", Float(53), nullable=False),
    Column("record", LargeBinary, nullable=False),
    Index("ix_records_status", "run_no", "status"),
)
"""`expected` and `scored` are labels as they are compared; `record` is the record itself, as canonical bytes."""

run_keys = Table(
    "run_keys",
    metadata,
    Column("idempotency_key", String(256), primary_key=True),
    Column("body_hash", String(71), nullable=False),
    Column("run_id", String(36)),
    Column("executor", String(64)),
    Column("created_at", String(27), nullable=False),
)
"""Which request made which run; `run_id` is null while `executor` is working on that request."""

run_chunks = Table(
    "run_chunks",
    metadata,
    Column("run_no", _Number, primary_key=True, autoincrement=False),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("start", Integer, primary_key=True, autoincrement=False),
    Column("stop", Integer, nullable=False),
    Column("owner", String(64)),
    Column("claim", Integer, nullable=False),
    Column("done", Boolean, nullable=False),
)
"""Questions `start <= unit < stop` of a run's attempt. `owner` is the worker that is at it, null = nobody; `claim`
counts who was. A run's chunks are forgotten when it ends."""

workers = Table(
    "workers",
    metadata,
    Column("worker_id", String(64), primary_key=True),
    Column("executor", String(64)),
    Column("beat_at", Float(53), nullable=False),
    Column("lease", Float(53), nullable=False),
    Column("started_at", String(27), nullable=False),
    Column("code_version", String(64), nullable=False),
)
"""Processes that take runs: `executor` null = without working on them. One whose last beat is `lease` seconds ago, on
the database's clock, is taken for dead."""
