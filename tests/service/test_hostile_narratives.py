"""Hostile narratives through `/evaluate`: before a judge that says back what it read, and before an ordinary one.

`python -m tests.service.test_hostile_narratives` writes the table in docs/hostile-input.md anew.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.standins import (
    CONFIRMED,
    FLAGGED,
    Answer,
    Remote,
    ollama,
    ollama_at,
    parrot,
    playing,
    says,
    service,
    settings_for,
)

ROOT = Path(__file__).parents[2]
CASES = json.loads((ROOT / "tests" / "fixtures" / "hostile_narratives.json").read_text(encoding="utf-8"))
DOCUMENT = ROOT / "docs" / "hostile-input.md"
BEGIN, END = "<!-- outcomes -->\n", "<!-- end of outcomes -->\n"
HEAD = (
    "| narrative | said back, it is read as | and decided by | disposition | before an ordinary judge |\n"
    "|---|---|---|---|---|\n"
)


def body(case: dict[str, str]) -> bytes:
    """The flagged item with this narrative; not every narrative can be sent as JSON by every writer."""
    raw = {**FLAGGED["raw_output"], "narrative": case["narrative"]}
    return json.dumps({**FLAGGED, "id": case["name"], "raw_output": raw}).encode()


async def post(http: httpx.AsyncClient, case: dict[str, str]) -> dict[str, Any]:
    """The answer; `refused` with its status when there is none."""
    response = await http.post("/evaluate", content=body(case), headers={"content-type": "application/json"})
    return response.json() if response.status_code == 200 else {"refused": response.status_code}


def reading(said: dict[str, Any]) -> str:
    """How the judge's reply was read, in the words of the fixture."""
    if "refused" in said:
        return f"refused: {said['refused']}"
    judged = said["judge_verdict"]
    if judged["verdict_label"] is None:
        return str(judged["attempts"][0]["error_type"])
    return f"answer:{judged['verdict_label']}" + (":repaired" if judged["repaired"] else "")


async def outcomes(judge: Answer, folder: Path) -> dict[str, dict[str, Any]]:
    """The answer to each narrative, one after the other, from one service with its ordinary breakers."""
    async with playing(judge) as remote, _asking(remote, folder) as http:
        return {case["name"]: await post(http, case) for case in CASES}


def _asking(remote: Remote, folder: Path) -> AbstractAsyncContextManager[httpx.AsyncClient]:
    return service(settings_for(folder, ollama=ollama_at(remote.url)))


def row(name: str, parroted: dict[str, Any], ordinary: dict[str, Any]) -> str:
    decided = [said.get("decision", "") for said in (parroted, ordinary)]
    cells = [f"`{name}`", reading(parroted), decided[0], parroted.get("disposition", ""), decided[1]]
    return "| " + " | ".join(cell or "-" for cell in cells) + " |\n"


async def table(folder: Path) -> str:
    """Every narrative with its outcome."""
    (folder / "p").mkdir()
    (folder / "o").mkdir()
    parroted = await outcomes(parrot(), folder / "p")
    ordinary = await outcomes(says(ollama(CONFIRMED)), folder / "o")
    return HEAD + "".join(row(name, parroted[name], ordinary[name]) for name in parroted)


@pytest.fixture(scope="module")
def parroted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What is answered where the model says back what it read."""
    return asyncio.run(outcomes(parrot(), tmp_path_factory.mktemp("parroted")))


@pytest.fixture(scope="module")
def ordinary(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What is answered where it gives its verdict whatever it read."""
    return asyncio.run(outcomes(says(ollama(CONFIRMED)), tmp_path_factory.mktemp("ordinary")))


def test_no_two_are_the_same() -> None:
    assert len({case["name"] for case in CASES}) == len({case["narrative"] for case in CASES}) == len(CASES) == 57


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_reply_that_parrots_it_is_read_as_listed_and_clears_nothing(
    case: dict[str, str], parroted: dict[str, dict[str, Any]]
) -> None:
    """A verdict that a narrative dictated passes no item and earns no rung; what is no reply is no low score."""
    said = parroted[case["name"]]
    if "refused" in said:
        assert case["name"] == "lone_surrogate"
        return
    assert reading(said) == case["parroted"]
    assert said["disposition"] in {"review", "flag"}
    reasons = [claim for claim in said["judge_verdict"]["claims"] if claim["problems"] != ["mention_only"]]
    assert {claim["rung"] for claim in reasons} <= {"UNGROUNDED", "POINTER-LINKED"}
    assert said["compliance"]["violated"] == []
    assert said["judge_verdict"]["attempts"][0]["outcome"] != "skipped", "a narrative has opened the circuit"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_it_changes_nothing_in_how_an_ordinary_reply_is_read(
    case: dict[str, str], ordinary: dict[str, dict[str, Any]]
) -> None:
    said = ordinary[case["name"]]
    if "refused" not in said:
        assert (reading(said), said["assurance"]) == ("answer:high", "EVIDENCE-WARRANTED")
        assert said["judge_verdict"]["confidence"] == 0.9


def test_each_is_listed_with_its_outcome(
    parroted: dict[str, dict[str, Any]], ordinary: dict[str, dict[str, Any]]
) -> None:
    """docs/hostile-input.md shows what really happens."""
    listed = re.search(f"{BEGIN}(.*){END}", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert listed is not None
    assert listed[1] == HEAD + "".join(row(name, parroted[name], ordinary[name]) for name in parroted)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        found = asyncio.run(table(Path(made)))
    text = DOCUMENT.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    DOCUMENT.write_text(before + BEGIN + found + END + rest.partition(END)[2], encoding="utf-8")
