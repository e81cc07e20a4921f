"""What follows from what: hashes, which statements are the same, and the links after a record. All of it pure."""

from __future__ import annotations

from collections.abc import Mapping

from app.adjudication.model import AdjudicationRecord, Evidence, Hypothesis
from layers.adjudication_rules import Effect, Link, decide, fold_text
from layers.canonical import canonical_bytes, sha256_of
from layers.model import JsonObject, Value

Links = Mapping[str, Link]
"""The accepted links of one hypothesis, by evidence id."""


def sealed(value: Value) -> bytes:
    """The bytes that are stored, hashed and exported."""
    return canonical_bytes(value.model_dump(mode="json"))


def match_hash(text: str) -> str:
    """Statements of the same hash are the same hypothesis: they differ in case, blanks and compatible characters."""
    return sha256_of(fold_text(text).encode())


def hypothesis_hash(text: str, importance: float) -> str:
    """What an adjudication depends on of a hypothesis; its importance decides about escalation."""
    return sha256_of(canonical_bytes({"text": text, "importance": float(importance)}))


def evidence_hash(text: str, source: str) -> str:
    """What an adjudication depends on of a piece of evidence. Its metadata is shown to no model."""
    return sha256_of(canonical_bytes({"text": text, "source": source}))


def same_evidence_hash(text: str, source: str) -> str:
    """Evidence of the same hash is the same piece: posted twice, in other blanks or case, it counts once."""
    return sha256_of(canonical_bytes({"text": fold_text(text), "source": fold_text(source)}))


def adjudication_key(hypothesis_sha256: str, evidence_sha256: str, configuration_sha256: str) -> str:
    """What a finished adjudication is found again by. What the caller expected is no part of it: asking again with
    another expectation is not asking something else."""
    parts = {"hypothesis": hypothesis_sha256, "evidence": evidence_sha256, "configuration": configuration_sha256}
    return sha256_of(canonical_bytes(parts))


def input_hash(hypothesis: str, evidence: str, context: JsonObject) -> str:
    """The hash of all that a model was told of a pair."""
    return sha256_of(canonical_bytes({"hypothesis": hypothesis, "evidence": evidence, "context": context}))


def links_after(links: Links, record: AdjudicationRecord, source: str) -> Links:
    """The links once `record` has been applied; `source` is its evidence's. The only way a link comes and goes."""
    answer = record.interpretation
    decision = decide(record.reason if answer is None else answer, record.thresholds)
    match decision.effect:
        case Effect.KEEP:
            return links
        case Effect.UNLINK:
            return {evidence_id: link for evidence_id, link in links.items() if evidence_id != record.evidence_id}
        case Effect.LINK:
            assert answer is not None  # noqa: S101 - `decide` links on an answer alone
            link = Link.model_validate(
                {
                    "relation": decision.relation,
                    "relevance": answer.relevance,
                    "confidence": answer.confidence,
                    "source": source,
                    "record_id": record.reused_from or record.record_id,
                }
            )
            return {**links, record.evidence_id: link}


def is_decided_by_code(record: AdjudicationRecord) -> bool:
    """Whether relation, effect and reason are what the rules make of the interpretation."""
    answer = record.interpretation
    decision = decide(record.reason if answer is None else answer, record.thresholds)
    return (record.relation, record.effect, record.reason) == (decision.relation, decision.effect, decision.reason)


def is_true_to_its_hash(fact: Hypothesis | Evidence) -> bool:
    """Whether a hypothesis or a piece of evidence has the hash of its own content."""
    if isinstance(fact, Hypothesis):
        return fact.sha256 == hypothesis_hash(fact.text, fact.importance)
    return fact.sha256 == evidence_hash(fact.text, fact.source)
