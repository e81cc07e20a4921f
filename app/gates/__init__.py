"""Gates: one verdict on a run that a release can act on, and the baselines that runs are held against."""
