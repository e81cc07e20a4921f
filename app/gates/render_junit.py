"""A gate verdict as JUnit XML, for tools that show test results."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree as ET

from app.gates.model import slice_value
from app.gates.render_markdown import number
from layers.model import JsonObject

_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 can't carry, not even escaped."""

_ELEMENTS = {"BLOCK": "failure", "MISSING": "error", "INCONCLUSIVE": "error"}
_PROPERTIES = ("run_id", "baseline_run_id", "verdict", "policy_sha256", "decided_at")


def render_junit(verdict: JsonObject) -> str:
    """One test case a rule: BLOCK is a failure, MISSING and INCONCLUSIVE are errors, WARN passes with output.

    `verdict` is a `GateVerdict` as JSON. Text in it may hold anything.
    """
    rules = verdict["rules"]
    kinds = [_ELEMENTS.get(rule["status"]) for rule in rules]
    counts = {
        "tests": str(len(rules)),
        "failures": str(kinds.count("failure")),
        "errors": str(kinds.count("error")),
        "skipped": "0",
        "time": "0",
    }
    root = ET.Element("testsuites", {"name": "arbiter-l8 gate", **counts})
    name = clean(f"gate on run {verdict['run_id']}")
    suite = ET.SubElement(root, "testsuite", {"name": name, "timestamp": clean(verdict["decided_at"]), **counts})
    properties = ET.SubElement(suite, "properties")
    for key in _PROPERTIES:
        ET.SubElement(properties, "property", {"name": key, "value": clean(verdict.get(key) or "")})
    for rule in rules:
        _case(suite, rule)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def clean(value: Any) -> str:
    """Text that XML can carry; what it can't is replaced."""
    return _ILLEGAL.sub("\ufffd", str(value))


def _written(value: Any) -> Any:
    """A part of a rule as people read it: an interval as "low to high", a slice by its path and value."""
    match value:
        case {"low": low, "high": high}:
            return f"{number(low)} to {number(high)}"
        case {"path": path, "value": part}:
            return f"{path} is {slice_value(part)}"
        case float():
            return number(value)
        case _:
            return value


def _case(suite: ET.Element, rule: JsonObject) -> None:
    names = {"name": clean(rule["name"]), "classname": clean(f"gate.{rule['metric']}"), "time": "0"}
    case = ET.SubElement(suite, "testcase", names)
    details = "\n".join(f"{key}: {clean(_written(rule[key]))}" for key in sorted(rule) if rule[key] is not None)
    element = _ELEMENTS.get(rule["status"])
    if element is not None:
        attributes = {"type": clean(rule["status"]), "message": clean(rule["reason"])}
        ET.SubElement(case, element, attributes).text = details
    elif rule["status"] != "PASS":
        ET.SubElement(case, "system-out").text = details
