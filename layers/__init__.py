"""The vocabulary, the ports and the checks: pure, no I/O, no web framework."""
