"""The use case `/evaluate`: plan, run, decide, store once, answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from app.evaluation.model import Accepted, BatchStatus, EvaluateRequest, OnlineScoringResult
from app.store.paging import Page


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer ready to be sent: `body` is the JSON of an `OnlineScoringResult`."""

    evaluation_id: str
    body: bytes
    replayed: bool


@dataclass(frozen=True, slots=True)
class EvaluationFilter:
    """Which evaluations a list shows; None = all."""

    system: str | None = None
    prediction_id: str | None = None
    disposition: str | None = None
    degraded: bool | None = None
    since: datetime | None = None


class EvaluationService:
    """Evaluates predictions, now or later, and shows what was stored."""

    async def evaluate_bytes(self, request: EvaluateRequest, *, fresh: bool = False, wait: bool = False) -> Answer:
        """The hot path. `wait` waits for a free slot instead of raising `Overloaded`. Raises `Unprocessable`."""
        raise NotImplementedError

    async def evaluate(self, request: EvaluateRequest, *, fresh: bool = False) -> OnlineScoringResult:
        """Evaluate and return the decoded answer."""
        raise NotImplementedError

    async def accept(self, request: EvaluateRequest, *, fresh: bool = False) -> str:
        """Store the request durably and return the id under which its answer will stand."""
        raise NotImplementedError

    async def accept_batch(self, requests: Sequence[EvaluateRequest]) -> tuple[str, tuple[str, ...]]:
        """Store many at once; the batch's id and the evaluations' ids in order."""
        raise NotImplementedError

    async def get_bytes(self, evaluation_id: str, revision: int | None = None) -> bytes | Accepted:
        """The stored answer, newest revision by default, or how its accepted work stands. Raises `NotFound`."""
        raise NotImplementedError

    async def get(self, evaluation_id: str, revision: int | None = None) -> OnlineScoringResult | Accepted:
        """`get_bytes`, decoded."""
        raise NotImplementedError

    async def get_batch(self, batch_id: str) -> BatchStatus:
        """How far an accepted batch is. Raises `NotFound`."""
        raise NotImplementedError

    async def list(self, filters: EvaluationFilter, limit: int = 50, cursor: str | None = None) -> Page[bytes]:
        """Stored answers, newest first, as the JSON of each. Raises `BadRequest` for a foreign cursor."""
        raise NotImplementedError

    async def work(self) -> None:
        """Work off what was accepted, for ever; the lifespan's task group runs it."""
        raise NotImplementedError
