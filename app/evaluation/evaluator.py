"""Run the layers an item needs, in cost order, and leave the others as not selected."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import anyio

from app.evaluation.observe import Watch
from app.evaluation.plan import TIERS, Plan
from app.evaluation.run_layer import LayerSpec, run_layer
from layers.model import Evidence, LayerName, Outcome, Skipped, SkipReason
from layers.ports import Clock, LayerInput

logger = logging.getLogger(__name__)

EvidenceBuilder = Callable[[LayerInput], tuple[Evidence, ...]]
"""Number what may be pointed to, from the item and from what its `earlier` layers found. Pure and deterministic."""

NOT_CONFIGURED = LayerSpec(layer=None, timeout=None, version="0")


def no_evidence(_item: LayerInput) -> tuple[Evidence, ...]:
    """An empty map."""
    return ()


class Evaluator:
    """The layers as they were put together.

    `request_timeout` (seconds) bounds all layers of one evaluation together.
    """

    def __init__(
        self,
        layers: Mapping[LayerName, LayerSpec],
        *,
        evidence: EvidenceBuilder = no_evidence,
        request_timeout: float = 75.0,
        clock: Clock = time.monotonic,
    ) -> None:
        self._layers = {name: layers.get(name, NOT_CONFIGURED) for name in LayerName}
        self._unselected: dict[LayerName, Outcome] = {
            name: Skipped(reason=SkipReason.NOT_SELECTED, version=spec.version) for name, spec in self._layers.items()
        }
        self._evidence = evidence
        self._request_timeout = request_timeout
        self._clock = clock

    def deadline(self) -> float:
        """When an evaluation that begins now must have its outcomes, on the evaluator's clock."""
        return self._clock() + self._request_timeout

    async def screen(
        self, item: LayerInput, outcomes: dict[LayerName, Outcome], *, deadline: float, watch: Watch
    ) -> None:
        """Run tier 0, one layer after the other: they rarely wait for anything."""
        for name in TIERS[0]:
            if name not in outcomes:
                await self._run(name, item, outcomes, deadline, watch)

    async def escalate(
        self, item: LayerInput, outcomes: dict[LayerName, Outcome], *, deadline: float, watch: Watch
    ) -> LayerInput:
        """Run the other tiers; layers that have an outcome keep it. Returns the item as the last tier saw it."""
        for tier in TIERS[1:]:
            names = [name for name in tier if name not in outcomes]
            if names:
                item = self._with_evidence(item, outcomes)
                await self._run_tier(names, item, outcomes, deadline, watch)
        return item

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

    def _with_evidence(self, item: LayerInput, outcomes: Mapping[LayerName, Outcome]) -> LayerInput:
        item = replace(item, earlier=dict(outcomes))
        try:
            return replace(item, evidence=self._evidence(item))
        except Exception:
            # Without a map nothing can be pointed to, so a judge's answer stays ungrounded and a person decides.
            logger.exception("the evidence map could not be built")
            return replace(item, evidence=())
