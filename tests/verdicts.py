"""What the tests of verdicts share: a repository, a config, an arbiter over a real store with a model that obeys."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import prompts
from app.gates.service import GateService
from app.log.service import LogService
from app.runs.model import Run
from app.settings import StoreSettings, VerdictSettings
from app.store.database import Database
from app.verdicts.binding import Bindings
from app.verdicts.config import LoadedConfig, load_config
from app.verdicts.families import ArbiterModel, Families
from app.verdicts.holistic import HolisticPass
from app.verdicts.model import GivenVerdict, ReasonKind
from app.verdicts.service import Parts, VerdictService
from layers.model import EvalDataset, EvalExample
from layers.scrubbing import Scrubber
from layers.structured_call import StructuredCall
from tests.runs import Scripted, ended, prediction, request, run_service
from tests.unit.answerers import ScriptedAnswerer, Speak

PASSES = '[[checks]]\nkind = "command"\nname = "passes"\nargv = ["true"]\n'
FAILS = '[[checks]]\nkind = "command"\nname = "fails"\nargv = ["false"]\n'
GONE = '[[checks]]\nkind = "command"\nname = "gone"\nargv = ["./no-such-program"]\n'
BY_QWEN = 'made_by = "qwen3:8b"\n'
OPTIONAL = 'holistic = "optional"\n'
SECRET = "k3y-that-nobody-may-see"


def reply(*findings: dict[str, str], confidence: float = 0.95) -> str:
    return json.dumps({"findings": list(findings), "confidence": confidence})


def finding(
    place: str, severity: str = "blocking", law: str = "correctness", text: str = "it breaks"
) -> dict[str, str]:
    return {"law": law, "severity": severity, "place": place, "finding": text}


def look(speak: Speak, *, external: bool = False, model: str = "gemini-2.5-pro") -> HolisticPass:
    """A look at the whole by a model that says what the test wants."""
    families = Families.parse(["qwen*=qwen", "gemini-*=gemini"])
    answerer = ScriptedAnswerer(speak, external=external)
    scrubber = Scrubber([SECRET])
    return HolisticPass(
        ArbiterModel(answerer, model, families), prompts.load("arbiter"), StructuredCall(capacity=0), scrubber
    )


class Repository:
    """A git repository with one commit; `commit` adds one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", "main")
        self.commit({"src/a.py": "x = 1\n"})

    def git(self, *arguments: str) -> str:
        who = {f"GIT_{role}_{what}": "t@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        env = {**os.environ, **who, "GIT_CONFIG_GLOBAL": os.devnull}
        return subprocess.run(
            ["git", *arguments], cwd=self.folder, env=env, check=True, capture_output=True
        ).stdout.decode()

    def commit(self, files: dict[str, str | bytes], message: str = "change") -> None:
        for name, content in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)


@dataclass
class Arbiter:
    """An arbiter over a real store and log, with gates that know it."""

    service: VerdictService
    gates: GateService
    database: Database
    log: LogService
    folder: Path

    def config(self, text: str, name: str = "arbiter.toml") -> LoadedConfig:
        path = self.folder / "config" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return load_config(path)


@asynccontextmanager
async def arbiter_over(
    database: Database, folder: Path, holistic: HolisticPass | None, settings: VerdictSettings | None = None
) -> AsyncIterator[Arbiter]:
    log = await LogService.open(database, folder / "log.key")
    gates = GateService(database, check_binding=Bindings(database).check_run)
    parts = Parts(gates, holistic, Scrubber([SECRET]))
    yield Arbiter(VerdictService(database, log, parts, settings or VerdictSettings()), gates, database, log, folder)


@asynccontextmanager
async def arbiter_in(
    folder: Path, speak: Speak | None = None, settings: VerdictSettings | None = None
) -> AsyncIterator[Arbiter]:
    """An arbiter on a SQLite file of its own; `speak` None = no model is configured."""
    database = await Database.open(StoreSettings(url=f"sqlite:///{folder}/store.db"))
    try:
        async with arbiter_over(database, folder, None if speak is None else look(speak), settings) as made:
            yield made
    finally:
        await database.close()


async def make_run(
    database: Database, *, size: int = 3, label: Callable[[int], str] = lambda _: "high", **fields: object
) -> Run:
    """A run that is over: example `e0`, `e1`, ... expects `high` and is given `label(n)`."""

    async def answer(example: EvalExample) -> object:
        return prediction(label(int((example.id or "")[1:])), id=example.id)

    examples = tuple(EvalExample(id=f"e{n}", input={"n": n}, expected_label="high") for n in range(size))
    async with run_service(database, Scripted(answer)) as runs:  # type: ignore[arg-type]
        run = await runs.submit(request(**fields), EvalDataset(examples=examples))
        return await ended(runs, run.run_id)


def kinds(verdict: GivenVerdict) -> list[ReasonKind]:
    return [reason.kind for reason in verdict.reasons]


def results(verdict: GivenVerdict) -> dict[str, tuple[bool, str]]:
    return {check.name: (check.ran, check.result) for check in verdict.objective_checks}
