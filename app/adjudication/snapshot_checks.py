"""Whether the facts of a snapshot follow from each other: every score is computed again from the records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from itertools import pairwise
from typing import Any

from app.adjudication.model import AdjudicationRecord, Evidence, Hypothesis, Transition
from app.adjudication.record_store import FINISHED, transition_of
from app.adjudication.rules import (
    Links,
    adjudication_key,
    input_hash,
    is_decided_by_code,
    is_true_to_its_hash,
    links_after,
    match_hash,
    same_evidence_hash,
)
from app.adjudication.snapshot_lines import EndedRun, Facts, SnapshotRefused
from app.adjudication.store import assertion_hash
from app.adjudication.synthesis_model import SynthesisRecord
from layers.adjudication import Outcome


def check(facts: Facts) -> dict[str, Links]:
    """The links that follow from a snapshot's records, by hypothesis. Raises `SnapshotRefused`."""
    _ascending(facts["evidence"], lambda piece: piece.evidence_id)
    _ascending(facts["hypothesis"], lambda hypothesis: hypothesis.hypothesis_id)
    _ascending(facts["assertion"], lambda assertion: assertion.assertion_id)
    _ascending(facts["run"], lambda ended: ended.run.run_id)
    _ascending(facts["adjudication"], lambda record: (record.hypothesis_id, record.turn))
    _ascending(facts["synthesis"], lambda synthesis: synthesis.synthesis_id)
    _once("statement", (match_hash(each.text) for each in facts["hypothesis"]))
    _once("piece of evidence", (same_evidence_hash(each.text, each.source) for each in facts["evidence"]))
    _once("assertion", map(assertion_hash, facts["assertion"]))
    _once("synthesis", (each.key for each in facts["synthesis"]))
    _once("record", (each.record_id for each in facts["adjudication"]))
    pairs = ((each.run_id, each.hypothesis_id, each.evidence_id) for each in facts["adjudication"])
    _once("pair of a run", pairs)
    world = _World(facts)
    for assertion in facts["assertion"]:
        world.pair(assertion.hypothesis_id, assertion.evidence_id)
    for record in facts["adjudication"]:
        world.check_record(record)
    for ended in facts["run"]:
        world.check_run(ended)
    for synthesis in facts["synthesis"]:
        world.check_synthesis(synthesis)
    return _replay(facts, world)


class _World:
    """The facts by their ids."""

    def __init__(self, facts: Facts) -> None:
        self.hypotheses: dict[str, Hypothesis] = {each.hypothesis_id: each for each in facts["hypothesis"]}
        self.evidence: dict[str, Evidence] = {each.evidence_id: each for each in facts["evidence"]}
        self.runs: dict[str, EndedRun] = {each.run.run_id: each for each in facts["run"]}
        self.records: dict[str, AdjudicationRecord] = {each.record_id: each for each in facts["adjudication"]}
        self.done: defaultdict[str, int] = defaultdict(int)
        for record in self.records.values():
            self.done[record.run_id] += 1
        true = [*map(is_true_to_its_hash, self.hypotheses.values()), *map(is_true_to_its_hash, self.evidence.values())]
        _need(all(true), "a statement or a piece of evidence has not the hash of its content")

    def pair(self, hypothesis_id: str, evidence_id: str) -> tuple[Hypothesis, Evidence]:
        """Both sides of a pair."""
        _need(hypothesis_id in self.hypotheses and evidence_id in self.evidence, "something names what is not there")
        return self.hypotheses[hypothesis_id], self.evidence[evidence_id]

    def check_run(self, ended: EndedRun) -> None:
        """A run names what is there, and has ended only when each of its pairs has its record."""
        asked = ended.run.request
        hypotheses, pieces = set(asked.hypothesis_ids), set(asked.evidence_ids)
        _need(hypotheses <= self.hypotheses.keys() and pieces <= self.evidence.keys(), "a run names what is not there")
        n_pairs = len(hypotheses) * len(pieces)
        whole = ended.finished_at is None or self.done[ended.run.run_id] == n_pairs
        _need(ended.n_pairs == n_pairs and whole, "a run has not the records that it should have")

    def check_record(self, record: AdjudicationRecord) -> None:
        """A record is about a pair of its run, has the hashes of what it is about, and was decided by the rules."""
        hypothesis, piece = self.pair(record.hypothesis_id, record.evidence_id)
        ended = self.runs.get(record.run_id)
        _need(ended is not None, "a record belongs to no run")
        asked = ended.run.request if ended is not None else None
        is_asked = asked is not None and (
            record.hypothesis_id in asked.hypothesis_ids and record.evidence_id in asked.evidence_ids
        )
        _need(is_asked, "a record is about a pair that its run was not asked about")
        hashes = (hypothesis.sha256, piece.sha256)
        _need((record.hypothesis_sha256, record.evidence_sha256) == hashes, "a record is about another text")
        _need(record.key == adjudication_key(*hashes, record.configuration_sha256), "a record has a foreign key")
        told = input_hash(hypothesis.text, piece.text, record.context)
        _need(record.input_sha256 == told, "a record has not the hash of what its model was told")
        _need(record.context_ids == (record.hypothesis_id, record.evidence_id), "a record names another context")
        _need(is_decided_by_code(record) and _is_answered(record), "a record says what no answer in it says")
        _need(record.reused_from is None or self._is_reuse(record), "a record stands for another one")

    def _is_reuse(self, record: AdjudicationRecord) -> bool:
        original = self.records.get(record.reused_from or "")
        own = {"record_id", "run_id", "turn", "changed", "reused_from", "created_at"}
        return (
            original is not None
            and original.reused_from is None
            and original.outcome in FINISHED
            and original.model_dump(exclude=own) == record.model_dump(exclude=own)
        )

    def check_synthesis(self, synthesis: SynthesisRecord) -> None:
        """A synthesis cites its own pieces, and its proposals are stored."""
        known = {piece.id for piece in synthesis.pieces}
        cited = [*(theme.evidence_ids for theme in synthesis.themes), *(p.evidence_ids for p in synthesis.proposals)]
        _need({name for ids in cited for name in ids} <= known, "a synthesis cites what it was not shown")
        proposed = {proposal.hypothesis_id for proposal in synthesis.proposals}
        _need(proposed <= self.hypotheses.keys(), "a synthesis proposes what is not there")


def _is_answered(record: AdjudicationRecord) -> bool:
    """Whether the interpretation is one that an attempt brought, and the outcome fits it."""
    answers = [attempt.interpretation for attempt in record.attempts if attempt.interpretation is not None]
    if record.interpretation is not None:
        return record.outcome is Outcome.INTERPRETED and record.interpretation in answers
    return not answers and (record.outcome is not Outcome.LOW_RELEVANCE or not record.attempts)


def _replay(facts: Facts, world: _World) -> dict[str, Links]:
    links: dict[str, Links] = {}
    turns: defaultdict[str, int] = defaultdict(int)
    follows: list[Transition] = []
    for record in facts["adjudication"]:
        turns[record.hypothesis_id] += 1
        before = links.get(record.hypothesis_id, {})
        after = links_after(before, record, world.evidence[record.evidence_id].source)
        right = record.turn == turns[record.hypothesis_id] and record.changed == (after != before)
        _need(right, "a record is out of turn, or did not do what it says")
        links[record.hypothesis_id] = after
        if (transition := transition_of(record, before, after)) is not None:
            follows.append(transition)
    _need(follows == list(facts["transition"]), "the scores are not those that follow from the records")
    return links


def _ascending(facts: Iterable[Any], key: Callable[[Any], Any]) -> None:
    keys = [key(fact) for fact in facts]
    _need(all(one < other for one, other in pairwise(keys)), "facts are out of order, or twice there")


def _once(what: str, keys: Iterable[Hashable]) -> None:
    seen = list(keys)
    _need(len(set(seen)) == len(seen), f"the same {what} is there twice")


def _need(fine: bool, otherwise: str) -> None:
    if not fine:
        raise SnapshotRefused(f"the snapshot contradicts itself: {otherwise}")
