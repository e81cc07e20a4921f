"""The append-only log: every evaluation's root, provably in place and provably only ever added to."""
