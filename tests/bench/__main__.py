"""`uv run python -m tests.bench [NAME ...]`: measure, print ratios, exit 1 when a target is missed."""

from __future__ import annotations

import argparse
import importlib
import sys

GROUPS = {
    "evaluate": "/evaluate of an unflagged item against a route that does nothing",
    "pipeline": "a flagged /evaluate with every layer, against the time that its remotes take",
    "grounding": "stages 1 and 2 of narrative grounding against a route that does nothing, and up to a megabyte",
    "pointers": "pointer verification and provenance of 40 evidence items against that route",
    "runs": "/runs beside a bare loop, and the memory of a long run",
    "scale": "recorded runs from 10,000 examples on, and one run shared by two workers",
    "datasets": "a million rows stored, run by their hash, compared and read in every form",
    "neighbours": "/evaluate beside a run, in its own process and in another",
    "compare_frameworks": "/runs beside pydantic-evals, inspect-ai and a bare loop",
    "kills": "fifty kills of workers on each database",
    "telemetry": "/evaluate beside sick collectors, against telemetry switched off",
}


def main() -> int:
    """Run the named groups, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    listed = "; ".join(f"{name}: {what}" for name, what in GROUPS.items())
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=listed)
    chosen = parser.parse_args().groups or list(GROUPS)
    if unknown := set(chosen) - set(GROUPS):
        parser.error(f"no group {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    rows = []
    for name in chosen:
        print(f"== {name}: {GROUPS[name]}", flush=True)
        rows += importlib.import_module(f"tests.bench.{name}").main()
    width = max(len(row.name) for row in rows)
    for row in rows:
        print(f"{row.name:<{width}}  {row.value:8.3f}  {row.target:<10} {'met' if row.met else 'MISSED'}")
    return 0 if all(row.met for row in rows) else 1


sys.exit(main())
