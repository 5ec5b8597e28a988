"""One capacity, many jobs."""
