"""Spans, metrics and logs over OTLP/HTTP; nothing in the service waits for a collector."""
