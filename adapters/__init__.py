"""One module per remote system, all over one JSON-over-HTTP client."""
