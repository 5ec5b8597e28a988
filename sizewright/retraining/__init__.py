"""Retraining of the learned models."""
