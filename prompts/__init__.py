"""Prompt texts and their descriptions."""
