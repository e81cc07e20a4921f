"""Verdicts for machines and for GitHub: whatever text is in them, the document stays what it is."""

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.gates.model import decision_json
from app.gates.render_junit import render_junit
from app.gates.render_markdown import code, render_markdown
from tests.unit.gate_verdicts import a_verdict

HOSTILE = st.text(
    alphabet=st.one_of(st.sampled_from("|`<>&\"'\\\n\r\x00\x1b\u202e\ud800\uffff@#[]()*_]~ "), st.characters())
)


def test_a_verdict_leaves_out_what_does_not_apply() -> None:
    """Exactly the fields that the API promises."""
    body = decision_json(a_verdict())
    assert set(body) == {
        "run_id",
        "baseline_run_id",
        "verdict",
        "rules",
        "comparison",
        "policy_sha256",
        "decided_at",
    }
    always = {"name", "metric", "status", "observed", "interval", "threshold", "n", "reason"}
    assert [set(rule) - always for rule in body["rules"]] == [{"label"}, {"slice", "n_needed"}, set(), set(), set()]


def test_junit_counts_blocks_as_failures_and_doubt_as_errors() -> None:
    root = ET.fromstring(render_junit(decision_json(a_verdict())))  # noqa: S314 - our own text
    suite = root.find("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("5", "1", "2")
    children = {case.get("name"): [child.tag for child in case] for case in suite.iter("testcase")}
    assert children == {
        "blocked": ["failure"],
        "unsure": ["error"],
        "gone": ["error"],
        "close": ["system-out"],
        "fine": [],
    }
    properties = {one.get("name"): one.get("value") for one in suite.iter("property")}
    assert properties["verdict"] == "BLOCK"


def test_junit_writes_intervals_and_slices_as_people_read_them() -> None:
    """And as the rules' names do."""
    root = ET.fromstring(render_junit(decision_json(a_verdict())))  # noqa: S314 - our own text
    details = {case.get("name"): "".join(child.text for child in case if child.text) for case in root.iter("testcase")}
    assert "interval: 0.1000 to 0.3000" in details["blocked"].splitlines()
    assert "slice: /input/kind is high" in details["unsure"].splitlines()
    assert "{" not in "".join(details.values())


SCHEMA = {
    "testsuites": ({"name", "tests", "failures", "errors", "skipped", "time"}, {"testsuite"}),
    "testsuite": ({"name", "tests", "failures", "errors", "skipped", "time", "timestamp"}, {"properties", "testcase"}),
    "properties": (set(), {"property"}),
    "property": ({"name", "value"}, set()),
    "testcase": ({"name", "classname", "time"}, {"failure", "error", "system-out"}),
    "failure": ({"type", "message"}, set()),
    "error": ({"type", "message"}, set()),
    "system-out": (set(), set()),
}
"""Of each element the attributes that it has and the elements that may stand in it, as readers of JUnit's XML ask."""


def test_junit_has_the_elements_and_attributes_that_its_readers_ask_for() -> None:
    root = ET.fromstring(render_junit(decision_json(a_verdict())))  # noqa: S314 - our own text
    assert root.tag == "testsuites"
    for element in root.iter():
        attributes, children = SCHEMA[element.tag]
        assert set(element.attrib) == attributes
        assert {child.tag for child in element} <= children
        for name in {"tests", "failures", "errors", "skipped", "time"} & attributes:
            assert float(element.attrib[name]) >= 0
    assert next(child.tag for child in root.find("testsuite")) == "properties"


@settings(deadline=None)
@given(HOSTILE, HOSTILE, HOSTILE)
def test_junit_is_well_formed_whatever_the_text(name: str, label: str, reason: str) -> None:
    """What XML can't carry is replaced; nothing breaks out of its element."""
    text = render_junit(decision_json(a_verdict(name=name, label=label, reason=reason)))
    root = ET.fromstring(text.encode())  # noqa: S314 - our own text
    assert len(list(root.iter("testcase"))) == 5
    assert {child.tag for child in root.iter()} == {
        *("testsuites", "testsuite", "properties", "property", "testcase", "failure", "error", "system-out")
    }


@settings(deadline=None)
@given(HOSTILE, HOSTILE, HOSTILE)
def test_markdown_keeps_its_table_whatever_the_text(name: str, label: str, reason: str) -> None:
    """One row a rule, seven cells a row, every foreign text in a code span of one line."""
    lines = render_markdown(decision_json(a_verdict(name=name, label=label, reason=reason))).split("\n")
    rows = lines[lines.index("|---|---|---:|---|---:|---:|---|") + 1 :][:5]
    for row in rows:
        assert row.count("|") == 8
    assert all(not row.startswith("| |") for row in rows)
    assert not any(char in "".join(lines) for char in "\x00\x1b\u202e\r")


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("plain", "`plain`"),
        ("a`b", "``a`b``"),
        ("`", "`` ` ``"),
        ("``a", "``` ``a ```"),
        ("a|b\\|", "`a¦b\\¦`"),
        ("", "`  `"),
        ("a\nb", "`a\ufffdb`"),
        ("@team <img src=x> [x](y)", "`@team <img src=x> [x](y)`"),
    ],
)
def test_a_code_span_holds_any_text(text: str, span: str) -> None:
    """The fence is longer than any run of backticks inside, and no bar ends the cell."""
    assert code(text) == span


def test_markdown_says_the_verdict_first() -> None:
    text = render_markdown(decision_json(a_verdict()))
    assert text.startswith("## ⛔ Gate: BLOCK\n")
    assert "needs 1,234" in text
