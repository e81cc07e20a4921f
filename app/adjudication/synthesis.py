"""Patterns in failures and evidence: clusters by counting, and the question that a model is asked about them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pydantic import ValidationError

from app.adjudication.synthesis_model import MAX_PIECES, MAX_PROPOSALS, MAX_THEMES, Cluster, Written
from layers.canonical import canonical_bytes
from layers.model import JsonObject
from layers.prompting import Prompt, quoted_lines
from layers.reply import ReplyFailure, read_object
from layers.structured_call import Parameters, Question

SCHEMA_VERSION = "1"
MAX_CLUSTERS = 200
MAX_DISTINCT = 20
"""Values of a field beyond which it cuts nothing."""
SHOWN = 5
MAX_PIECE_CHARS = 1_000
MAX_SLICE_TEXT = 200


@dataclass(frozen=True, slots=True)
class Observation:
    """One thing to cluster. `cell` is the cluster it is chosen from; `cuts` are further ones, `text` what is shown."""

    ref: str
    text: str
    cell: tuple[str, JsonObject]
    cuts: tuple[tuple[str, JsonObject], ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """One example that a run got wrong (`scored`), or that it could not score (`error_kind`)."""

    example_id: str
    expected: str
    scored: str | None
    error_kind: str | None
    input: JsonObject = field(default_factory=dict)
    group: str | None = None


def observe_failures(failures: Sequence[Failure]) -> list[Observation]:
    """Failures by cell of the confusion matrix or kind of failure, cut along the fields of their input."""
    return [
        Observation(
            failure.example_id,
            canonical_bytes(_shown(failure)).decode()[:MAX_PIECE_CHARS],
            _cell(failure),
            tuple(_cuts(failure)),
        )
        for failure in failures
    ]


def _cell(failure: Failure) -> tuple[str, JsonObject]:
    if failure.scored is None:
        return "failure", {"expected": failure.expected, "kind": failure.error_kind or "internal"}
    return "confusion", {"expected": failure.expected, "scored": failure.scored}


def _shown(failure: Failure) -> JsonObject:
    return {
        "expected": failure.expected,
        "scored": failure.scored,
        "failed_as": failure.error_kind,
        "group": failure.group,
        "input": failure.input,
    }


def _cuts(failure: Failure) -> Iterable[tuple[str, JsonObject]]:
    if failure.group is not None:
        yield "slice", {"at": "/group", "is": failure.group}
    for name, value in failure.input.items():
        if value is None or isinstance(value, dict | list) or (isinstance(value, str) and len(value) > MAX_SLICE_TEXT):
            continue
        yield "slice", {"at": f"/input/{name.replace('~', '~0').replace('/', '~1')}", "is": value}


def clusters_of(observations: Sequence[Observation]) -> tuple[Cluster, ...]:
    """Every cluster with its count, largest first; a field with more than `MAX_DISTINCT` values cuts nothing."""
    members: defaultdict[bytes, list[str]] = defaultdict(list)
    named: dict[bytes, tuple[str, JsonObject]] = {}
    for observation in observations:
        for by, of in (observation.cell, *observation.cuts):
            key = canonical_bytes([by, of])
            named[key] = (by, of)
            members[key].append(observation.ref)
    distinct: defaultdict[tuple[str, str], int] = defaultdict(int)
    for by, of in named.values():
        distinct[by, str(of.get("at"))] += 1
    kept = [key for key, (by, of) in named.items() if by != "slice" or distinct[by, str(of["at"])] <= MAX_DISTINCT]
    kept.sort(key=lambda key: (-len(members[key]), key))
    return tuple(
        Cluster(by=named[key][0], of=named[key][1], n=len(members[key]), examples=tuple(sorted(members[key])[:SHOWN]))
        for key in kept[:MAX_CLUSTERS]
    )


def choose(observations: Sequence[Observation], limit: int = MAX_PIECES) -> list[Observation]:
    """At most `limit` observations, in turn from every cell, the largest first: a rare failure is seen as well."""
    cells: defaultdict[bytes, list[Observation]] = defaultdict(list)
    for observation in sorted(observations, key=lambda each: each.ref):
        cells[canonical_bytes(list(observation.cell))].append(observation)
    queues = [iter(cells[key]) for key in sorted(cells, key=lambda key: (-len(cells[key]), key))]
    chosen: list[Observation] = []
    while queues and len(chosen) < limit:
        for queue in list(queues):
            taken = next(queue, None)
            if taken is None:
                queues.remove(queue)
            elif len(chosen) < limit:
                chosen.append(taken)
    return chosen


# --- the question -----------------------------------------------------------------------------------------------------


def synthesis_question(
    prompt: Prompt, clusters: Sequence[Cluster], pieces: Mapping[str, str], parameters: Parameters
) -> Question[Written | str]:
    """The question about numbered pieces (`E1` to its text). All that others wrote is quoted."""
    values = {
        "clusters": quoted_lines({"by": each.by, "of": each.of, "n": each.n} for each in clusters[:30]),
        "evidence": quoted_lines({"id": name, "text": text} for name, text in pieces.items()),
        "max_themes": str(MAX_THEMES),
        "max_hypotheses": str(MAX_PROPOSALS),
    }
    read = partial(read_written, known=frozenset(pieces))
    return Question(prompt, values, written_schema(list(pieces)), read, parameters)


def written_schema(ids: Sequence[str]) -> JsonObject:
    """The JSON schema of a synthesis that may point to `ids`."""
    pointers = {"type": "array", "items": {"type": "string", "enum": list(ids)}, "minItems": 1}
    text = {"type": "string"}
    theme = _object({"title": text, "summary": text, "evidence_ids": pointers})
    draft = _object({"statement": text, "evidence_ids": pointers})
    return _object(
        {
            "themes": {"type": "array", "items": theme, "maxItems": MAX_THEMES},
            "hypotheses": {"type": "array", "items": draft, "maxItems": MAX_PROPOSALS},
        }
    )


def _object(properties: JsonObject) -> JsonObject:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def read_written(text: str, known: Collection[str]) -> Written | str:
    """A model's whole reply, or why it is void; never raises. One unknown citation voids all of it."""
    try:
        value = read_object(text).value
        written = Written.model_validate(_renamed(value))
    except ReplyFailure as exc:
        return exc.kind
    except ValidationError as exc:
        return "too_much" if any(error["type"] == "too_long" for error in exc.errors()) else "malformed"
    cited = [theme.evidence_ids for theme in written.themes] + [draft.evidence_ids for draft in written.hypotheses]
    return "unknown_citation" if {name for ids in cited for name in ids} - set(known) else written


def _renamed(value: JsonObject) -> Any:
    """`statement` as the `text` that it becomes; what is of another shape is left for validation to refuse."""
    drafts = value.get("hypotheses")
    if not isinstance(drafts, list):
        return value
    return {**value, "hypotheses": [_one_renamed(draft) for draft in drafts]}


def _one_renamed(draft: Any) -> Any:
    if not isinstance(draft, dict) or "text" in draft or "statement" not in draft:
        return "not a draft"
    return {("text" if name == "statement" else name): item for name, item in draft.items()}
