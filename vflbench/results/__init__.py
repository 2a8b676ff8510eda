"""Results on disk: a run writes them, reports read them. Nothing here needs torch."""
