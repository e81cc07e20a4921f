"""Formulas on counts: each names its source, none knows a run, a store or a label."""
