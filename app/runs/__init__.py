"""Labelled datasets: execute, record, measure."""
