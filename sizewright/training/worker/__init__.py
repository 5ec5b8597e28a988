"""The loop of a worker and its way to the parameter servers."""
