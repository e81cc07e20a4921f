"""The exit codes of every command: two families, and nothing else is ever returned.

A command that judges answers a question, so 1 and 2 are answers of it and whatever kept it from answering is 3. Any
other command does something: 0 it is done, 1 it was not, 2 it was not even begun.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

OK, FAILED, USAGE = 0, 1, 2
NO, UNDECIDED, COULD_NOT_RUN = 1, 2, 3
INTERRUPTED = 130

ANSWERS: Mapping[str, int] = {
    "PASS": OK,
    "WARN": OK,
    "BLOCK": NO,
    "INCONCLUSIVE": UNDECIDED,
    "MISSING": UNDECIDED,
    "accept": OK,
    "block": NO,
    "ADOPT": OK,
    "DECLINE": NO,
}
"""What gates, the arbiter and a critic's report say. Any other word is none of ours: `COULD_NOT_RUN`."""

JUDGING = frozenset({"gate", "compare", "verdict", "verify", "critic report", "critic replay"})
"""Commands that judge; all others do."""

DOING_TABLE: Mapping[int, str] = {
    OK: "done; `serve` and `worker`: stopped as told",
    FAILED: "not done: no such run, the service or the target can't be reached or refuses, the run failed, "
    "a file can't be written",
    USAGE: "not begun: a wrong option, setting, database or input file",
    INTERRUPTED: "interrupted",
}
JUDGING_TABLE: Mapping[int, str] = {
    OK: "pass, warn, accept, adopt, true; `compare`: shown",
    NO: "block, decline, differs",
    UNDECIDED: "inconclusive, missing",
    COULD_NOT_RUN: "no answer: no such run, no service, a blocked baseline, a wrong option, setting or file, a crash",
    INTERRUPTED: "interrupted",
}


def answer(word: str) -> int:
    """The exit code of a verdict."""
    return ANSWERS.get(word, COULD_NOT_RUN)


def _no_answer(exc: Exception) -> None:
    """Give a usage error the code of a command that judges."""
    if getattr(exc, "exit_code", None) == USAGE and not isinstance(exc, typer.Exit):
        setattr(exc, "exit_code", COULD_NOT_RUN)  # noqa: B010 - a class variable of a class that is not ours


class _Judging:
    """Usage errors can't be taken for an answer: they exit with 3."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Read the arguments."""
        try:
            return super().make_context(info_name, args, parent, **extra)  # type: ignore[misc]
        except Exception as exc:
            _no_answer(exc)
            raise


class JudgingCommand(_Judging, TyperCommand):
    """A command that judges."""


class JudgingGroup(_Judging, TyperGroup):
    """A group of such commands."""

    def invoke(self, ctx: Any) -> Any:
        """Find the command and run it."""
        try:
            return super().invoke(ctx)
        except Exception as exc:
            _no_answer(exc)
            raise
