"""Hypotheses, evidence, and what models made of the two: stored facts, scores computed by code alone."""
