"""Run the layers an item needs, in cost order, and leave the others as not selected."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import anyio

from app.evaluation.inquiry import Inquiry
from app.evaluation.observe import Watch
from app.evaluation.plan import TIERS, Plan
from app.evaluation.run_layer import LayerSpec, run_layer
from layers.model import LayerName, Outcome, Skipped, SkipReason
from layers.ports import Clock, LayerInput

NOT_CONFIGURED = LayerSpec(layer=None, timeout=None, version="0")


class Evaluator:
    """The layers as they were put together.

    `request_timeout` (seconds) bounds all layers of one evaluation together.
    """

    def __init__(
        self,
        layers: Mapping[LayerName, LayerSpec],
        *,
        request_timeout: float = 75.0,
        clock: Clock = time.monotonic,
    ) -> None:
        self._layers = {name: layers.get(name, NOT_CONFIGURED) for name in LayerName}
        self._unselected: dict[LayerName, Outcome] = {
            name: Skipped(reason=SkipReason.NOT_SELECTED, version=spec.version) for name, spec in self._layers.items()
        }
        self._request_timeout = request_timeout
        self._clock = clock

    def now(self) -> float:
        """The evaluator's clock, in seconds."""
        return self._clock()

    def deadline(self) -> float:
        """When an evaluation that begins now must have its outcomes, on the evaluator's clock."""
        return self._clock() + self._request_timeout

    async def screen(
        self, inquiry: Inquiry, outcomes: dict[LayerName, Outcome], *, deadline: float, watch: Watch
    ) -> None:
        """Run tier 0, one layer after the other: they rarely wait for anything."""
        for name in TIERS[0]:
            if name not in outcomes:
                await self._run(name, inquiry.bare, outcomes, deadline, watch)

    async def escalate(
        self, inquiry: Inquiry, outcomes: dict[LayerName, Outcome], *, deadline: float, watch: Watch
    ) -> None:
        """Run the other tiers, each on what was found before it; layers that have an outcome keep it."""
        for tier in TIERS[1:]:
            names = [name for name in tier if name not in outcomes]
            if names:
                await self._run_tier(names, inquiry.grown(), outcomes, deadline, watch)

    def complete(self, outcomes: Mapping[LayerName, Outcome], plan: Plan) -> dict[LayerName, Outcome]:
        """One outcome for every layer there is, in cost order."""
        if plan.escalate:
            return {name: outcomes[name] for name in LayerName}
        return {name: outcomes.get(name) or self._unselected[name] for name in LayerName}

    async def _run_tier(
        self,
        names: Sequence[LayerName],
        item: LayerInput,
        outcomes: dict[LayerName, Outcome],
        deadline: float,
        watch: Watch,
    ) -> None:
        if len(names) == 1:
            await self._run(names[0], item, outcomes, deadline, watch)
            return
        async with anyio.create_task_group() as group:
            for name in names:
                group.start_soon(self._run, name, item, outcomes, deadline, watch)

    async def _run(
        self,
        name: LayerName,
        item: LayerInput,
        outcomes: dict[LayerName, Outcome],
        deadline: float,
        watch: Watch,
    ) -> None:
        spec = self._layers[name]
        await run_layer(name, spec, item, outcomes, deadline=deadline, clock=self._clock, watch=watch)
