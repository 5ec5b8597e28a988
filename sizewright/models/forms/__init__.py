"""Throughput models with one simple equation each, and black boxes."""
