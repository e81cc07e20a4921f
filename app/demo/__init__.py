"""Stand-ins for the neighbouring systems and the guided tour that uses them."""
