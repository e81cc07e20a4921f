"""A classifier's rubric, cut out of the classifier's own prompt: there is no second copy that could go stale."""

from __future__ import annotations

import re
from dataclasses import dataclass

from layers.canonical import sha256_of
from layers.errors import ConfigurationError

MAX_RULES = 200

_ID = r"[A-Za-z]{1,12}[-_.]?[0-9]{1,4}(?:\.[0-9]{1,3}){0,3}"
_OWN_ID = re.compile(
    rf"(?:[-*+]\s+)?(?:\*\*)?(?:[\[(](?P<within>{_ID})[\])](?:\*\*)?\s*[:.-]?|(?P<bare>{_ID})(?:\*\*)?\s*[:.)-])\s"
)
_NUMBERED = re.compile(r"(?P<id>[0-9]{1,4}(?:\.[0-9]{1,3}){0,3})[.):]?\s")
_BULLET = re.compile(r"[-*+]\s+\S")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule as the prompt words it, and the id by which it is cited; none = a heading or a remark."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Rubric:
    """`text` is a verbatim piece of the prompt; `parts` are its paragraphs in order, those that are no rule without id.

    The ids are unique.
    """

    text: str
    parts: tuple[Rule, ...]

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The parts that can be cited."""
        return tuple(part for part in self.parts if part.id)

    @property
    def ids(self) -> frozenset[str]:
        """What a challenge can cite."""
        return frozenset(rule.id for rule in self.rules)

    @property
    def sha256(self) -> str:
        """The hash of the verbatim text."""
        return sha256_of(self.text.encode())


def cut_rubric(prompt: str, begin: str, end: str | None = None) -> Rubric:
    """The rubric between the line `begin` and the next line `end` of `prompt`; without `end` up to the prompt's end.

    A rule begins on a line with an id of its own (`C3: ...`, `[R-2] ...`), a number (`4. ...` is cited as `R4`) or a
    bullet (cited as `R1`, `R2`, ... by its place); the lines below belong to it up to the next rule or an empty line.
    Raises `ConfigurationError` where the lines are not there exactly once, or no rule or a repeated id is between them.
    """
    lines = prompt.splitlines(keepends=True)
    first = _only(lines, begin) + 1
    last = len(lines) if end is None else _next(lines, end, first)
    text = "".join(lines[first:last])
    rubric = Rubric(text, tuple(_parts(lines[first:last])))
    rules = rubric.rules
    if not rules:
        raise ConfigurationError(f"the rubric below the line {begin!r} has no rules: begin each with an id or a bullet")
    if len(rules) > MAX_RULES:
        raise ConfigurationError(f"the rubric has more than {MAX_RULES} rules")
    seen: set[str] = set()
    for rule in rules:
        if rule.id in seen:
            raise ConfigurationError(f"two rules of the rubric have the id {rule.id}")
        seen.add(rule.id)
    return rubric


def _only(lines: list[str], wanted: str) -> int:
    at = [number for number, line in enumerate(lines) if line.strip() == wanted.strip()]
    if len(at) != 1:
        raise ConfigurationError(f"the classifier's prompt must have the line {wanted!r} once, not {len(at)} times")
    return at[0]


def _next(lines: list[str], wanted: str, start: int) -> int:
    for number in range(start, len(lines)):
        if lines[number].strip() == wanted.strip():
            return number
    raise ConfigurationError(f"the classifier's prompt has no line {wanted!r} below its rubric")


def _parts(lines: list[str]) -> list[Rule]:
    found: list[tuple[str, list[str]]] = []
    n_rules, inside = 0, False
    for line in lines:
        text = line.strip()
        rule_id = _id_of(text, n_rules + 1)
        if rule_id is not None:
            n_rules += 1
        if text and (rule_id is not None or not inside):
            found.append((rule_id or "", [text]))
        elif text:
            found[-1][1].append(text)
        inside = bool(text)
    return [Rule(rule_id, "\n".join(texts)) for rule_id, texts in found]


def _id_of(text: str, place: int) -> str | None:
    if (match := _OWN_ID.match(text)) is not None:
        return match["within"] or match["bare"]
    if (match := _NUMBERED.match(text)) is not None:
        return f"R{match['id']}"
    return f"R{place}" if _BULLET.match(text) else None
