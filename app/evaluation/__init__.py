"""One prediction without a label: plan, run the layers, combine, store."""
