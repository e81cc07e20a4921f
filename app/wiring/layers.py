"""The layers of `/evaluate`, put together from what the operator configured; the rest is embedded or left out."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol
from urllib.parse import quote

import prompts
from adapters.embedders import OllamaEmbedder, OpenAIEmbedder
from adapters.gemini import GeminiJudge, retry_after
from adapters.limits import Lane
from adapters.ollama import OllamaJudge
from adapters.openai_compatible import OpenAICompatibleJudge
from adapters.sentinel_l7 import SentinelPolicies
from adapters.upstash import UpstashIndex
from app.evaluation.run_layer import LayerSpec
from app.index.embedded import EmbeddedIndex
from app.index.lexical import LexicalEmbedder
from app.index.policies import LexicalPolicySource, VectorPolicySource
from app.settings import Settings
from app.store.database import Database
from app.wiring.remotes import Remotes
from app.wiring.systems import SENTINEL, Neighbours, providers_for
from layers import consistency, disagreement, heuristics, judge, narrative_grounding
from layers.consistency import Consistency
from layers.contracts import Contracts, make_contracts
from layers.disagreement import Disagreement
from layers.errors import ConfigurationError
from layers.fingerprint import NeighborSpace
from layers.judge import JudgeLayer
from layers.model import HeuristicResult, LayerName
from layers.narrative_grounding import NarrativeGrounding
from layers.ports import Answerer, Embedder, LayerInput, PolicySource, VectorIndex
from layers.profile import SystemProfile
from layers.structured_call import Parameters, StructuredCall

MARGIN_S = 1.0
"""What a layer keeps of its deadline to conclude, after the last remote has answered or was given up."""


@dataclass(frozen=True)
class Retrieval:
    """Where near items and policies are found."""

    embedder: Embedder
    index: VectorIndex
    embedded: EmbeddedIndex
    policies: PolicySource


def connect_retrieval(settings: Settings, remotes: Remotes, database: Database, neighbours: Neighbours) -> Retrieval:
    """Upstash where its address was given, else the embedded index; the embedder likewise.

    Raises `ConfigurationError` for settings that do not fit together.
    """
    embedder = _embedder(settings, remotes)
    embedded = EmbeddedIndex(database, embedder=embedder.name)
    upstash = _upstash(settings, remotes, embedder)
    policies = _policies(settings, embedder, embedded, upstash, neighbours)
    return Retrieval(embedder, upstash or embedded, embedded, policies)


def _upstash(settings: Settings, remotes: Remotes, embedder: Embedder) -> UpstashIndex | None:
    vectors = settings.vectors
    if vectors.url is None:
        return None
    if vectors.token is None:
        raise ConfigurationError("UPSTASH_VECTOR_REST_URL needs UPSTASH_VECTOR_REST_TOKEN")
    client = remotes.client("upstash", timeout=vectors.timeout, slots=vectors.slots)
    return UpstashIndex(client, vectors.url, vectors.token, embedder=embedder.name)


def _embedder(settings: Settings, remotes: Remotes) -> Embedder:
    own, openai = settings.embedder, settings.openai
    kind = own.kind
    if kind == "auto":
        kind = "ollama" if own.given("ollama_url") else "embedded"
    if kind == "embedded":
        return LexicalEmbedder()
    client = remotes.client("embedder", timeout=own.timeout, slots=own.slots)
    if kind == "ollama":
        return OllamaEmbedder(client, own.ollama_url, own.model)
    if openai.base_url is None or openai.embedding_model is None:
        raise ConfigurationError("ARBITER_EMBEDDER=openai needs OPENAI_BASE_URL and ARBITER_OPENAI_EMBEDDING_MODEL")
    return OpenAIEmbedder(client, openai.base_url, openai.embedding_model, api_key=openai.api_key)


def _policies(
    settings: Settings,
    embedder: Embedder,
    embedded: EmbeddedIndex,
    upstash: UpstashIndex | None,
    neighbours: Neighbours,
) -> PolicySource:
    namespace, wanted = settings.vectors.policies_namespace, settings.vectors.policy_source
    if upstash is not None and wanted in {"auto", "upstash"}:
        return VectorPolicySource(upstash, embedder, namespace)
    if neighbours.sentinel is not None and wanted in {"auto", "sentinel"}:
        return SentinelPolicies(neighbours.sentinel)
    if wanted in {"upstash", "sentinel"}:
        raise ConfigurationError(f"ARBITER_POLICY_SOURCE={wanted}, but its address is not set")
    if isinstance(embedder, LexicalEmbedder):
        return LexicalPolicySource(embedded, namespace)
    return VectorPolicySource(embedded, embedder, namespace, embedded=embedded)


class JudgeIn(Protocol):
    """One configured judge, as it is asked in a lane of its remote's budget.

    `model` None = its own model; `timeout` (seconds) None = its remote's.
    """

    def __call__(self, lane: Lane, model: str | None = None, timeout: float | None = None) -> Answerer: ...


def connect_judges(settings: Settings, remotes: Remotes) -> tuple[JudgeIn, ...]:
    """The chain in the operator's order, of those judges that he configured."""
    makers = {"ollama": _ollama, "gemini_flash": _gemini, "openai_compatible": _openai}
    made = (makers[name](settings, remotes) for name in settings.judge.order)
    return tuple(judge for judge in made if judge is not None)


def _ollama(settings: Settings, remotes: Remotes) -> JudgeIn | None:
    own = settings.ollama
    if not own.given("host"):
        return None
    dial = remotes.dial("ollama.judge", slots=own.slots)
    return lambda lane, model=None, timeout=None: OllamaJudge(
        dial(timeout or own.timeout).on(lane), own.host, model or own.model, num_ctx=own.num_ctx
    )


def _gemini(settings: Settings, remotes: Remotes) -> JudgeIn | None:
    own, key = settings.gemini, settings.gemini.api_key
    if key is None:
        return None
    dial = remotes.dial("gemini", slots=own.slots, retry_after_from=retry_after)
    return lambda lane, model=None, timeout=None: GeminiJudge(
        dial(timeout or own.timeout).on(lane), gemini_url(own.url, model), key
    )


def _openai(settings: Settings, remotes: Remotes) -> JudgeIn | None:
    own, url = settings.openai, settings.openai.base_url
    if url is None:
        return None
    dial = remotes.dial("openai", slots=own.slots)
    return lambda lane, model=None, timeout=None: OpenAICompatibleJudge(
        dial(timeout or own.timeout).on(lane), url, model or own.judge_model, api_key=own.api_key
    )


def gemini_url(url: str, model: str | None) -> str:
    """The address of another model beside the one in `url`. Raises `ConfigurationError` where `url` names none."""
    if model is None:
        return url
    if not _GEMINI_MODEL.search(url):
        raise ConfigurationError("GEMINI_FLASH_URL names no model (.../models/NAME:...), so roles can't have their own")
    return _GEMINI_MODEL.sub(lambda match: match.group(1) + quote(model, safe="") + ":", url, count=1)


_GEMINI_MODEL = re.compile(r"(/models/)[^/:?]+:")


def judge_layer(settings: Settings, judges: tuple[JudgeIn, ...], lane: Lane, calls: StructuredCall) -> JudgeLayer:
    """The chain as a layer; what it was told is kept in `calls`."""
    timeout = settings.evaluation.judge_timeout
    return JudgeLayer(
        tuple(judge(lane) for judge in judges),
        prompts.load("judge"),
        calls,
        Parameters(temperature=settings.judge.temperature, seed=settings.judge.seed),
        max_pointers=settings.judge.max_pointers,
        timeout=max(timeout - MARGIN_S, timeout / 2),
    )


def contracts_in_force(settings: Settings, *, judged: bool) -> Callable[[SystemProfile], Contracts]:
    """What is bound into every evaluation under a profile; `judged` = a judge is configured."""
    vectors, judge_ = settings.vectors, settings.judge
    return partial(
        make_contracts,
        prompt=prompts.load("judge").ref if judged else None,
        max_pointers=judge_.max_pointers,
        settings={
            "audit_rate": settings.evaluation.audit_rate,
            "judge": {"order": list(judge_.order), "temperature": judge_.temperature, "seed": judge_.seed},
            "policies": {
                "source": vectors.policy_source,
                "namespace": vectors.policies_namespace,
                "threshold": vectors.policies_threshold,
            },
            "transactions": {
                "namespace": vectors.transactions_namespace,
                "threshold": vectors.transactions_threshold,
                "top_k": vectors.top_k,
                "policy_epoch": vectors.policy_epoch,
            },
        },
    )


async def _heuristics(item: LayerInput) -> HeuristicResult:
    return heuristics.check(item.prediction, item.profile)


def build_layers(
    settings: Settings, neighbours: Neighbours, retrieval: Retrieval, judge_: JudgeLayer | None
) -> dict[LayerName, LayerSpec]:
    """Every layer with its deadline; `judge_` None = no judge is configured."""
    return {
        LayerName.HEURISTICS: LayerSpec(_heuristics, None, heuristics.VERSION),
        LayerName.NARRATIVE_GROUNDING: _grounding(settings, retrieval),
        LayerName.DISAGREEMENT: _disagreement(settings, neighbours),
        LayerName.CONSISTENCY: _consistency(settings, retrieval),
        LayerName.JUDGE: LayerSpec(judge_, settings.evaluation.judge_timeout, judge.VERSION),
    }


def _grounding(settings: Settings, retrieval: Retrieval) -> LayerSpec:
    layer = NarrativeGrounding(retrieval.policies, threshold=settings.vectors.policies_threshold)
    return LayerSpec(layer, settings.evaluation.grounding_timeout, narrative_grounding.VERSION)


def _disagreement(settings: Settings, neighbours: Neighbours) -> LayerSpec:
    timeout = settings.evaluation.disagreement_timeout
    layer = Disagreement(
        providers_for(settings, neighbours),
        provider_timeout=max(timeout - MARGIN_S, timeout / 2),
        allow_side_effects=settings.synapse.replay,
    )
    return LayerSpec(layer, timeout, disagreement.VERSION)


def _consistency(settings: Settings, retrieval: Retrieval) -> LayerSpec:
    vectors = settings.vectors
    space = NeighborSpace(vectors.transactions_namespace)

    def space_of(profile: SystemProfile) -> NeighborSpace | None:
        return space if profile.name == SENTINEL else None

    layer = Consistency(
        retrieval.embedder,
        retrieval.index,
        space_of,
        threshold=vectors.transactions_threshold,
        top_k=vectors.top_k,
        policy_epoch=vectors.policy_epoch,
    )
    return LayerSpec(layer, settings.evaluation.consistency_timeout, consistency.VERSION)
