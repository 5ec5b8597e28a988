"""Finished jobs that are similar to a new one, as evidence for its throughput and memory."""
