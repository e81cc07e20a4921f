"""The arbiter: runs a project's checks anew, has a strong model look at the whole, and gives a verdict that binds."""
