"""Classifiers that can be asked again, and a critic that may send each row back once."""
