"""Elastic DLRM training on Ray."""
