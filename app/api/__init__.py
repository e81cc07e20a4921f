"""Thin HTTP routes; statuses live in `problems`."""
