"""The planner: it chooses which allocation to measure next."""
