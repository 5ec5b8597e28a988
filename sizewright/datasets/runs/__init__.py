"""Finished and running jobs: their history, and what Prometheus and pods say of them."""
