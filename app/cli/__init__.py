"""The command line: `arbiter-l8 COMMAND`, or `arbiter-l8 --system ... --fixture ...` for a score."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code. A first word that is an option means `score`."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0].startswith("--") and arguments[0] not in {"--help", "--version"}:
        arguments = ["score", *arguments]
    try:
        from app.cli.commands import cli

        cli(arguments, prog_name="arbiter-l8")
    except KeyboardInterrupt:  # while it was starting
        from app.cli.exits import INTERRUPTED

        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
