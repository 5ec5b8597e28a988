"""Which samples are trained, by whom, and where a worker reads its own."""
