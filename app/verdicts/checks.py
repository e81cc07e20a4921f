"""Run the checks: each anew, each to one result, and whatever gives no answer is a failure that did not run."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections import Counter
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from app.errors import ServiceError
from app.gates.model import GateRequest, Status
from app.verdicts import scan
from app.verdicts.config import (
    ArbiterConfig,
    BannedCheck,
    BaselineCheck,
    Check,
    CommandCheck,
    GateCheck,
    LoadedConfig,
    ScopeCheck,
)
from app.verdicts.git import Changed, Commits, changed_files, patch, resolve
from app.verdicts.globs import matcher
from app.verdicts.model import CheckResult
from app.verdicts.path_subject import MAX_FILES, PathSubject, open_path
from app.verdicts.process import Ended, NotRun, clean_environment, run_program
from app.verdicts.subject import Subject
from app.verdicts.text import clean, shown
from layers.errors import DependencyError
from layers.scrubbing import Scrubber

logger = logging.getLogger(__name__)

RULES = "rules"
"""The check that is always run on a range of commits: that it does not change what it is judged by."""
MAX_POLICY = 64_000
MAX_KNOWN = 16_000_000
_PASSED_OUTPUT = 800
"""Characters of a passing program's output that are kept."""


class Found(NamedTuple):
    """What a check found."""

    passed: bool
    detail: str


class Gates(Protocol):
    """Judge a run by a policy; the verdict as JSON. Raises `ServiceError`."""

    async def gate(self, run_id: str, request: GateRequest) -> bytes: ...


@dataclass(frozen=True)
class Bench:
    """Where checks are run: on one artifact, by one config."""

    loaded: LoadedConfig
    subject: Subject
    gates: Gates
    scrubber: Scrubber
    ignored: frozenset[bytes] = frozenset()

    @property
    def config(self) -> ArbiterConfig:
        return self.loaded.config

    async def run_all(self) -> tuple[CheckResult, ...]:
        """The results in the config's order, one after the other. Without a check there is none, `rules` or not."""
        results = [await self._run(check) for check in self.config.checks]
        if results and self.subject.commits is not None and self.config.rules == "fixed":
            results.insert(0, await self._guarded(RULES, None, self._rules(self.subject.commits)))
        return tuple(results)

    async def _run(self, check: Check) -> CheckResult:
        match check:
            case CommandCheck():
                return await self._guarded(check.name, check.argv, self._command(check))
            case BaselineCheck():
                return await self._guarded(check.name, check.argv, self._baseline(check))
            case GateCheck():
                return await self._guarded(check.name, None, self._gate(check))
            case ScopeCheck():
                return await self._guarded(check.name, None, self._scope(check))
            case BannedCheck():
                return await self._guarded(check.name, None, self._banned(check))

    async def _guarded(self, name: str, argv: Sequence[str] | None, work: Awaitable[Found]) -> CheckResult:
        command = None if argv is None else tuple(clean(word, self.scrubber, 500) for word in argv)
        try:
            found = await work
        except (NotRun, ServiceError, DependencyError) as exc:
            return self._result(name, command, None, str(exc))
        except Exception as exc:
            logger.exception("the check %r broke", name)
            return self._result(name, command, None, f"it broke: {type(exc).__name__}")
        return self._result(name, command, found.passed, found.detail)

    def _result(self, name: str, command: tuple[str, ...] | None, passed: bool | None, detail: str) -> CheckResult:
        return CheckResult(
            name=name,
            command=command,
            ran=passed is not None,
            result="pass" if passed else "fail",
            detail=clean(detail, self.scrubber),
        )

    # --- programs -----------------------------------------------------------------------------------------------------

    async def _command(self, check: CommandCheck) -> Found:
        ended = await self._program(check)
        passed = ended.code in check.exit_codes
        if not passed and ended.code in check.could_not_run_codes:
            raise NotRun(f"{_how_it_ended(ended)}, which means that it could not do its work\n{ended.text}")
        output = clean(ended.text, self.scrubber, _PASSED_OUTPUT) if passed else ended.text
        return Found(passed, f"{_how_it_ended(ended)}\n{output}".strip())

    async def _baseline(self, check: BaselineCheck) -> Found:
        known = await self._known(check)
        ended = await self._program(check)
        if ended.code not in check.exit_codes:
            raise NotRun(f"{_how_it_ended(ended)}, which is none that it ends with after its work\n{ended.text}")
        if ended.cut:
            raise NotRun(f"its output is too long to be counted\n{ended.text}")
        lines = [line for line in ended.text.splitlines() if re.search(check.pattern, line)]
        new = lines[known:] if isinstance(known, int) else list((Counter(lines) - known).elements())
        against = known if isinstance(known, int) else known.total()
        listed = new if not isinstance(known, int) else lines if new else []
        return Found(not new, "\n".join([f"{len(new)} new errors against {against}", *listed]))

    async def _known(self, check: BaselineCheck) -> int | Counter[str]:
        if check.known is not None:
            return check.known
        text = read_text(self.loaded.root / str(check.known_file), MAX_KNOWN)
        return Counter(line for line in text.splitlines() if re.search(check.pattern, line))

    async def _program(self, check: CommandCheck | BaselineCheck) -> Ended:
        if (why := await self.subject.why_not_in_place()) is not None:
            raise NotRun(why)
        env = clean_environment(check.env, check.pass_env)
        return await run_program(check.argv, cwd=self.loaded.root / check.cwd, env=env, timeout=check.timeout)

    # --- runs ---------------------------------------------------------------------------------------------------------

    async def _gate(self, check: GateCheck) -> Found:
        if self.subject.run_id is None:
            raise NotRun("a gate judges a run, and the artifact is none")
        policy = read_text(self.loaded.root / check.policy, MAX_POLICY)
        request = GateRequest(policy=policy, baseline=check.baseline) if policy else None
        if request is None:
            raise NotRun(f"the policy {check.policy} is empty")
        verdict = json.loads(await self.gates.gate(self.subject.run_id, request))
        bad = [rule for rule in verdict["rules"] if rule["status"] != Status.PASS.value]
        lines = [f"{rule['status']}: {rule['name']}: {rule['reason']}" for rule in bad]
        passed = verdict["verdict"] in {Status.PASS.value, Status.WARN.value}
        return Found(passed, "\n".join([f"the gate says {verdict['verdict']}", *lines]))

    # --- files --------------------------------------------------------------------------------------------------------

    async def _range(self, text: str | None) -> tuple[Commits, tuple[Changed, ...]]:
        if text is None and self.subject.commits is None:
            raise NotRun("the artifact is no range of commits, and the check names none")
        commits = self.subject.commits if text is None else await resolve(self.loaded.root, text)
        if commits is None or not (changed := await changed_files(commits)):
            raise NotRun("the range changes nothing")
        return commits, changed

    async def _scope(self, check: ScopeCheck) -> Found:
        _, changed = await self._range(check.range)
        inside = matcher(check.paths)
        outside = [one.name for one in changed if not inside(os.fsdecode(one.name))]
        head = f"{len(outside)} of {len(changed)} changed files lie outside the declared paths"
        return Found(not outside, "\n".join([head, *(shown(name) for name in outside)]))

    async def _rules(self, commits: Commits) -> Found:
        changed = {commits.top / os.fsdecode(one.name) for one in await changed_files(commits)}
        touched = sorted({path.resolve() for path in self.loaded.rule_files} & {path.resolve() for path in changed})
        if not touched:
            return Found(True, "the artifact does not change what it is judged by")
        names = [shown(str(path)) for path in touched]
        return Found(False, "\n".join(["the artifact changes what it is judged by (rules = 'fixed')", *names]))

    async def _banned(self, check: BannedCheck) -> Found:
        wanted = matcher(check.paths)
        asked: dict[str, object] = {"patterns": check.patterns}
        if check.range is not None or self.subject.commits is not None:
            commits, _ = await self._range(check.range)
            hunks = [hunk for hunk in await patch(commits, context=0) if wanted(os.fsdecode(hunk.name))]
            lines = [(shown(hunk.name), line) for hunk in hunks for line in hunk.lines if line.sign == "+"]
            asked["lines"] = [(name, line.number, line.text.decode("utf-8", "replace")) for name, line in lines]
        else:
            folder = await self._folder()
            files = [(shown(name), str(path)) for name, path in folder.files() if wanted(os.fsdecode(name))]
            if not files:
                raise NotRun("no file matches its paths")
            asked["files"] = files[:MAX_FILES]
        return await _scan(asked, check.timeout)

    async def _folder(self) -> PathSubject:
        if isinstance(self.subject, PathSubject):
            return self.subject
        return await open_path(self.loaded.root, self.ignored)


async def _scan(asked: dict[str, object], timeout: float) -> Found:
    argv = (sys.executable, "-I", str(Path(scan.__file__)))
    given = json.dumps(asked).encode("utf-8", "surrogatepass")
    ended = await run_program(argv, cwd=Path("/"), env=clean_environment({}), timeout=timeout, given=given)
    if ended.code != 0:
        raise NotRun(f"the search {_how_it_ended(ended)}\n{ended.text[-500:]}")
    hits = json.loads(ended.output)
    listed = [f"{name}:{number}: {pattern}" for name, number, pattern in hits["first"]]
    return Found(not hits["hits"], "\n".join([f"{hits['hits']} banned patterns found", *listed]))


def _how_it_ended(ended: Ended) -> str:
    return f"exit code {ended.code}" if ended.code >= 0 else f"ended by signal {-ended.code}"


def read_text(path: Path, limit: int) -> str:
    """A file as text. Raises `NotRun` for one that is not there, too large or no UTF-8."""
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise NotRun(f"{shown(str(path))} is larger than {limit} bytes")
        return data.decode()
    except OSError as exc:
        raise NotRun(f"{shown(str(path))} cannot be read: {exc.strerror}") from None
    except UnicodeDecodeError:
        raise NotRun(f"{shown(str(path))} is not valid UTF-8") from None
