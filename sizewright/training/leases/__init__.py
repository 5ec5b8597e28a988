"""Leases: the samples that are trained, and the workers that train them."""
