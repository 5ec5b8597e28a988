"""Trials: their record, files of them, and the store that keeps them."""
