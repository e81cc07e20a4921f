"""Benchmarks: ratios within one run, because machines are noisy. `uv run python -m tests.bench --help`."""
