"""Derive a report from audit trails alone: no store, no model, no service."""

from __future__ import annotations

from collections.abc import Iterable

from app.critic.audit import read_audit
from app.critic.events import Header
from app.critic.figures import Control, CriticReport
from app.critic.report import ControlBuilder, ReportBuilder, check_control
from app.critic.rows import AuditError

Lines = Iterable[bytes]


def replay(lines: Lines, *, control: Lines | None = None, baseline: Lines | None = None) -> CriticReport:
    """The report that the trail `lines` tells, with those of a control run and its baseline arm where they are given.

    Raises `AuditError` for a trail that contradicts itself, and for trails that do not belong together.
    """
    header, rows = read_audit(lines)
    if header.pipeline != "critic":
        raise AuditError("the trail is of a run without a critic")
    builder = ReportBuilder(header)
    for row in rows:
        builder.add(row)
    return builder.report(_control(header, control, baseline))


def _control(main: Header, control: Lines | None, baseline: Lines | None) -> Control | None:
    if control is None and baseline is None:
        return None
    if control is None or baseline is None:
        raise AuditError("a control needs both: the trail of its run and that of its baseline arm")
    (header, rows), (arm, arm_rows) = read_audit(control), read_audit(baseline)
    if (why := check_control(main, header, arm)) is not None:
        raise AuditError(why)
    builder = ControlBuilder(header, arm)
    for row in arm_rows:
        builder.add_baseline(row)
    for row in rows:
        builder.add(row)
    return builder.made()
