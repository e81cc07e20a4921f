"""What a PromQL expression or a TraceQL query names, and how Debian's promtool is asked."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool (package `prometheus`) is not installed")

_VARIABLES = {"$__rate_interval": "5m", "$__range": "6h", "$service": ".*", "$system": ".*", "${service:pipe}": ".*"}
_SELECTOR = re.compile(r"\b([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(\{[^}]*\})?")
_MATCHER = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_WORDS = frozenset(
    re.findall(
        r"\w+",
        "sum max min avg rate increase histogram_quantile by without on ignoring group_left group_right or and unless "
        "bool absent clamp_max clamp_min vector offset count",
    )
)


def plain(query: str) -> str:
    """The query with Grafana's variables filled in."""
    for name, value in _VARIABLES.items():
        query = query.replace(name, value)
    return query


@dataclass
class Named:
    """Metric names with their matchers, and the labels that are grouped by."""

    metrics: dict[str, list[tuple[str, str, str]]] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)


def names_in(expr: str) -> Named:
    """What an expression refers to."""
    expr = plain(expr)
    found = Named()
    for labels in _GROUPING.findall(expr):
        found.groups |= {label.strip() for label in labels.split(",") if label.strip()}
    bare = re.sub(r"\[[^\]]*\]", "", _GROUPING.sub("", expr))
    for name, matchers in _SELECTOR.findall(bare):
        if name not in _WORDS and not name.isdigit() and ("_" in name or ":" in name):
            found.metrics.setdefault(name, []).extend(_MATCHER.findall(matchers))
        bare = bare.replace(matchers, "", 1) if matchers else bare
    return found


def check(rules: str, *, folder: str) -> subprocess.CompletedProcess[str]:
    """What promtool thinks of a rule file."""
    return subprocess.run(
        [str(PROMTOOL), "check", "rules", rules], cwd=folder, capture_output=True, text=True, check=False
    )


def as_rules(expressions: Iterable[str]) -> str:
    """A rule file that holds every expression."""
    lines = ["groups:", "- name: queries", "  rules:"]
    for number, expr in enumerate(expressions):
        lines += [f"  - record: query:{number}", f"    expr: |-\n      {plain(expr)}"]
    return "\n".join(lines) + "\n"
