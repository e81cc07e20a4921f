"""What callers can do with the arbiter: have an artifact judged, and look up what was decided."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.errors import Forbidden, NotFound, Overloaded, TimedOut, Unprocessable
from app.log.service import LogService
from app.runs.model import Page
from app.settings import VerdictSettings
from app.store.database import Database
from app.store.ids import now, uuid7
from app.store.paging import encode_cursor
from app.verdicts.binding import Bindings
from app.verdicts.checks import Bench, Gates, read_text
from app.verdicts.config import LoadedConfig, load_config
from app.verdicts.decide import decide
from app.verdicts.holistic import NOT_CONFIGURED, HolisticPass, Shown
from app.verdicts.laws import LawsTooLong, number_laws
from app.verdicts.model import (
    ArtifactState,
    CheckResult,
    GivenVerdict,
    Holistic,
    HolisticFinding,
    Verdict,
    VerdictRequest,
)
from app.verdicts.path_subject import open_path
from app.verdicts.process import NotRun
from app.verdicts.range_subject import open_range
from app.verdicts.run_subject import open_run
from app.verdicts.store import VerdictStore
from app.verdicts.subject import Subject, TooLarge
from app.verdicts.text import clean, shown
from layers.scrubbing import Scrubber

MAX_LAWS_FILE = 100_000
MAX_NARRATIVE = 10_000
UNCHANGED = "artifact is unchanged"
"""The check that fails when the artifact became another one while it was judged."""

_RUN_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class Parts:
    """What the arbiter works with. `own_files` are absolute paths of files that are ours: the database.

    `on_verdict` is told of each verdict after it was logged; it never raises.
    """

    gates: Gates
    holistic: HolisticPass | None
    scrubber: Scrubber
    own_files: frozenset[bytes] = frozenset()
    on_verdict: Callable[[str], None] = lambda _verdict: None


class VerdictService:
    """The use cases of the arbiter. Raises the `ServiceError` family, and `ConfigurationError` for a bad config."""

    def __init__(self, database: Database, log: LogService, parts: Parts, settings: VerdictSettings) -> None:
        self._database = database
        self._log = log
        self._parts = parts
        self._settings = settings
        self._store = VerdictStore(database)
        self._bindings = Bindings(database)
        self._busy = 0

    # --- judging ------------------------------------------------------------------------------------------------------

    async def ask(self, request: VerdictRequest) -> GivenVerdict:
        """Judge by the operator's own config, with those of its checks that he allowed by name.

        Raises `Forbidden` for any other check, `Unprocessable` for an artifact that is no run.
        """
        if self._settings.config is None:
            raise Forbidden("no arbiter is set up here: its operator sets ARBITER_VERDICT_CONFIG")
        if request.artifact is not None and not _RUN_ID.fullmatch(request.artifact):
            raise Unprocessable("over HTTP the artifact is the id of a run, or left out for the one that is configured")
        loaded = await asyncio.to_thread(load_config, self._settings.config)
        return await self.give(loaded.only(self._allowed(loaded, request.checks)), request.artifact)

    def _allowed(self, loaded: LoadedConfig, asked: Sequence[str] | None) -> tuple[str, ...]:
        names = {check.name for check in loaded.config.checks}
        allowed = names & set(self._settings.checks)
        if names and not allowed:
            raise Forbidden("the operator allowed no check over HTTP (ARBITER_VERDICT_CHECKS)")
        if asked is None:
            return tuple(allowed)
        if set(asked) - allowed:
            raise Forbidden("one of the checks is not allowed over HTTP (ARBITER_VERDICT_CHECKS)")
        return tuple(asked)

    async def give(
        self, loaded: LoadedConfig, artifact: str | None = None, *, base: Path | None = None
    ) -> GivenVerdict:
        """Judge `artifact` (by default the config's) by a config, whatever it names, and log the verdict.

        An artifact that is blocked already gets that block, and nothing is run. A relative path starts from `base`.
        Raises `Overloaded`, `TimedOut`.
        """
        name = artifact or loaded.config.artifact
        if name is None:
            raise Unprocessable("there is no artifact: name one, or let the config name it")
        if self._busy >= self._settings.slots:
            raise Overloaded("as many verdicts as may be are being given", retry_after=10)
        self._busy += 1
        try:
            async with asyncio.timeout(self._settings.timeout):
                subject = await self._open(name, loaded.root if artifact is None or base is None else base)
                if (standing := await self._store.binding(subject.artifact)) is not None:
                    return standing
                verdict = await self._judge(loaded, subject)
        except TimeoutError:
            raise TimedOut(f"no verdict within {self._settings.timeout:g} s (ARBITER_VERDICT_TIMEOUT)") from None
        finally:
            self._busy -= 1
        given = await self._store.add(verdict, self._log.append_entries)
        self._parts.on_verdict(given.verdict.value)
        return given

    async def _open(self, name: str, base: Path) -> Subject:
        """A run by its id; what git takes for a range; else a path."""
        if _RUN_ID.fullmatch(name):
            return await open_run(self._database, name)
        if "\0" in name:
            raise Unprocessable("an artifact's name holds no NUL")
        why = ""
        if ".." in name:
            try:
                found = await open_range(base, name, self._parts.own_files)
            except NotRun as exc:
                why = f", and as a range of commits: {exc}"
            else:
                if not found.changed:
                    raise NotFound(f"there is nothing to judge: the range {shown(name)[:300]} changes nothing")
                return found
        try:
            return await open_path(base / name, self._parts.own_files, base)
        except NotFound as exc:
            raise NotFound(exc.detail + why) from None
        except (NotRun, OSError, ValueError) as exc:
            raise Unprocessable(f"{shown(name)[:300]} can't be judged: {exc}") from None

    async def _judge(self, loaded: LoadedConfig, subject: Subject) -> Verdict:
        parts, config = self._parts, loaded.config
        checks = await Bench(loaded, subject, parts.gates, parts.scrubber, parts.own_files).run_all()
        holistic, findings = await self._look(loaded, subject, checks)
        checks = (*checks, *await self._moved(subject))
        ruling = decide(
            checks,
            findings,
            holistic,
            confidence_floor=config.confidence_floor,
            holistic_optional=config.holistic == "optional",
        )
        return Verdict(
            verdict=ruling.verdict,
            confidence=holistic.confidence,
            artifact=subject.artifact,
            objective_checks=checks,
            holistic_findings=findings,
            holistic=holistic,
            reasons=ruling.reasons,
            config_sha256=loaded.sha256,
            verdict_id=uuid7(),
            decided_at=now(),
        )

    async def _moved(self, subject: Subject) -> tuple[CheckResult, ...]:
        """Nothing, or that what was checked is not what the verdict would belong to."""
        try:
            if await subject.hash_now() == subject.artifact.as_it_is:
                return ()
            detail = "it became another one while it was judged"
        except NotRun as exc:
            detail = clean(str(exc), self._parts.scrubber)
        return (CheckResult(name=UNCHANGED, ran=False, result="fail", detail=detail),)

    # --- the look at the whole ----------------------------------------------------------------------------------------

    async def _look(
        self, loaded: LoadedConfig, subject: Subject, checks: Sequence[CheckResult]
    ) -> tuple[Holistic, tuple[HolisticFinding, ...]]:
        """The cheapest first: where a check has failed, no model is asked."""
        holistic = self._parts.holistic
        if holistic is None:
            return NOT_CONFIGURED, ()
        if (why := holistic.model.why_refused(loaded.config.made_by)) is not None:
            return holistic.refused(why), ()
        if subject.keeps_inside and holistic.model.answerer.external:
            return holistic.refused("the system's profile keeps its data on the operator's machines"), ()
        if not checks or any(check.result != "pass" for check in checks):
            return holistic.not_asked("a check failed already"), ()
        try:
            material = await self._material(loaded, subject, checks)
        except (NotRun, LawsTooLong, TooLarge) as exc:
            return holistic.failed(clean(str(exc), self._parts.scrubber, 500)), ()
        return await holistic.look(material, subject.holds, max_calls=loaded.config.max_calls)

    async def _material(self, loaded: LoadedConfig, subject: Subject, checks: Sequence[CheckResult]) -> Shown:
        def read() -> tuple[list[tuple[str, str]], str | None]:
            laws = [(name, read_text(loaded.root / name, MAX_LAWS_FILE)) for name in loaded.config.laws]
            said = loaded.config.narrative
            return laws, None if said is None else read_text(loaded.root / said, MAX_LAWS_FILE)[:MAX_NARRATIVE]

        documents, narrative = await asyncio.to_thread(read)
        return Shown(number_laws(documents), checks, narrative, await subject.material())

    # --- reading ------------------------------------------------------------------------------------------------------

    async def get(self, verdict_id: str) -> GivenVerdict:
        """One verdict. Raises `NotFound`."""
        found = await self._store.get(verdict_id)
        if found is None:
            raise NotFound("there is no such verdict")
        return found

    async def record(self, verdict_id: str) -> bytes:
        """Its record as it was hashed and logged. Raises `NotFound`."""
        found = await self._store.record(verdict_id)
        if found is None:
            raise NotFound("there is no such verdict")
        return found

    async def list(
        self, *, artifact: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[GivenVerdict]:
        """Verdicts, newest first, all or those on one artifact's hash. Raises `BadRequest`."""
        rows = await self._store.page(artifact, limit + 1, cursor)
        more = encode_cursor(rows[limit - 1].log_index) if len(rows) > limit else None
        return Page(items=tuple(rows[:limit]), next_cursor=more)

    async def state(self, run_id: str) -> ArtifactState:
        """How a run stands with the arbiter. Raises `NotFound`."""
        return await self._bindings.state(run_id)
