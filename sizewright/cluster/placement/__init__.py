"""Placement of replicas on servers."""
