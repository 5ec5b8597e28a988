"""Replays traces of jobs under a policy, event by event, alike for the same seed."""
