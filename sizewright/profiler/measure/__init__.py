"""Measurement of one trial."""
