"""The embedded vector index: what grounding and consistency search when no other index is configured."""
