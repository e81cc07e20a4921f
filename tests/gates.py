"""What the tests of gates share: recorded runs in a real store, and the services over it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from app.gates.service import GateService
from app.runs.service import RunService
from app.store.database import Database
from layers.errors import DependencyRejected
from layers.model import EvalDataset, EvalExample, EvalPrediction
from layers.profile import BinaryCollapse, SystemProfile
from tests.runs import Scripted, ended, request, run_service

PROFILE = SystemProfile(
    name="tested",
    binary=BinaryCollapse(keep=frozenset({"low"}), negative="low", positive="high"),
)


async def recorded(example: EvalExample) -> EvalPrediction:
    """The prediction that the example carries; without one it fails."""
    if example.prediction is None:
        raise DependencyRejected("tested", "rejected", "no prediction")
    return example.prediction


def example(
    name: str, expected: str, predicted: str | None, *, metadata: Mapping[str, Any] | None = None, **fields: Any
) -> EvalExample:
    """`predicted` None = asking about it will fail. `metadata` is the prediction's."""
    prediction = None
    if predicted is not None:
        payload = {"risk": predicted}
        prediction = EvalPrediction(
            id=name, raw_output=payload, label=predicted, confidence=0.8, metadata=dict(metadata or {})
        )
    return EvalExample(id=name, expected_label=expected, prediction=prediction, **fields)


def examples(n: int, wrong: Iterable[int] = (), **fields: Any) -> list[EvalExample]:
    """Labels take turns; those numbered in `wrong` are predicted otherwise."""
    bad, labels = set(wrong), ("high", "low")
    return [
        example(f"e{k}", labels[k % 2], labels[(k + (k in bad)) % 2], input={"kind": "ab"[k % 4 // 2]}, **fields)
        for k in range(n)
    ]


@dataclass
class World:
    """A store with both services on it."""

    runs: RunService
    gates: GateService
    database: Database

    async def run(self, rows: Iterable[EvalExample], **options: Any) -> str:
        """The id of a run over these examples, once it has ended."""
        dataset = EvalDataset(examples=tuple(rows))
        run = await self.runs.submit(request(options=options), dataset)
        return (await ended(self.runs, run.run_id)).run_id


@asynccontextmanager
async def world_on(database: Database, **settings: Any) -> AsyncIterator[World]:
    """Both services over a database, with the one system `tested`, which answers what examples carry."""
    async with run_service(database, Scripted(recorded).as_system(PROFILE), **settings) as runs:
        yield World(runs, GateService(database), database)
