"""The hosts that a job runs on: how many, at which price, and what their interruptions cost."""
