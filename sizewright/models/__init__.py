"""Throughput and memory models."""
