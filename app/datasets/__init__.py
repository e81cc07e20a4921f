"""Datasets as things of their own: stored once, named, compared, and read in several forms."""
