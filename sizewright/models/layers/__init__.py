"""Decorators of throughput models, each of which adds one thing."""
