"""One row through triage, classification, review, at most one bounce, and a second review that ends it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from app.critic.classifier import label_event, prediction_of
from app.critic.config import RubricLines
from app.critic.model import Classification, Classifier, Note, SignalSpec, is_unreadable
from app.critic.questions import Subject, review_question, triage_question
from app.runs.asking import NOT_ASKED
from layers.critic import Ending, Restraint, Review, Ruling, Signal, conclude, gate
from layers.errors import CircuitOpen, ConfigurationError, DependencyError, DependencyRejected, DependencyUnavailable
from layers.model import EvalExample, EvalPrediction, JsonObject
from layers.ports import Answerer, Clock
from layers.prompting import Prompt
from layers.rubric import Rubric, cut_rubric
from layers.structured_call import Parameters, StructuredCall


@dataclass(frozen=True)
class Critic:
    """Who notes signals and who reviews, and where a challenge is possible."""

    reviewer: Answerer
    prompt: Prompt
    restraint: Restraint
    triage: Answerer | None = None
    triage_prompt: Prompt | None = None
    signals: dict[str, SignalSpec] = field(default_factory=dict)


@dataclass
class _Row:
    """One row under way: its input, its trail, what triage noted."""

    case: JsonObject
    rubric: Rubric
    deadline: float
    audit: list[JsonObject] = field(default_factory=list)
    signals: dict[str, Signal] = field(default_factory=dict)
    calls: int = 0
    outage: DependencyUnavailable | None = None

    def note(self, event: str, **fields: object) -> None:
        self.audit.append({"event": event, **fields})


@dataclass(frozen=True)
class CriticSystem:
    """A classifier under its critic, as a system under test.

    A classifier out of reach is a `DependencyError`, as of any system. Triage or critic out of reach moves nothing: the
    classifier's labels stand and the row says that nobody reviewed it. An open circuit and a throttle are no result
    of a row at all: they are raised, so that the run waits. The rubric is cut from the prompt anew for each row; when
    it is no longer `rubric_sha256`, the row fails. `timeout` is one row's, in seconds.
    """

    classifier: Classifier
    critic: Critic
    calls: StructuredCall
    primary: str
    lines: RubricLines
    rubric_sha256: str
    parameters: Parameters = field(default_factory=Parameters)
    scrub: Callable[[str], str] = lambda text: text
    timeout: float = 120.0
    clock: Clock = time.monotonic

    def live_rubric(self) -> Rubric:
        """The rubric as it stands in the classifier's own prompt at this moment. Raises `DependencyRejected`."""
        rubric = cut_rubric(self.classifier.prompt_text, self.lines.begin, self.lines.end)
        if rubric.sha256 != self.rubric_sha256:
            message = "the classifier's rubric is not the one that this run was accepted with"
            raise DependencyRejected(self.classifier.source, "rubric_changed", message)
        return rubric

    async def predict(self, example: EvalExample) -> EvalPrediction:
        """The labels that stand in the end; the trail is in `raw_output.audit`. Raises `DependencyError`."""
        row = _Row(example.input, self.live_rubric(), self.clock() + self.timeout)
        try:
            return await self._through(row, example)
        except CircuitOpen as exc:
            # What opened the circuit was this row's own call: the run must learn that it is the remote that fails.
            if row.outage is not None and row.outage.dependency == exc.dependency:
                raise row.outage from exc
            raise

    async def _through(self, row: _Row, example: EvalExample) -> EvalPrediction:
        await self._triage(row)
        row.calls += 1
        answer = await self.classifier.classify(row.case, deadline=row.deadline)
        row.audit.append(label_event(answer))
        ending = await self._judged(row, answer)
        row.note("verdict", **ending.model_dump(mode="json"), calls=row.calls)
        return prediction_of(
            example, self.classifier, self.primary, answer, ending.labels, row.audit, ending.state.value
        )

    async def _triage(self, row: _Row) -> None:
        critic = self.critic
        if critic.triage is None or critic.triage_prompt is None or not critic.signals:
            return
        row.calls += 1
        question = triage_question(critic.triage_prompt, critic.signals, row.case, self.parameters)
        try:
            noted = (await self.calls.ask(critic.triage, question, deadline=row.deadline)).value
        except (DependencyError, ConfigurationError) as exc:
            row.outage = exc if isinstance(exc, DependencyUnavailable) else None
            noted = _unless_it_waits(exc)
        if isinstance(noted, str):
            row.note("triage", signals={}, void=noted)
        else:
            row.signals = noted
            row.note("triage", signals=noted, void=None)

    async def _judged(self, row: _Row, answer: Classification) -> Ending:
        if answer.salvaged:  # there is no answer that could be reviewed
            return conclude(answer.labels, salvaged=answer.salvaged)
        review = await self._review(row, answer.labels)
        ruling = gate(review, row.rubric.ids, self.critic.restraint, row.signals)
        row.note("review", **{"pass": 1}, **review.model_dump(), **ruling.model_dump(mode="json"))
        second, second_review = await self._bounce(row, answer, review, ruling)
        return conclude(
            answer.labels,
            review=review,
            ruling=ruling,
            second=None if second is None or second.salvaged else second.labels,
            second_review=second_review,
        )

    async def _bounce(
        self, row: _Row, answer: Classification, review: Review, ruling: Ruling
    ) -> tuple[Classification | None, Review | None]:
        """Ask the classifier once more after an admitted challenge. No other place does; nothing leads back here."""
        if not ruling.admitted or review.axis is None:
            return None, None
        wording = next(rule.text for rule in row.rubric.rules if rule.id == review.rule)
        note = Note(
            axis=review.axis,
            rule=review.rule or "",
            rule_text=wording,
            gap=review.gap or "",
            labels=answer.labels,
        )
        row.note("bounce", axis=note.axis, rule=note.rule)
        row.calls += 1
        try:
            second = await self.classifier.classify(row.case, note, deadline=row.deadline)
        except DependencyError as exc:
            row.note("label", **{"pass": 2}, labels={}, salvaged=[], reason=_unless_it_waits(exc), confidence=None)
            return None, None
        row.audit.append(label_event(second, 2))
        if second.salvaged:
            return second, None
        changed = {**answer.labels, note.axis: second.labels[note.axis]}
        second_review = await self._review(row, changed, earlier=review)
        row.note("review", **{"pass": 2}, **second_review.model_dump())
        return second, second_review

    async def _review(self, row: _Row, labels: dict[str, str], *, earlier: Review | None = None) -> Review:
        row.calls += 1
        critic, subject = self.critic, Subject(row.case, labels, row.signals, earlier)
        question = review_question(
            critic.prompt, row.rubric, critic.restraint.axes, subject, self.parameters, self.scrub
        )
        try:
            return (await self.calls.ask(self.critic.reviewer, question, deadline=row.deadline)).value
        except (DependencyError, ConfigurationError) as exc:
            return Review(decision="void", void=_unless_it_waits(exc))


def _unless_it_waits(exc: DependencyError | ConfigurationError) -> str:
    """Why nobody looked; raises the exception again when it only says "later"."""
    if isinstance(exc, CircuitOpen) or (isinstance(exc, DependencyError) and exc.kind in NOT_ASKED):
        raise exc
    return exc.kind if isinstance(exc, DependencyError) and is_unreadable(exc) else "unavailable"
