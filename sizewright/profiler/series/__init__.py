"""Series of trials: which points they measure, and in which order."""
