"""The guide to adding a system is true: its examples are run."""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from app.runs import run_eval
from app.systems import ENTRY_POINT_GROUP, SystemContext, load_plugins, load_profiles
from layers.errors import DependencyMalformed
from layers.ports import System
from tests.adapters.peers import over_handler

GUIDE = (Path(__file__).parents[2] / "docs" / "adding-a-system.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


@pytest.fixture
def adapter_module():
    """The guide's `triage_adapter.py`, importable while the test runs."""
    module = ModuleType("triage_adapter")
    exec(blocks("python")[0], module.__dict__)  # noqa: S102 - the guide's own code is what is tested
    sys.modules["triage_adapter"] = module
    yield module
    del sys.modules["triage_adapter"]


def classify(request: httpx.Request) -> httpx.Response:
    assert str(request.url) == "https://triage.example/api/classify"
    urgent = "fire" in json.loads(request.content)["text"]
    return httpx.Response(200, json={"class": "urgent" if urgent else "routine", "score": 0.9})


def load(client: Any) -> System:
    context = SystemContext({"TRIAGE_URL": "https://triage.example/api"}, lambda name: client)
    plugins = load_plugins(context, [EntryPoint("triage", "triage_adapter:triage", ENTRY_POINT_GROUP)])
    return plugins["triage"]


def test_the_adapter_is_short():
    """The guide promises that an adapter is about twenty lines."""
    code = [line for line in blocks("python")[0].splitlines() if line.strip() and "import" not in line]
    assert len(code) <= 20


@pytest.mark.anyio
async def test_the_adapter_scores_a_dataset(adapter_module: ModuleType):
    """Loaded by its entry point, it answers a run over the service's own client."""
    examples = [
        {"id": "1", "input": {"text": "fire in the hall"}, "expected_label": "urgent"},
        {"id": "2", "input": {"text": "new badge"}, "expected_label": "urgent"},
    ]
    async with over_handler(classify, "triage") as client:
        system = load(client)
        assert system.open is not None
        report = await run_eval(system.open(None), examples, profile=system.profile)
    assert (report.correct, report.total, report.n_failed) == (1, 2, 0)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "answer", [{"class": "urgent"}, {"class": "", "score": 0.5}, {"class": "urgent", "score": 2.0}, []]
)
async def test_the_adapter_names_garbage_as_such(adapter_module: ModuleType, answer: Any):
    """A reply that breaks its promise fails the example, not the run."""
    async with over_handler(lambda request: httpx.Response(200, json=answer), "triage") as client:
        system = load(client)
        assert system.open is not None
        report = await run_eval(system.open(None), [{"id": "1", "input": {}, "expected_label": "urgent"}])
    assert report.failures_by_kind == {"malformed": 1}


def test_the_adapter_reads_payloads_for_evaluate(adapter_module: ModuleType):
    """Label and confidence may be left out of a posted prediction."""
    system = load(None)
    assert system.read is not None
    assert system.read({"class": "urgent", "score": 0.75}).label == "urgent"
    with pytest.raises(DependencyMalformed):
        system.read({"class": 3})


def test_the_profiles_of_the_guide_load(tmp_path: Path):
    """Both TOML examples are accepted as they stand, and the second changes one threshold only."""
    profiles = [block for block in blocks("toml") if "[systems." in block]
    assert len(profiles) == 2
    loaded = []
    for index, text in enumerate(profiles):
        path = tmp_path / f"{index}.toml"
        path.write_text(text)
        loaded.append(load_profiles(path))
    assert loaded[0]["triage"].collapse("emergency") == "act"
    changed, builtin = loaded[1]["sentinel-l7"], load_profiles()["sentinel-l7"]
    assert changed.thresholds.low_confidence == 0.5
    assert changed.model_copy(update={"thresholds": builtin.thresholds}) == builtin
