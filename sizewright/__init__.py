"""Sizes the training jobs of deep learning recommendation models."""
