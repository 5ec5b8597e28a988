"""Allocators: one capacity divided over many jobs, one policy a file."""
