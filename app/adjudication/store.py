"""Hypotheses, evidence, assertions and syntheses in the store: each once by its content, as canonical bytes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import Column, Connection, Table, insert, select

from app.adjudication.model import (
    Assertion,
    Evidence,
    Hypothesis,
    HypothesisView,
    Page,
    Transition,
)
from app.adjudication.rules import match_hash, same_evidence_hash, sealed
from app.adjudication.tables import assertions, evidence, hypotheses, links, transitions
from app.store.database import Database
from app.store.paging import decode_cursor, encode_cursor
from layers.adjudication_rules import UNLINKED, Link, Qualification, standing_of
from layers.canonical import canonical_bytes, sha256_of
from layers.model import Value

V = TypeVar("V", bound=Value)

_SOME = 500
"""Ids in one query."""


class FactStore:
    """What is stated and shown. Adding what is there already answers what is there."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_hypothesis(self, hypothesis: Hypothesis, said: Sequence[Assertion] = ()) -> tuple[Hypothesis, bool]:
        """The hypothesis, or the one that matches it and keeps its relationships, with what `said` adds.

        The second value says whether it was there already. The assertions' hypothesis is set here.
        """

        def work(conn: Connection) -> tuple[Hypothesis, bool]:
            stored, existing = insert_hypothesis(conn, hypothesis)
            for each in said:
                insert_assertion(conn, each.model_copy(update={"hypothesis_id": stored.hypothesis_id}))
            return stored, existing

        return await self._database.write(work)

    async def add_evidence(self, piece: Evidence) -> Evidence:
        """The piece of evidence, or the one of the same content."""

        return await self._database.write(lambda conn: insert_evidence(conn, piece))

    async def add_assertion(self, assertion: Assertion) -> Assertion:
        """The assertion, or the same one that its author made before."""
        return await self._database.write(lambda conn: insert_assertion(conn, assertion))

    # --- reading ------------------------------------------------------------------------------------------------------

    async def hypothesis(self, hypothesis_id: str) -> HypothesisView | None:
        """One hypothesis with its links and what was asserted of it."""

        def look(conn: Connection) -> HypothesisView | None:
            record = conn.scalar(select(hypotheses.c.record).where(hypotheses.c.hypothesis_id == hypothesis_id))
            if record is None:
                return None
            own = load_links(conn, [hypothesis_id]).get(hypothesis_id, {})
            query = select(assertions.c.record).where(assertions.c.hypothesis_id == hypothesis_id)
            said = conn.scalars(query.order_by(assertions.c.assertion_id)).all()
            return HypothesisView(
                **Hypothesis.model_validate_json(record).model_dump(),
                standing=standing_of(own.values()),
                links=own,
                assertions=tuple(Assertion.model_validate_json(each) for each in said),
            )

        return await self._database.read(look)

    async def hypotheses(
        self, qualification: Qualification | None, limit: int, cursor: str | None
    ) -> Page[HypothesisView]:
        """Hypotheses as they stand, newest first."""
        conditions = [] if qualification is None else [hypotheses.c.qualification == qualification.value]

        def look(conn: Connection) -> Page[HypothesisView]:
            page = page_of(conn, hypotheses, hypotheses.c.hypothesis_id, Hypothesis, conditions, limit, cursor)
            found = load_links(conn, [each.hypothesis_id for each in page.items])
            items = tuple(
                HypothesisView(**each.model_dump(), standing=standing_of(found.get(each.hypothesis_id, {}).values()))
                for each in page.items
            )
            return Page[HypothesisView](items=items, next_cursor=page.next_cursor)

        return await self._database.read(look)

    async def evidence(self, evidence_id: str) -> Evidence | None:
        """One piece of evidence."""
        query = select(evidence.c.record).where(evidence.c.evidence_id == evidence_id)
        record = await self._database.read(lambda conn: conn.scalar(query))
        return None if record is None else Evidence.model_validate_json(record)

    async def evidence_page(self, limit: int, cursor: str | None) -> Page[Evidence]:
        """Pieces of evidence, newest first."""
        return await self._database.read(
            lambda conn: page_of(conn, evidence, evidence.c.evidence_id, Evidence, [], limit, cursor)
        )

    async def pieces(self, ids: Sequence[str]) -> list[Evidence]:
        """Pieces of evidence in the order of `ids`; those that there are not are left out."""
        found = await self._database.read(lambda conn: _by_id(conn, evidence, evidence.c.evidence_id, ids))
        return [Evidence.model_validate_json(found[each]) for each in ids if each in found]

    async def statements(self, ids: Sequence[str]) -> list[Hypothesis]:
        """Hypotheses in the order of `ids`; those that there are not are left out."""
        found = await self._database.read(lambda conn: _by_id(conn, hypotheses, hypotheses.c.hypothesis_id, ids))
        return [Hypothesis.model_validate_json(found[each]) for each in ids if each in found]

    async def missing(self, hypothesis_ids: Collection[str], evidence_ids: Collection[str]) -> list[str]:
        """Those of the ids that there are not, in order."""

        def look(conn: Connection) -> list[str]:
            known = _by_id(conn, hypotheses, hypotheses.c.hypothesis_id, list(hypothesis_ids)).keys()
            shown = _by_id(conn, evidence, evidence.c.evidence_id, list(evidence_ids)).keys()
            return [*(i for i in hypothesis_ids if i not in known), *(i for i in evidence_ids if i not in shown)]

        return await self._database.read(look)

    async def transitions(self, hypothesis_id: str, limit: int, cursor: str | None) -> Page[Transition]:
        """How a hypothesis came to stand as it does, oldest first."""
        query = select(transitions).where(transitions.c.hypothesis_id == hypothesis_id).order_by(transitions.c.turn)
        if cursor is not None:
            (last,) = decode_cursor(cursor, int)
            query = query.where(transitions.c.turn > last)
        rows = await self._database.read(lambda conn: conn.execute(query.limit(limit + 1)).all())
        more = encode_cursor(rows[limit - 1].turn) if len(rows) > limit else None
        items = tuple(Transition.model_validate_json(row.record) for row in rows[:limit])
        return Page[Transition](items=items, next_cursor=more)


# --- in a transaction ------------------------------------------------------------------------------------------------


def insert_hypothesis(conn: Connection, hypothesis: Hypothesis) -> tuple[Hypothesis, bool]:
    """Insert a hypothesis without support, unless one matches it; the one that is there, and whether it was before."""
    matching = match_hash(hypothesis.text)
    known = conn.scalar(select(hypotheses.c.record).where(hypotheses.c.match_hash == matching))
    if known is not None:
        return Hypothesis.model_validate_json(known), True
    row = {
        "hypothesis_id": hypothesis.hypothesis_id,
        "match_hash": matching,
        "origin": hypothesis.origin.value,
        "turns": 0,
        "qualification": UNLINKED.qualification.value,
        "record": sealed(hypothesis),
    }
    conn.execute(insert(hypotheses).values(row))
    return hypothesis, False


def insert_evidence(conn: Connection, piece: Evidence) -> Evidence:
    """Insert a piece of evidence, unless it is there."""
    content = same_evidence_hash(piece.text, piece.source)
    known = conn.scalar(select(evidence.c.record).where(evidence.c.content_hash == content))
    if known is not None:
        return Evidence.model_validate_json(known)
    row = {"evidence_id": piece.evidence_id, "content_hash": content, "record": sealed(piece)}
    conn.execute(insert(evidence).values(row))
    return piece


def assertion_hash(assertion: Assertion) -> str:
    """Assertions of the same hash are one: the same author says the same of the same pair."""
    return sha256_of(canonical_bytes(assertion.model_dump(mode="json", exclude={"assertion_id", "created_at"})))


def insert_assertion(conn: Connection, assertion: Assertion) -> Assertion:
    """Insert an assertion, unless it is there."""
    content = assertion_hash(assertion)
    known = conn.scalar(select(assertions.c.record).where(assertions.c.content_hash == content))
    if known is not None:
        return Assertion.model_validate_json(known)
    row = {
        "assertion_id": assertion.assertion_id,
        "content_hash": content,
        "hypothesis_id": assertion.hypothesis_id,
        "record": sealed(assertion),
    }
    conn.execute(insert(assertions).values(row))
    return assertion


def load_links(conn: Connection, ids: Sequence[str]) -> dict[str, dict[str, Link]]:
    """The links of some hypotheses, by hypothesis and by evidence."""
    found: dict[str, dict[str, Link]] = {}
    for start in range(0, len(ids), _SOME):
        query = select(links).where(links.c.hypothesis_id.in_(ids[start : start + _SOME]))
        for row in conn.execute(query.order_by(links.c.hypothesis_id, links.c.evidence_id)):
            found.setdefault(row.hypothesis_id, {})[row.evidence_id] = Link.model_validate_json(row.link)
    return found


def page_of(
    conn: Connection,
    table: Table,
    key: Column[str],
    model: type[V],
    conditions: Sequence[Any],
    limit: int,
    cursor: str | None,
) -> Page[V]:
    """Records newest first, at most `limit`. Raises `BadRequest` for a foreign cursor."""
    query = select(key.label("key"), table.c.record).where(*conditions).order_by(key.desc()).limit(limit + 1)
    if cursor is not None:
        (last,) = decode_cursor(cursor, str)
        query = query.where(key < last)
    rows = conn.execute(query).all()
    more = encode_cursor(rows[limit - 1].key) if len(rows) > limit else None
    items = tuple(model.model_validate_json(row.record) for row in rows[:limit])
    return Page[V](items=items, next_cursor=more)


def _by_id(conn: Connection, table: Table, key: Column[str], ids: Sequence[str]) -> Mapping[str, bytes]:
    found: dict[str, bytes] = {}
    for start in range(0, len(ids), _SOME):
        query = select(key.label("key"), table.c.record).where(key.in_(ids[start : start + _SOME]))
        found |= {row.key: bytes(row.record) for row in conn.execute(query)}
    return found
