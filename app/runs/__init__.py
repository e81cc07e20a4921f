"""Labelled datasets: execute, record, measure."""

from app.runs.run_eval import run_eval

__all__ = ["run_eval"]
