"""Discrete-event simulation of a trace of jobs under a policy, deterministic for a seed."""
