"""One item on its way through the layers: its evidence map and its preflight, each made when first wanted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from app.evaluation.evidence import number_evidence
from app.evaluation.item import Item
from app.store.ids import now
from layers.contracts import Contracts, PreflightPolicy
from layers.evidence import EvidenceMap
from layers.model import Evidence, LayerName, Outcome, Skipped
from layers.ports import NO_TRACE, LayerInput
from layers.preflight import Preflight, preflight
from layers.preflight_detectors import Subject
from layers.provenance import Recorder, Stage

logger = logging.getLogger(__name__)

NumberEvidence = Callable[[LayerInput], EvidenceMap]
"""Number what may be pointed to, from the item and from what its `earlier` layers found. Pure and deterministic."""

NOTHING = EvidenceMap(items=())


class Inquiry:
    """What the layers are given to look at. It is the `desk` of the free ones.

    Preflight comes before anything beyond this process is asked: before stage 3 of grounding, before the costly layers.
    Nearly no item gets so far, and for the others `conclude` notes that nothing was asked.
    """

    def __init__(
        self,
        item: Item,
        outcomes: Mapping[LayerName, Outcome],
        contracts: Contracts,
        policy: PreflightPolicy,
        *,
        recorder: Recorder | None = None,
        number: NumberEvidence = number_evidence,
        time: Callable[[], str] = now,
    ) -> None:
        self._item = item
        self._outcomes = outcomes
        self._contracts = contracts
        self._recorder = recorder
        self._policy = policy
        self._number = number
        self._time = time
        self._map: EvidenceMap | None = None
        self._numbered_at = (-1, -1)  # what there was to number when the map was made
        self._preflight: Preflight | None = None
        self._crashed = False
        self.bare = LayerInput(
            item.prediction, item.profile, item.input, (), {}, NO_TRACE if recorder is None else recorder, desk=self
        )
        """The item as the free layers see it."""

    # --- on demand ----------------------------------------------------------------------------------------------------

    def number(self) -> tuple[Evidence, ...]:
        """The evidence as it stands."""
        return self._numbered().items

    def may_ask(self) -> bool:
        """Whether preflight lets anybody be asked; looked into once."""
        if not self.was_asked:
            self._look_ahead()
        return not self.is_refused

    @property
    def was_asked(self) -> bool:
        """Whether anybody wanted to know."""
        return self._crashed or self._preflight is not None

    @property
    def is_refused(self) -> bool:
        """Whether preflight refused the question; one that crashed did."""
        return self._crashed or (self._preflight is not None and self._preflight.refused)

    @property
    def refusals(self) -> tuple[str, ...]:
        """By which detectors."""
        if self._preflight is None:
            return ("crashed",) if self._crashed else ()
        return tuple(dict.fromkeys(each.detector.value for each in self._preflight.concerns if each.refuses))

    # --- for the costly layers ----------------------------------------------------------------------------------------

    def grown(self) -> LayerInput:
        """The item with all that was found so far, and the evidence numbered anew."""
        built = self._numbered()
        return replace(self.bare, earlier=dict(self._outcomes), evidence=built.items, incomplete=built.incomplete)

    def conclude(self) -> None:
        """Note the preflight stage, and the map if anything may point into it."""
        if self._recorder is None:
            return
        if not self.was_asked:
            self._recorder.note_bytes(Stage.PREFLIGHT, self._contracts.not_needed)
        elif self._preflight is None:
            self._recorder.note(Stage.PREFLIGHT, {"status": "crashed", **self._contracts.as_json()})
        else:
            self._recorder.note(Stage.PREFLIGHT, self._preflight.as_json())
        if self._map is not None and not self.is_refused:
            self._recorder.note(Stage.EVIDENCE, self._map.as_json())

    def _numbered(self) -> EvidenceMap:
        """The map, made anew if anything has been found or retrieved since."""
        ended = [outcome for outcome in self._outcomes.values() if not isinstance(outcome, Skipped)]
        findings = sum(outcome.finding is not None for outcome in ended)
        there_is = (findings, 0 if self._recorder is None else self._recorder.noted(Stage.POLICY_CHUNKS))
        if self._map is not None and self._numbered_at == there_is:
            return self._map
        self._numbered_at = there_is
        try:
            self._map = self._number(replace(self.bare, earlier=dict(self._outcomes)))
        except Exception:
            # Without a map nothing can be pointed to: preflight then refuses, and a person decides.
            logger.exception("the evidence map could not be built")
            self._map = NOTHING
        return self._map

    def _look_ahead(self) -> None:
        item, as_of = self._item, self._time()
        subject = Subject(item.prediction, item.profile, self._numbered().items, self._policy, as_of)
        try:
            self._preflight = preflight(subject, self._contracts)
        except Exception:
            logger.exception("preflight crashed")
            self._crashed = True
