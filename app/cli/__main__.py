"""`python -m app.cli` is `arbiter-l8`."""

from app.cli import main

main()
