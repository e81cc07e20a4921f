"""The service: HTTP, evaluation, runs, storage, wiring and the command line."""
