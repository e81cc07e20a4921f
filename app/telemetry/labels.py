"""What may become a metric label: members of closed sets, or `other`."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from layers.model import SkipReason
from layers.profile import SystemProfile

OTHER = "other"

CAUSES = frozenset(
    {
        # a remote
        "timeout", "refused", "dns", "tls", "disconnected", "rate_limited", "server_error", "rejected", "circuit_open",
        "malformed", "too_large", "unfinished", "busy",
        # a model
        "not_a_label", "out_of_range", "truncated", "prompt_truncated", "empty_output", "blocked",
        "external_models_forbidden", "out_of_time", "heuristics_fallback",
        # a neighbouring system
        "tool_failed", "unknown_driver", "duplicate", "skipped", "extraction_failed", "judge_rejected", "emit_failed",
        "search_failed", "input_required", "invalid_input", "protocol_version", "no_prediction", "foreign_prediction",
        # ourselves
        "cancelled", "withdrawn", "bug", "crashed", "configuration", "internal", "unprocessable", "none",
        *(reason.value for reason in SkipReason),
    }
)  # fmt: skip
"""Every cause of a failure or a skip that this code base names."""

RULES = frozenset(
    {
        "heuristics:unknown_label", "heuristics:label_mismatch", "heuristics:confidence_missing",
        "heuristics:low_confidence", "heuristics:confidence_saturation", "heuristics:elevated_label_low_confidence",
        "heuristics:missing_narrative", "narrative_grounding:ungrounded", "audit_sample",
    }
)  # fmt: skip
"""Why an item may be escalated, beside the contradiction rules of its profile."""


def bounded(value: str | None, known: Collection[str]) -> str:
    """`value` if it is among `known`, else `other`: caller-made text never becomes a time series."""
    return value if value is not None and value in known else OTHER


def escalation_reasons(profiles: Iterable[SystemProfile]) -> frozenset[str]:
    """Every reason for which these systems' items can be escalated."""
    return RULES | {f"heuristics:{rule.name}" for profile in profiles for rule in profile.contradictions}


def providers(profiles: Iterable[SystemProfile]) -> frozenset[str]:
    """Every provider that these systems can be asked through."""
    return frozenset(name for profile in profiles for name in profile.providers)
