"""The policies that the documents show are policies."""

import re
from pathlib import Path

from app.api.examples import GATE_REQUEST
from app.gates.model import GateRequest
from app.gates.policy import Policy, parse_policy

DOCS = Path(__file__).parent.parent.parent / "docs"


def test_the_example_file_is_a_policy() -> None:
    """With its optional lines in, too."""
    text = (DOCS / "gate.toml").read_text(encoding="utf-8")
    assert len(parse_policy(text).floors) == 4
    full = parse_policy(re.sub(r"^# (?=[a-z_]+ = )", "", text, flags=re.M))
    assert (full.proof, full.labels, full.min_judge_coverage) == ("point", "binary", 0.9)


def test_the_policies_in_the_text_are_policies() -> None:
    blocks = re.findall(r"```toml\n(.*?)```", (DOCS / "gates.md").read_text(encoding="utf-8"), flags=re.S)
    assert blocks
    for block in blocks:
        assert isinstance(parse_policy(block), Policy)


def test_the_example_request_holds_a_policy() -> None:
    assert parse_policy(GateRequest(**GATE_REQUEST).policy).regressions
