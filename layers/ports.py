"""The ports the layers and the service need, each in the words of its user, each saying how it fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from layers.errors import DependencyError
from layers.model import (
    EvalExample,
    EvalPrediction,
    Evidence,
    EvidenceRole,
    Finding,
    InstrumentPath,
    JsonObject,
    LayerName,
    Outcome,
    SkipReason,
)
from layers.profile import SystemProfile
from layers.prompting import RenderedPrompt


class Clock(Protocol):
    """Monotonic seconds. Time is an input, so that tests need not wait."""

    def __call__(self) -> float: ...


class SystemUnderTest(Protocol):
    """Ask a system about one example.

    Returns its prediction, whose id is the example's. Raises `DependencyError` when there is none.
    """

    async def predict(self, example: EvalExample) -> EvalPrediction: ...


@dataclass(frozen=True)
class Reading:
    """What a system's own payload says: label, confidence in 0..1, and what else is worth keeping."""

    label: str
    confidence: float
    metadata: JsonObject


class ReadPayload(Protocol):
    """Read a system's own payload. Raises `NotAVerdict`, or `DependencyMalformed` naming the field that is wrong."""

    def __call__(self, raw_output: JsonObject) -> Reading: ...


@dataclass(frozen=True)
class Pipeline:
    """A way to ask a system beside the plain one: `open` as in `System`.

    `plan` is all that decides what it does, JSON-ready; it is stored with every run.
    """

    open: Callable[[str | None], SystemUnderTest]
    plan: JsonObject


@dataclass(frozen=True)
class System:
    """One system the service knows: its profile, how its payload is read, and how it is asked.

    `read` None = callers must post label and confidence. `open` builds the system under test for a driver (or None);
    it is None when the system can't be asked (recorded predictions only, or its address is not configured).
    """

    profile: SystemProfile
    read: ReadPayload | None = None
    open: Callable[[str | None], SystemUnderTest] | None = None
    outlook: Callable[[int], float] | None = None
    """Seconds until the system's rate limit may have let so many more questions of runs through; None = unlimited."""
    why_closed: str | None = None
    """Why `open` is None, as a sentence for the caller that says what to set."""
    pipelines: Mapping[str, Pipeline] = field(default_factory=dict)
    """Ways to ask it by the name of the run option; one called `offline` takes the place of `open`."""
    variants: Mapping[str, SystemProfile] = field(default_factory=dict)
    """Drivers under which predictions are read with another profile: the judge's, one for each system it judges."""

    def profile_under(self, driver: str | None) -> SystemProfile:
        """The profile that predictions under `driver` are read with."""
        return self.profile if driver is None else self.variants.get(driver, self.profile)


class Trace(Protocol):
    """Where a layer notes what must be bound into the provenance of its finding, as JSON-ready values.

    Stages in use: `retrieval_plan`, `policy_chunks`, `neighbors`, `prompt`, `model_output`. Every value names its
    `layer`; several notes under one stage add up, in the order in which they came. Never raises.
    """

    def note(self, stage: str, value: JsonObject) -> None: ...


class NoTrace:
    """Forget every note: for callers that keep no provenance."""

    def note(self, stage: str, value: JsonObject) -> None:
        """Do nothing."""


NO_TRACE = NoTrace()


class Desk(Protocol):
    """What a free layer gets on demand only, since hardly any item needs it. Neither is a remote; neither raises."""

    def number(self) -> tuple[Evidence, ...]:
        """The evidence map as it stands. Costlier layers see it grown, with the same numbers for what is there now."""
        ...

    def may_ask(self) -> bool:
        """Whether anything beyond this process may be asked about the item, which is what preflight says."""
        ...


class _NoDesk:
    def number(self) -> tuple[Evidence, ...]:
        return ()

    def may_ask(self) -> bool:
        return True


NO_DESK = _NoDesk()
"""For callers that number nothing and refuse nothing."""


@dataclass(frozen=True)
class LayerInput:
    """All that a layer may look at: the prediction, the original input where known, the profile, numbered evidence,
    and what earlier (cheaper) layers found. `trace` takes what its provenance must hold beside the finding.

    `incomplete` names the roles of which the evidence holds only a part. In the free tier `evidence` is empty, and
    `desk` numbers it for who needs it.
    """

    prediction: EvalPrediction
    profile: SystemProfile
    input: JsonObject | None
    evidence: tuple[Evidence, ...]
    earlier: Mapping[LayerName, Outcome]
    trace: Trace = NO_TRACE
    incomplete: tuple[EvidenceRole, ...] = ()
    desk: Desk = NO_DESK


class Skip(Exception):
    """Raised by a layer that has nothing to look at; `run_layer` turns it into `Skipped`."""

    def __init__(self, reason: SkipReason) -> None:
        self.reason = reason
        super().__init__(reason.value)


class Fruitless(DependencyError):
    """Raised by a layer that asked several remotes, of which none gave anything; `finding` shows each one's error."""

    def __init__(self, dependency: str, kind: str, message: str, finding: Finding) -> None:
        self.finding = finding
        super().__init__(dependency, kind, message)


Layer = Callable[[LayerInput], Awaitable[Finding]]
"""A layer is a callable. It raises `Skip`, or `DependencyError` when a remote failed it."""


# --- retrieval ------------------------------------------------------------------------------------------------------

Task: TypeAlias = Literal["document", "query"]
"""What a text is embedded for: to be found (`document`) or to find (`query`). Each has its own prefix."""

Vector: TypeAlias = list[float]


class Embedder(Protocol):
    """Turn a text into a vector. Raises `DependencyError`, or `ConfigurationError` for a dimension it did not promise.

    `name` identifies the model (a lexical one says so in its name); vectors of different names are never mixed.
    `dimension` is None as long as the remote has not told it.
    """

    @property
    def name(self) -> str: ...
    @property
    def dimension(self) -> int | None: ...
    async def embed(self, text: str, task: Task) -> Vector: ...


@dataclass(frozen=True, slots=True)
class Match:
    """One entry of a vector index. `score` is its similarity, higher is nearer; `metadata` is as it was stored."""

    id: str
    score: float
    metadata: JsonObject


class VectorIndex(Protocol):
    """Nearest entries of a namespace, nearest first, at most `top_k`; an unknown or empty namespace has none.

    Raises `DependencyError`, and `ConfigurationError` where the vector's dimension (or the embedder's name, which the
    index knows from its wiring) is not that of the namespace. `filter` is in the index's own language.
    """

    @property
    def name(self) -> str: ...
    async def query(self, namespace: str, vector: Vector, *, top_k: int, filter: str | None = None) -> list[Match]: ...


@dataclass(frozen=True, slots=True)
class PolicyChunk:
    """A piece of policy text. `score` is its similarity to the query; `source` names the document."""

    id: str
    score: float
    text: str
    source: str = ""
    domain: str | None = None


class PolicySource(Protocol):
    """Policy text near a query, best first: at most `limit` chunks at or above `threshold`.

    None = there is no corpus to search (an empty index), which is not the same as a search without a hit.
    Raises `DependencyError`. `name` and `namespace` say what is searched, for the record.
    """

    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    async def search(self, query: str, *, limit: int, threshold: float) -> list[PolicyChunk] | None: ...


# --- models ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What a model wrote, whole: a cut, blocked or empty reply never becomes one. Token counts as reported."""

    text: str
    model: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    finish_reason: str | None = None


class Answerer(Protocol):
    """Answer one prompt as JSON of the given schema.

    `identity` names what answers (source and model) for the cache; `external` = a model outside the operator's
    machines. Raises `DependencyError`, with the kinds `truncated`, `prompt_truncated`, `blocked` and `empty_output`
    for a reply that is none. `deadline` is on the monotonic clock, in seconds; None = only the remote's own time-out.
    """

    @property
    def source(self) -> InstrumentPath: ...
    @property
    def dependency(self) -> str: ...
    @property
    def identity(self) -> str: ...
    @property
    def external(self) -> bool: ...
    async def ask(
        self,
        prompt: RenderedPrompt,
        schema: JsonObject,
        *,
        temperature: float,
        seed: int,
        deadline: float | None = None,
    ) -> ModelReply: ...


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """A model's reply together with the very prompt that brought it."""

    prompt: RenderedPrompt
    reply: ModelReply


class AnswerStore(Protocol):
    """Keep answers beyond this process, by the hash of all that the answer depends on. May forget any of them.

    Raises nothing: a store that can't be reached has no answer, and keeps none.
    """

    async def get(self, key: str) -> KeptAnswer | None: ...
    async def put(self, key: str, answer: KeptAnswer) -> None: ...
